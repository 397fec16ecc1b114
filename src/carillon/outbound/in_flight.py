"""Claims in flight: each is attempted and settled in a task, so that an error in one does not reach the others."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from carillon.domain.claims import Claim, Settlement
from carillon.domain.events import Trouble
from carillon.domain.ports import Observer
from carillon.domain.verdicts import Defer
from carillon.outbound.attempt import Attempts
from carillon.outbound.calls import EndedCall
from carillon.outbound.leases import Leases
from carillon.outbound.next_calls import NextCalls
from carillon.outbound.places import Places
from carillon.outbound.settle import Settler
from carillon.outbound.shutdown import CANCEL_SECONDS


class InFlight:
    """Attempts and settles claims, and counts what is in flight."""

    def __init__(
        self,
        attempts: Attempts,
        settler: Settler,
        leases: Leases,
        observer: Observer,
        *,
        places: Places,
        next_calls: NextCalls,
    ) -> None:
        self._attempts = attempts
        self._settler = settler
        self._leases = leases
        self._observe = observer
        self._places = places
        self._next = next_calls
        self._tasks: set[asyncio.Task[None]] = set()
        self.claims = 0
        """Claims that are not settled yet."""
        self.calls: Counter[str] = Counter()
        """Calls in flight by provider; a call that has ended no longer counts, even if it is not settled yet."""
        self.finished = 0
        """Claims that this process has carried to their end."""
        self.freed = asyncio.Event()
        """Set when a call or a claim ends."""
        self.awaited: set[str] = set()
        """Providers with few slots that have none for some lane: the end of a call of theirs is reason to claim."""
        self.awaited_ended = asyncio.Event()

    def reserve(self, routes: Mapping[str, int]) -> None:
        """Count these routes, by provider, as if they were in flight."""
        self.claims += sum(routes.values())
        self.calls.update(routes)

    def release(self, routes: Mapping[str, int]) -> None:
        """Free the slots that reserve() took."""
        self.claims -= sum(routes.values())
        self.calls.subtract(routes)
        for provider in routes:
            # Claims may have begun to wait for the reserved slots.
            self._begin(self._next.freed(provider, 0, self.calls))
        self.freed.set()

    def start(self, claims: Sequence[Claim]) -> None:
        """Attempt these claims; one that is ahead of the places of its group or the slots of its provider waits."""
        self.claims += len(claims)
        claims, strays = self._places.without_strays(claims)
        if strays:
            gone = [settlement.claim for settlement in strays]
            self._spawn(gone, partial(self._settler.settle_many, strays))
        calling, back = self._places.admit(claims)
        self.give_back(back)
        self._begin(self._next.admit(calling, self.calls))

    def await_none(self) -> None:
        """Begin to note anew which providers' calls are awaited."""
        self.awaited.clear()
        self.awaited_ended.clear()

    def return_waiting(self, providers: Iterable[str]) -> None:
        """Give back the claims that wait for a slot of these providers: their calls go elsewhere now."""
        gone = self._next.give_up(providers)
        while gone:
            self.give_back(gone)
            gone = self._places.ended(gone)

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Return claims that have not begun to the backlog, without an attempt."""
        if claims:
            self._spawn(claims, partial(self._give_back, claims))

    def _begin(self, claims: Sequence[Claim]) -> None:
        """Attempt these claims in one batch call, concurrently in one task, or each in a task, as the provider can."""
        by_provider: dict[str, list[Claim]] = {}
        for claim in claims:
            if claim.to_complete():
                # Fetching its files must not hold up the claims beside it.
                self.calls[claim.provider] += 1
                self._start_alone(claim)
            else:
                by_provider.setdefault(claim.provider, []).append(claim)
        for provider, batch in by_provider.items():
            self.calls[provider] += len(batch)
            if len(batch) > 1 and self._attempts.sends_batches(batch[0]):
                self._spawn(batch, partial(self._attempt_batch, batch))
            elif len(batch) > 1 and self._attempts.calls_concurrently(batch[0]):
                waiting = {claim.token: claim for claim in batch}
                self._spawn(waiting.values(), partial(self._attempt_concurrently, waiting))
            else:
                for claim in batch:
                    self._start_alone(claim)

    async def drain(self, seconds: float) -> None:
        """Let calls end; then cancel the rest, settle them as unknown, and leave no lease behind."""
        begun = set(self._tasks)
        self.give_back([*self._places.give_up(), *self._next.give_up()])
        going_back = self._tasks - begun
        await self._wait(seconds)
        if self._tasks:
            self._attempts.cut_off()
            self._settler.give_up()
            # A task that is cancelled before it has begun settles nothing, not even what was sent.
            while any(map(_is_new, self._tasks)):  # noqa: ASYNC110 - each begins in the next turn of the loop
                await asyncio.sleep(0)
            for task in self._tasks - going_back:
                task.cancel()
            await self._wait(CANCEL_SECONDS)

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        # A loop, because concurrent calls that end are settled by new tasks.
        while self._tasks and loop.time() < until:
            await asyncio.wait(self._tasks, timeout=until - loop.time())

    def _spawn(self, claims: Collection[Claim], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self._run(claims, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, claims: Collection[Claim], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work; `claims` may shrink meanwhile, and what remains in it ends with this task."""
        try:
            await work()
        except asyncio.CancelledError:
            self._places.free(claims)
            await self._settler.settle_many(self._returned(claims))
        except Exception as error:  # noqa: BLE001 - the lease expires and another claim takes the route
            self._observe(Trouble(where="attempt", error=f"{type(error).__name__}: {error}"))
        finally:
            self._places.free(claims)
            self.finished += len(claims)
            self.claims -= len(claims)
            self._leases.drop(claims)
            self._places.settled(claims)
            self.freed.set()

    def _start_alone(self, claim: Claim) -> None:
        self._spawn((claim,), partial(self._attempt_alone, claim))

    async def _attempt_alone(self, claim: Claim) -> None:
        try:
            settlement = await self._attempts.attempt(claim)
        finally:
            self._calls_ended((claim,))
        await self._places.may_settle((claim,))
        await self._settler.settle(settlement)

    async def _attempt_batch(self, claims: list[Claim]) -> None:
        """Many messages in one call."""
        try:
            settlements = await self._attempts.attempt_many(claims)
        finally:
            self._calls_ended(claims)
        await self._settle(claims, settlements)

    async def _attempt_concurrently(self, waiting: dict[int, Claim]) -> None:
        """Many calls in one task; a call that ends is settled while the others are in flight."""
        claims = list(waiting.values())
        try:
            ready, alone, held = await self._attempts.ready_to_call(claims)
            for claim in alone:
                self._start_alone(waiting.pop(claim.token))
            if held:
                self._settle_held(waiting, held)
            if ready:
                await self._attempts.call_concurrently(ready, partial(self._on_ended, waiting))
        finally:
            self._calls_ended(list(waiting.values()))

    def _settle_held(self, waiting: dict[int, Claim], held: list[Settlement]) -> None:
        claims = [waiting.pop(settlement.claim.token) for settlement in held]
        self._calls_ended(claims)
        self._spawn(claims, partial(self._settle, claims, held))

    def _on_ended(self, waiting: dict[int, Claim], ended: list[EndedCall], took: float) -> None:
        claims = [waiting.pop(dispatch.claim.token) for dispatch, _ in ended]
        self._calls_ended(claims)
        self._spawn(claims, partial(self._conclude, claims, ended, took))

    async def _conclude(self, claims: list[Claim], ended: list[EndedCall], took: float) -> None:
        await self._settle(claims, await self._attempts.conclude(ended, took))

    async def _settle(self, claims: list[Claim], settlements: list[Settlement]) -> None:
        await self._places.may_settle(claims)
        await self._settler.settle_many(settlements)

    async def _give_back(self, claims: Sequence[Claim]) -> None:
        # A claim that waited for a slot of its provider had a place of its group; nobody else takes that over.
        self._places.free(claims)
        await self._settler.settle_many(self._returned(claims))

    def _returned(self, claims: Iterable[Claim]) -> list[Settlement]:
        # A deferral forgets that another worker may have sent a route: a policy that forbids its repeat decides now.
        return [self._attempts.gate(claim) or Settlement(claim=claim, verdict=Defer(0.0)) for claim in claims]

    def _calls_ended(self, claims: Sequence[Claim]) -> None:
        """Free the slots of calls of one provider; claims that waited for a place of their group take it over."""
        if claims:
            provider = claims[0].provider
            self.calls[provider] -= len(claims)
            following = self._next.admit(self._places.ended(claims), self.calls)
            self._begin(following)
            self._begin(self._next.ended(claims, self.calls))
            if provider in self.awaited:
                self.awaited_ended.set()
        self.freed.set()


def _is_new(task: asyncio.Task[None]) -> bool:
    work = task.get_coro()
    return isinstance(work, Coroutine) and getcoroutinestate(work) == CORO_CREATED
