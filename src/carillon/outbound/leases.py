"""The leases of a worker's claims, and the task that renews them."""

import asyncio
from collections.abc import Iterable

from carillon.domain.claims import Claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeaseLost, Trouble
from carillon.domain.ports import Backlog, Clock, Observer
from carillon.faultpoint import faultpoint

MARGIN = 0.1
"""The share of a lease kept back, so that a call ends and its settlement is written before another worker may claim."""


class Leases:
    """Knows which leases are alive: it counts on the local monotonic clock, from just before the claim."""

    def __init__(self, backlog: Backlog, clock: Clock, observer: Observer, lease_seconds: float) -> None:
        self._backlog = backlog
        self._clock = clock
        self._observe = observer
        self._seconds = lease_seconds
        self._held: dict[int, tuple[Claim, float]] = {}
        self._expiries: dict[int, float] = {}
        """By token: when the notification of a claim expires; most never do."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, claims: Iterable[Claim], asked_at: float) -> None:
        """Hold claims; `asked_at` is taken before the claim, so the real lease is never shorter than this one."""
        until = asked_at + self._seconds * (1 - MARGIN)
        for claim in claims:
            self._held[claim.token] = (claim, until)
            if claim.expires_in is not None:
                # A renewal leaves the moment as the claim has set it.
                self._expiries.setdefault(claim.token, asked_at + claim.expires_in)

    def drop(self, claims: Iterable[Claim]) -> None:
        """Forget settled claims."""
        forget = self._held.pop
        for claim in claims:
            forget(claim.token, None)
            if claim.expires_in is not None:
                self._expiries.pop(claim.token, None)

    def expires_within(self, claim: Claim, seconds: float = 0.0) -> bool:
        """Whether the claim's notification has expired by then; counted as leases are, so never too late."""
        if claim.expires_in is None:
            return False
        until = self._expiries.get(claim.token)
        return until is not None and until <= self._clock.monotonic() + seconds

    def seconds_left(self, claim: Claim) -> float:
        """How long a call may still run; 0 when the lease was lost, or expired while this process was suspended."""
        held = self._held.get(claim.token)
        return 0.0 if held is None else max(0.0, held[1] - self._clock.monotonic())

    def all_seconds_left(self, claims: Iterable[Claim]) -> list[float]:
        """The same for many claims, with one reading of the clock."""
        now, held = self._clock.monotonic(), self._held
        return [
            0.0 if (one := held.get(claim.token)) is None or (left := one[1] - now) < 0.0 else left for claim in claims
        ]

    async def run(self) -> None:
        """Renew all leases every third of their length, until cancelled."""
        while True:
            await asyncio.sleep(self._seconds / 3)
            try:
                await self.renew()
            except Exception as error:  # noqa: BLE001 - if renewal ended, other workers would repeat every later call
                self._observe(Trouble(where="leases", error=f"{type(error).__name__}: {error}"))

    async def renew(self) -> None:
        """Renew all leases by token; drop those that another worker has taken."""
        claims = [claim for claim, _ in self._held.values()]
        asked_at = self._clock.monotonic()
        if claims:
            faultpoint("before_extend")
        # Also without claims: a queue learns from it that nobody holds what it has handed out.
        try:
            lost = await self._backlog.extend(claims)
        except LedgerUnavailable as error:
            self._observe(Trouble(where="leases", error=str(error)))
            return
        gone = {claim.token for claim in lost}
        for claim in claims:
            if claim.token in gone:
                self._expiries.pop(claim.token, None)
                if self._held.pop(claim.token, None) is not None:
                    self._observe(
                        LeaseLost(
                            notification_id=claim.notification_id, route_id=claim.route_id, provider=claim.provider
                        )
                    )
            elif claim.token in self._held:
                self.take([claim], asked_at)
