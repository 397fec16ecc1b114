"""The one loop over every backlog: claim what can start now, attempt each on its own, settle, drain."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import Claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.lanes import Lanes
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Signal
from carillon.ending import ended
from carillon.faultpoint import faultpoint
from carillon.outbound.attempt import Attempts
from carillon.outbound.in_flight import Carrying
from carillon.outbound.lane_polling import Tempo
from carillon.outbound.leases import Leases
from carillon.outbound.selection import blocked_providers, questions, wants
from carillon.outbound.settling import Settling
from carillon.outbound.shutdown import Leaving

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
MOST_DOUBLINGS = 30
FEW = 40
"""Up to so many calls at a time, a single free slot is worth a claim."""


class WorkerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much a worker takes on."""

    lanes: Lanes
    chains: Mapping[str, Sequence[str]]
    skip_open: bool = True
    """False where a policy buries on an open breaker: such routes must be claimed to be buried."""
    concurrency: int = 1000
    first_claims: int = 1
    """How much a young process dares: what it claims together dies together."""
    dare_seconds: float | None = None
    """A process that lives so long dares twice as much, even while its first calls are still under way."""
    batch: int = 500
    max_in_flight: Mapping[str, int] = {}
    """Calls under way at once, for providers that bear fewer than `concurrency`."""
    poll_seconds: float = 0.25
    drain_seconds: float = 20.0


class Worker:
    """Claims, attempts and settles until it is told to stop; holds at most `concurrency` claims."""

    def __init__(
        self,
        *,
        backlog: Backlog,
        signal: Signal,
        attempts: Attempts,
        settling: Settling,
        leases: Leases,
        breakers: Breakers,
        rules: WorkerRules,
        clock: Clock,
        observer: Observer,
        owner: str,
    ) -> None:
        self._backlog = backlog
        self._signal = signal
        self._leases = leases
        self._carrying = Carrying(attempts, settling, leases, observer)
        self._breakers = breakers
        self._rules = rules
        self._tempo = Tempo(rules.lanes, clock)
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._born_at = clock.monotonic()
        self._full = False
        """Some provider has as many calls under way as it bears: its next work begins when one ends."""
        self._idle = False
        """The last claim found nothing, and the worker waits to be rung for."""
        self._leaving = Leaving(clock, rules.drain_seconds)

    @property
    def in_flight(self) -> int:
        """Claims not yet settled."""
        return self._carrying.in_flight

    async def run(self) -> None:
        """Work until rest(), wait for stop(), then drain."""
        renewal = asyncio.create_task(self._leases.run())
        try:
            while not self._leaving.resting:
                await self._turn()
            await self._leaving.told()
        finally:
            await self._carrying.drain(self._leaving.left())
            await ended(renewal)

    def rest(self, within_seconds: float | None = None) -> None:
        """Claim no more; what is in flight gets its time to finish from now on, the cut included."""
        self._leaving.rest(within_seconds)
        self._carrying.freed.set()
        self._signal.ring()

    def stop(self) -> None:
        """Nothing more comes from the doors either: drain, and end."""
        if not self._leaving.resting:
            self.rest()
        self._leaving.leave()

    async def reserve(self, routes: Mapping[str, int]) -> float | None:
        """Keep room for so many new routes by provider; gives the time from which their leases count.

        None unless there is nothing older to do and every provider is well.
        """
        asked_at, total = self._clock.monotonic(), sum(routes.values())
        if not self._could_start(total):
            return None
        states = await self._breakers.states()
        well = all(
            states.get(provider, State.CLOSED) is State.CLOSED
            and number
            <= self._rules.max_in_flight.get(provider, self._rules.concurrency) - self._carrying.calls[provider]
            for provider, number in routes.items()
        )
        if not well or not self._could_start(total):
            return None
        self._carrying.reserve(routes)
        return asked_at

    def take(self, reserved: Mapping[str, int], claims: Sequence[Claim], asked_at: float) -> None:
        """Carry out what was enrolled as claims of this worker; the room kept for it is given back in any case."""
        self._carrying.release(reserved)
        if claims:
            faultpoint("after_claim")
            self._leases.take(claims, asked_at)
            self._carrying.start(claims)

    def _could_start(self, routes: int) -> bool:
        return self._idle and not self._leaving.resting and routes <= self._free()

    def _free(self) -> int:
        # A message that kills its worker takes everything claimed beside it along: a young process dares little, and
        # twice as much with each round that it survives.
        dared = self._rules.first_claims + self._carrying.carried_out
        if self._rules.dare_seconds is not None and dared < self._rules.concurrency:
            lived = (self._clock.monotonic() - self._born_at) / self._rules.dare_seconds
            dared += self._rules.first_claims * 2 ** int(min(lived, MOST_DOUBLINGS)) - self._rules.first_claims
        return min(self._rules.concurrency, dared) - self._carrying.in_flight

    async def _turn(self) -> None:
        free = self._free()
        if free <= 0:
            self._carrying.freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.dare_seconds):
                    await self._carrying.freed.wait()
            return
        claimed = await self._claim(free)
        if claimed is None:
            return
        if not claimed and not self._full:
            self._idle = True
            try:
                await self._signal.wait(self._rules.poll_seconds)
            finally:
                self._idle = False
        elif not claimed or self.in_flight > self._rules.concurrency * 3 // 4:
            # Under load many small claims cost more than they bring: let a few slots come free first.
            self._carrying.freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.poll_seconds / 10):
                    await self._carrying.freed.wait()

    async def _claim(self, free: int) -> int | None:
        """Claim and start; None when the ledger was away and time has been spent waiting."""
        wait = FIRST_WAIT
        while not self._leaving.resting:
            asked_at = self._clock.monotonic()
            try:
                claims = await self._ask(min(free, self._rules.batch))
            except LedgerUnavailable as error:
                self._observe(Trouble(where="claim", error=str(error), retry_in_seconds=wait))
                await self._leaving.pause(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                if claims:
                    faultpoint("after_claim")
                # Taken and started in one breath: a lease without its task would be renewed for ever.
                self._leases.take(claims, asked_at)
                self._carrying.start(claims)
                return len(claims)
        return None

    async def _ask(self, total: int) -> list[Claim]:
        claims: list[Claim] = []
        lanes = self._tempo.due()
        for providers, most in questions(await self._room(), total):
            left = min(most, total - len(claims))
            if left <= 0:
                break
            try:
                asked = wants(lanes, providers, left)
                claims += await self._backlog.claim(asked, left, self._owner)
            except LedgerUnavailable:
                # What is in hand already is carried out even if the ledger leaves now; the next turn will notice.
                if not claims:
                    raise
                break
        self._tempo.looked(lanes, claims)
        return claims

    async def _room(self) -> dict[str, int]:
        states = await self._breakers.states()
        blocked = blocked_providers(self._rules.chains, states) if self._rules.skip_open else set()
        room: dict[str, int] = {}
        self._full = False
        for chain in self._rules.chains.values():
            for provider in chain:
                most = self._rules.max_in_flight.get(provider, self._rules.concurrency)
                space = most - self._carrying.calls[provider]
                if states.get(provider) is State.HALF_OPEN and len(chain) == 1:
                    space = min(space, 1)
                elif space * 4 < most and most > FEW:
                    # Its calls under way will make room soon; a quarter at a time is worth a claim.
                    self._full = True
                    continue
                if provider not in blocked and space > 0:
                    room[provider] = space
        return room
