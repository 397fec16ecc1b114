"""Addresses that were erased while they were suppressed: their owners stay suppressed."""

import math

from carillon.domain.ports import Clock
from carillon.domain.rights import ERASURE, ErasedMarks
from carillon.domain.suppressions import SuppressionLedger

_FRESH_SECONDS = 5.0
_MOST = 100_000


class ErasedAddresses:
    """Reads the marks at most once in a few seconds; without any, an acceptance costs one comparison."""

    def __init__(self, ledger: SuppressionLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._marks = ErasedMarks()
        self._fresh_until = -math.inf

    async def hold(self, channel: str, address: str, tenant_id: str | None) -> bool:
        """Whether nothing may be sent to the address."""
        if self._clock.monotonic() >= self._fresh_until:
            self._fresh_until = self._clock.monotonic() + _FRESH_SECONDS
            rows, _ = await self._ledger.suppressions({"source": ERASURE}, _MOST, 0)
            self._marks = ErasedMarks.of(rows)
        return bool(self._marks.by_salt) and self._marks.hold(channel, address, tenant_id)
