"""Breakers in the ledger: one state for a fleet that has no Redis."""

from collections.abc import Mapping
from typing import Protocol

from carillon.domain.breaker import BreakerPolicy, BreakerVerb, Step
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.ports import Clock, Observer
from carillon.outbound.breakers.probe import RecoverableBreakers
from carillon.outbound.breakers.shared import Away, SharedBreakers


class BreakerLedger(Protocol):
    """A ledger that keeps breakers for all processes."""

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> Step:
        """One atomic step of a breaker, on the ledger's clock; raises LedgerUnavailable."""
        ...


class LedgerBreakers(SharedBreakers):
    """Shared breakers on the database's own clock."""

    def __init__(
        self,
        ledger: BreakerLedger,
        policies: Mapping[str, BreakerPolicy],
        *,
        service: str,
        fallback: RecoverableBreakers,
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        super().__init__(policies, fallback=fallback, clock=clock, observer=observer, refresh_seconds=refresh_seconds)
        self._ledger = ledger
        self._service = service

    async def _step(self, verb: BreakerVerb, provider: str, policy: BreakerPolicy) -> Step | Away:
        try:
            return await self._ledger.breaker_step(self._service, provider, verb, policy)
        except LedgerUnavailable as error:
            return Away(str(error))
