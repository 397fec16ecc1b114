"""Every claim in this worker's hands, and the renewal that keeps it there."""

import asyncio
from collections.abc import Iterable

from carillon.domain.claims import Claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeaseLost, Trouble
from carillon.domain.ports import Backlog, Clock, Observer
from carillon.faultpoint import faultpoint

MARGIN = 0.1
"""The share of a lease kept back: a call must end, and its settlement leave, before another may claim the route."""


class Leases:
    """Knows which leases are alive by this process's own monotonic clock, counted from before the claim was asked."""

    def __init__(self, backlog: Backlog, clock: Clock, observer: Observer, lease_seconds: float) -> None:
        self._backlog = backlog
        self._clock = clock
        self._observe = observer
        self._seconds = lease_seconds
        self._held: dict[int, tuple[Claim, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, claims: Iterable[Claim], asked_at: float) -> None:
        """Remember claims; `asked_at` is when the ledger was asked, so the lease can only be longer than we think."""
        until = asked_at + self._seconds * (1 - MARGIN)
        for claim in claims:
            self._held[claim.token] = (claim, until)

    def drop(self, claim: Claim) -> None:
        """Forget a settled claim."""
        self._held.pop(claim.token, None)

    def seconds_left(self, claim: Claim) -> float:
        """How long a call may still take; 0 when the lease was lost or ran out while this process slept."""
        held = self._held.get(claim.token)
        return 0.0 if held is None else max(0.0, held[1] - self._clock.monotonic())

    def all_seconds_left(self, claims: Iterable[Claim]) -> list[float]:
        """The same for many, by one look at the clock."""
        now, held = self._clock.monotonic(), self._held
        return [max(0.0, held[claim.token][1] - now) if claim.token in held else 0.0 for claim in claims]

    async def run(self) -> None:
        """Renew everything at a third of the lease, for as long as the worker lives."""
        while True:
            await asyncio.sleep(self._seconds / 3)
            try:
                await self.renew()
            except Exception as error:  # noqa: BLE001 - without renewal every later call would be another's to repeat
                self._observe(Trouble(where="leases", error=f"{type(error).__name__}: {error}"))

    async def renew(self) -> None:
        """Renew all leases by token; those that are another's by now are forgotten."""
        claims = [claim for claim, _ in self._held.values()]
        if not claims:
            return
        asked_at = self._clock.monotonic()
        faultpoint("before_extend")
        try:
            lost = await self._backlog.extend(claims)
        except LedgerUnavailable as error:
            self._observe(Trouble(where="leases", error=str(error)))
            return
        gone = {claim.token for claim in lost}
        for claim in claims:
            if claim.token in gone:
                if self._held.pop(claim.token, None) is not None:
                    self._observe(
                        LeaseLost(
                            notification_id=claim.notification_id, route_id=claim.route_id, provider=claim.provider
                        )
                    )
            elif claim.token in self._held:
                self.take([claim], asked_at)
