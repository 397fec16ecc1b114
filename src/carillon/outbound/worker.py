"""The worker loop over every backlog: claim the routes that can start now, attempt each, settle, and drain on stop."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import Claim
from carillon.domain.decide import blocked_providers
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.groups import Groups, Turns
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Enrolled, Enrolment, Route, is_due_now
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Signal
from carillon.domain.synchronous import SynchronousLedger
from carillon.ending import ended
from carillon.faultpoint import faultpoint
from carillon.outbound.attempt import Attempts
from carillon.outbound.in_flight import InFlight
from carillon.outbound.leases import Leases
from carillon.outbound.next_calls import NextCalls
from carillon.outbound.places import Places
from carillon.outbound.settle import Settler
from carillon.outbound.shutdown import Shutdown
from carillon.outbound.targets import Targets
from carillon.outbound.wants import CallSlots, LanePolling, questions, slots, unpaused, wants

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
MOST_DOUBLINGS = 30
FULL = "group_full"
FEW_CALLS = 40
"""A provider limited to this many concurrent calls is claimed for as soon as one slot is free."""


class WorkerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many routes a worker claims, how often it polls and how long it drains."""

    lanes: Lanes
    chains: Mapping[str, Sequence[str]]
    skip_open: bool = True
    """False where a policy dead-letters a route on an open breaker: the worker must claim such routes to end them."""
    concurrency: int = 1000
    first_claims: int = 1
    """The claim limit of a new process: a message that kills the worker also kills every claim beside it."""
    claim_doubling_seconds: float | None = None
    """The claim limit doubles every `claim_doubling_seconds`, even while the first calls are still in flight."""
    batch: int = 500
    max_in_flight: Mapping[str, int] = {}
    """Concurrent calls of a provider that allows fewer than `concurrency`."""
    groups: Mapping[str, Groups] = {}
    """Weights and caps of the groups of each provider."""
    poll_seconds: float = 0.25
    drain_seconds: float = 20.0


class Worker:
    """Claims, attempts and settles until it is stopped; holds at most `concurrency` claims."""

    def __init__(
        self,
        *,
        backlog: Backlog,
        signal: Signal,
        attempts: Attempts,
        settler: Settler,
        leases: Leases,
        breakers: Breakers,
        rules: WorkerRules,
        clock: Clock,
        observer: Observer,
        owner: str,
        targets: Targets | None = None,
    ) -> None:
        self._targets = targets
        self._attempts = attempts
        self._backlog, self._signal = backlog, signal
        self._leases = leases
        self._places = Places(rules.groups, clock, rules.concurrency // 4)
        self._rules = rules
        self._next = NextCalls({name: self._most(name) for name in rules.max_in_flight}, rules.lanes, clock)
        self._in_flight = InFlight(attempts, settler, leases, observer, places=self._places, next_calls=self._next)
        self._breakers = breakers
        self._lane_polling = LanePolling(rules.lanes, clock)
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._started_at = clock.monotonic()
        self._full = False
        """A provider has reached its limit of concurrent calls: the next claim waits until a call ends."""
        self._slots: dict[str, CallSlots] = {}
        self._nearly_full: set[str] = set()
        """Providers with few free slots: the next claim asks only for their urgent lanes."""
        self._polled: dict[str, float] = {}
        """When the urgent lanes of a nearly full provider were asked for last."""
        self._idle = False
        """The last claim found nothing, and the worker waits for the signal."""
        self._shutdown = Shutdown(clock, rules.drain_seconds)

    @property
    def in_flight(self) -> int:
        """Claims that are not settled yet."""
        return self._in_flight.claims

    async def waits(self) -> Counter[tuple[str, str]]:
        """How many groups, endpoints, providers and tenants keep routes waiting, by reason and provider."""
        found = Counter({(FULL, provider): number for provider, number in self._places.full().items()})
        for provider, state in (await self._breakers.states()).items():
            found["provider_breaker", provider] += state is State.OPEN
        if self._targets is not None:
            found += self._targets.waits()
        return +found

    async def run(self) -> None:
        """Work until stop_claiming(), wait for stop(), then drain."""
        renewal = asyncio.create_task(self._leases.run())
        try:
            while not self._shutdown.begun:
                await self._turn()
            await self._shutdown.wait_for_stop()
        finally:
            await self._in_flight.drain(self._shutdown.seconds_left())
            await ended(renewal)

    def stop_claiming(self, within_seconds: float | None = None) -> None:
        """Claim nothing more; claims in flight must end within `within_seconds`, including their cancellation."""
        self._shutdown.begin(within_seconds)
        self._in_flight.freed.set()
        self._signal.ring()

    def stop(self) -> None:
        """Drain and end: the doors hand over nothing more."""
        if not self._shutdown.begun:
            self.stop_claiming()
        self._shutdown.stop()

    async def reserve(self, routes: Mapping[str, int]) -> float | None:
        """Reserve slots for new routes, counted by provider; returns the time from which their leases run.

        Returns None when older work waits, a breaker is not closed, or too few slots are free.
        """
        asked_at, total = self._clock.monotonic(), sum(routes.values())
        if not self._could_start(total):
            return None
        states = await self._breakers.states()
        fits = all(
            states.get(provider, State.CLOSED) is State.CLOSED
            and number <= self._paced(provider, self._most(provider) - self._in_flight.calls[provider])
            and not self._next.waiting(provider)
            for provider, number in routes.items()
        )
        if not fits or not self._could_start(total):
            return None
        self._in_flight.reserve(routes)
        return asked_at

    def caps(self, routes: Sequence[Route]) -> dict[int, int]:
        """The caps of the groups of these routes, by number; groups without a cap are left out."""
        groups = self._rules.groups
        found = (
            (route.group, groups[route.provider]) for route in routes if route.group < 0 and route.provider in groups
        )
        return {number: cap for number, rules in found if (cap := rules.cap_of(number)) is not None}

    def start_reserved(self, reserved: Mapping[str, int], claims: Sequence[Claim], asked_at: float) -> None:
        """Free the reserved slots and start the claims that the ledger gave; there may be none."""
        self._in_flight.release(reserved)
        if claims:
            faultpoint("after_claim")
            self._leases.take(claims, asked_at)
            self._in_flight.start(claims)

    def _could_start(self, routes: int) -> bool:
        return self._idle and not self._shutdown.begun and routes <= self._free()

    def _free(self) -> int:
        # A message that kills its worker kills every claim beside it. A new process therefore claims few routes, and
        # its limit grows with each claim that it survives.
        limit = self._rules.first_claims + self._in_flight.finished
        if self._rules.claim_doubling_seconds is not None and limit < self._rules.concurrency:
            doublings = (self._clock.monotonic() - self._started_at) / self._rules.claim_doubling_seconds
            limit += self._rules.first_claims * 2 ** int(min(doublings, MOST_DOUBLINGS)) - self._rules.first_claims
        return min(self._rules.concurrency, limit) - self._in_flight.claims

    async def _turn(self) -> None:
        free = self._free()
        if free <= 0:
            await self._wait_for_slot(self._rules.claim_doubling_seconds)
            return
        claimed = await self._claim(free)
        if claimed is None or self._shutdown.begun:
            return
        if not claimed and not self._full:
            self._idle = True
            try:
                await self._wait_for_work()
            finally:
                self._idle = False
        elif not claimed or self.in_flight > self._rules.concurrency * 3 // 4:
            # Under load many small claims cost more than they bring: wait until a few slots are free.
            await self._wait_for_slot(self._rules.poll_seconds / 10)

    async def _wait_for_work(self) -> None:
        """Wait for the signal, for the next poll, or for a group or a provider that could be claimed for again."""
        events = [self._places.hungry] if self._places.watching else []
        events += [self._in_flight.awaited_ended] if self._in_flight.awaited else []
        if not events:
            await self._signal.wait(self._rules.poll_seconds)
            return
        waits = [
            asyncio.ensure_future(self._signal.wait(self._rules.poll_seconds)),
            *(asyncio.ensure_future(event.wait()) for event in events),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                await ended(wait)
            self._places.hungry.clear()

    async def _wait_for_slot(self, timeout_seconds: float | None) -> None:
        self._in_flight.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._in_flight.freed.wait()

    async def _claim(self, free: int) -> int | None:
        """Claim and start, waiting for an absent ledger; None when the shutdown began before a claim succeeded."""
        wait = FIRST_WAIT
        while not self._shutdown.begun:
            asked_at = self._clock.monotonic()
            self._in_flight.give_back(self._places.review())
            self._places.asking()
            try:
                claims = await self._ask(min(free, self._rules.batch))
            except LedgerUnavailable as error:
                self._places.answered()
                self._observe(Trouble(where="claim", error=str(error), retry_in_seconds=wait))
                await self._shutdown.pause(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                if claims:
                    faultpoint("after_claim")
                # No await between these two: a lease without its task would be renewed forever.
                self._leases.take(claims, asked_at)
                self._in_flight.start(claims)
                self._places.answered()
                return len(claims)
        return None

    async def _ask(self, total: int) -> list[Claim]:
        claims: list[Claim] = []
        taken: Counter[str] = Counter()
        room = await self._room()
        if self._shutdown.begun:
            # The look at targets may have waited for a silent store: begin no second wait.
            return claims
        lanes = unpaused(self._lane_polling.due(), () if self._targets is None else self._targets.paused)
        for providers, most in questions(room, total):
            left = min(most - taken[self._slots[providers[0]].provider], total - len(claims))
            if left <= 0:
                continue
            try:
                bounds = self._bounds(lanes, providers)
                lacking = self._lacking(providers)
                asked = wants(lanes, providers, left, self._turns(providers), bounds, lacking=lacking)
                found = await self._backlog.claim(asked, left, self._owner)
                claims += found
                taken.update(self._slots[claim.provider].provider for claim in found)
            except LedgerUnavailable:
                # Start what was already claimed; the next turn reports the absent ledger.
                if not claims:
                    raise
                break
        self._lane_polling.record(lanes, claims)
        return claims

    def _turns(self, providers: Sequence[str]) -> dict[str, Turns]:
        groups = self._rules.groups
        return {
            name: groups[name].turns(
                self._places.ahead(name), self._attempts.left_out(name) if groups[name].by != "none" else ()
            )
            for name in providers
            if name in groups
        }

    def _bounds(self, lanes: Lanes, providers: Iterable[str]) -> dict[tuple[int, str], int]:
        """How many more calls each lane may have of each provider; slots are kept free for every lane but the last."""
        found: dict[tuple[int, str], int] = {}
        ranks = [lane.rank for lane in lanes.queued()]
        last = self._rules.lanes.queued()[-1].rank
        for provider in providers:
            own = self._slots[provider]
            found |= {(rank, provider): self._next.bound(own.provider, rank, own.free) for rank in ranks}
            if provider in self._nearly_full and last in ranks and self._next.lacks(own.provider, last) <= 0:
                found[last, provider] = 0
        return found

    def _lacking(self, providers: Sequence[str]) -> set[int]:
        """The lanes with fewer calls than their share of the slots, where few become free at once."""
        called = self._slots[providers[0]].provider
        ranks = (lane.rank for lane in self._rules.lanes.queued())
        return {rank for rank in ranks if self._next.lacks(called, rank) > 0} if len(providers) == 1 else set()

    async def _room(self) -> dict[str, int]:
        """How many more calls each provider may get now."""
        states = await self._breakers.states()
        if self._targets is not None:
            await self._targets.refresh()
        blocked = blocked_providers(self._rules.chains, states) if self._rules.skip_open else set()
        room: dict[str, int] = {}
        self._full = False
        self._nearly_full.clear()
        self._in_flight.await_none()
        called = slots(self._rules.chains, states, self._in_flight.calls, self._most)
        self._next.follow({name: own.provider for name, own in called.items()})
        self._slots = {name: self._with_next(name, own, states) for name, own in called.items()}
        for chain in self._rules.chains.values():
            for provider in chain:
                own = self._slots[provider]
                most, space = own.most, own.free
                if states.get(provider) is State.HALF_OPEN and len(chain) == 1:
                    space = min(space, 1)
                elif space * 4 < most and most > FEW_CALLS:
                    # Calls in flight end soon: claim again when a quarter of the slots is free. They may be slow:
                    # urgent lanes are asked for at every poll.
                    self._full = True
                    if not self._may_poll(provider):
                        continue
                    self._nearly_full.add(provider)
                elif any(self._next.bound(own.provider, lane.rank, space) <= 0 for lane in self._rules.lanes.queued()):
                    self._in_flight.awaited.add(provider)
                space = self._paced(provider, space)
                if provider not in blocked and space > 0:
                    room[provider] = space
        return room

    def _with_next(self, name: str, own: CallSlots, states: Mapping[str, State]) -> CallSlots:
        """The slots with those of claims ahead, which only a provider has that is called at its own pace."""
        elsewhere = own.provider != name or states.get(name, State.CLOSED) is not State.CLOSED
        paced = self._targets is not None and (name in self._targets.paused or self._targets.paced(name))
        ahead = 0 if elsewhere or paced else self._next.ahead(name)
        waiting = self._next.waiting(name)
        if waiting and not ahead:
            self._in_flight.return_waiting([name])
            return own
        return CallSlots(own.provider, own.most + ahead, own.free + ahead - waiting)

    def _may_poll(self, provider: str) -> bool:
        now = self._clock.monotonic()
        if now < self._polled.get(provider, 0.0) + self._rules.poll_seconds:
            return False
        self._polled[provider] = now
        return True

    def _most(self, provider: str) -> int:
        concurrency = self._rules.concurrency
        return min(self._rules.max_in_flight.get(provider, concurrency), concurrency)

    def _paced(self, provider: str, space: int) -> int:
        """The space that a pause and the provider's rate leave: a route is claimed when its call may start."""
        if self._targets is not None and provider in self._targets.paused:
            return 0
        if self._targets is None or not self._targets.paced(provider):
            return space
        free = self._targets.room(provider)
        return space if free is None else min(space, free)


class WorkerClaimOnAccept:
    """Writes accepted routes as claims of an idle worker, in one commit; satisfies ClaimOnAccept.

    A process that dies with such claims leaves leases that expire, as after any claim.
    """

    def __init__(self, worker: Worker, ledger: SynchronousLedger, owner: str, lease_seconds: float) -> None:
        self._worker = worker
        self._ledger = ledger
        self._owner = owner
        self._seconds = lease_seconds

    async def __call__(self, batch: Sequence[Enrolment]) -> list[Enrolled] | None:
        due = [route for each in batch for route in each.routes if is_due_now(each, route)]
        wanted = Counter(route.provider for route in due)
        asked_at = await self._worker.reserve(wanted) if wanted else None
        if asked_at is None:
            return None
        claims: list[Claim] = []
        try:
            caps = self._worker.caps(due)
            written = await self._ledger.enrol_claimed(batch, self._owner, self._seconds, caps)
            claims = [claim for each in written for claim in each.claims]
        finally:
            self._worker.start_reserved(wanted, claims, asked_at)
        return [each.enrolled for each in written]
