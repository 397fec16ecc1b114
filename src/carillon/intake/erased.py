"""Addresses that were erased while they were suppressed: their owners stay suppressed."""

import math

from carillon.domain.ports import Clock
from carillon.domain.rights import ERASURE, ErasedMarks, erased_mark
from carillon.domain.suppressions import SuppressionLedger

_FRESH_SECONDS = 5.0
_MOST = 100_000
"""So many marks are kept in memory, the newest; the ledger is asked about the others."""
_TENANTS = 1000


class ErasedAddresses:
    """Reads the marks at most once in a few seconds; without any, an acceptance costs one comparison."""

    def __init__(self, ledger: SuppressionLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._marks = ErasedMarks()
        self._more = False
        self._fresh_until = -math.inf

    async def hold(self, channel: str, address: str, tenant_id: str | None) -> bool:
        """Whether nothing may be sent to the address."""
        if self._clock.monotonic() >= self._fresh_until:
            self._fresh_until = self._clock.monotonic() + _FRESH_SECONDS
            rows, total = await self._ledger.suppressions({"source": ERASURE}, _MOST, 0)
            self._marks, self._more = ErasedMarks.of(rows), total > len(rows)
        if not self._marks.by_salt:
            return False
        return self._marks.hold(channel, address, tenant_id) or (
            self._more and await self._asked(channel, address, tenant_id)
        )

    async def _asked(self, channel: str, address: str, tenant_id: str | None) -> bool:
        for salt in self._marks.by_salt:
            asked = {"source": ERASURE, "channel": channel, "address": erased_mark(salt, address)}
            rows, _ = await self._ledger.suppressions(asked, _TENANTS, 0)
            if any(row["tenant_id"] in ("", tenant_id or "") for row in rows):
                return True
        return False
