"""Addresses that older suppressions hold: erased ones by a mark, others under the spelling that was given."""

import math

from carillon.domain.addresses import canonical, spellings
from carillon.domain.ports import Clock
from carillon.domain.rights import ERASURE, MARKS_FRESH_SECONDS, ErasedMarks, erased_mark
from carillon.domain.suppressions import SuppressionLedger

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
        """Whether nothing may be sent to the address, however it is spelled."""
        if self._clock.monotonic() >= self._fresh_until:
            self._fresh_until = self._clock.monotonic() + MARKS_FRESH_SECONDS
            rows, total = await self._ledger.suppressions({"source": ERASURE}, _MOST, 0)
            self._marks, self._more = ErasedMarks.of(rows), total > len(rows)
        if not self._marks.by_salt:
            return False
        for each in spellings(channel, address):
            if self._marks.hold(channel, each, tenant_id) or (
                self._more and await self._asked(channel, each, tenant_id)
            ):
                return True
        return False

    async def spelled(self, channel: str, address: str, tenant_id: str | None) -> str:
        """The canonical spelling, unless a suppression from before there was one stands under the given spelling."""
        kept = canonical(channel, address)
        if kept == address:
            return kept
        rows, _ = await self._ledger.suppressions({"channel": channel, "address": address}, _TENANTS, 0)
        theirs = {row["address"] for row in rows if row["tenant_id"] in ("", tenant_id or "")}
        return address if address in theirs and kept not in theirs else kept

    async def _asked(self, channel: str, address: str, tenant_id: str | None) -> bool:
        for salt in self._marks.by_salt:
            asked = {"source": ERASURE, "channel": channel, "address": erased_mark(salt, address)}
            rows, _ = await self._ledger.suppressions(asked, _TENANTS, 0)
            if any(row["tenant_id"] in ("", tenant_id or "") for row in rows):
                return True
        return False
