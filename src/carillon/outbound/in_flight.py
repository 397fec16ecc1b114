"""What was claimed, on its way from the call to the ledger; whatever goes wrong with one must not reach the others."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from carillon.domain.claims import Claim, Settlement
from carillon.domain.events import Trouble
from carillon.domain.ports import Observer
from carillon.domain.verdicts import Defer
from carillon.outbound.attempt import Attempts
from carillon.outbound.calling import Ended
from carillon.outbound.leases import Leases
from carillon.outbound.settling import Settling
from carillon.outbound.shutdown import CUT_SECONDS


class Carrying:
    """Attempts and settles claims, and knows how much is under way."""

    def __init__(self, attempts: Attempts, settling: Settling, leases: Leases, observer: Observer) -> None:
        self._attempts = attempts
        self._settling = settling
        self._leases = leases
        self._observe = observer
        self._tasks: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        """Claims not yet settled."""
        self.calls: Counter[str] = Counter()
        """Calls under way by provider; one that has ended burdens nobody, even if it is not settled yet."""
        self.carried_out = 0
        self.freed = asyncio.Event()
        """Set when a call or a claim has ended."""

    def reserve(self, routes: Mapping[str, int]) -> None:
        """Count so many routes by provider as if they were under way."""
        self.in_flight += sum(routes.values())
        self.calls.update(routes)

    def release(self, routes: Mapping[str, int]) -> None:
        """The room kept for these is free again."""
        self.in_flight -= sum(routes.values())
        self.calls.subtract(routes)
        self.freed.set()

    def start(self, claims: Sequence[Claim]) -> None:
        """Carry these out, each provider's in the way it likes best."""
        by_provider: dict[str, list[Claim]] = {}
        self.in_flight += len(claims)
        for claim in claims:
            by_provider.setdefault(claim.provider, []).append(claim)
        for provider, batch in by_provider.items():
            self.calls[provider] += len(batch)
            if len(batch) > 1 and self._attempts.takes_many(batch[0]):
                self._spawn(batch, partial(self._carry_together, batch))
            elif len(batch) > 1 and self._attempts.goes_side_by_side(batch[0]):
                waiting = {claim.token: claim for claim in batch}
                self._spawn(waiting.values(), partial(self._carry_each, waiting))
            else:
                for claim in batch:
                    self._carry_alone(claim)

    async def drain(self, seconds: float) -> None:
        """Let calls finish; cut off what does not, settle it as unknown, and leave nothing leased."""
        await self._wait(seconds)
        if self._tasks:
            self._attempts.cut_off()
            self._settling.give_up()
            for task in self._tasks:
                task.cancel()
            await self._wait(CUT_SECONDS)

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        # Again and again: calls that end side by side are settled by tasks of their own.
        while self._tasks and loop.time() < until:
            await asyncio.wait(self._tasks, timeout=until - loop.time())

    def _spawn(self, claims: Collection[Claim], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self._carry(claims, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, claims: Collection[Claim], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work for as many of the claims as are its own when it ends."""
        try:
            await work()
        except asyncio.CancelledError:
            await self._settling.settle_many([Settlement(claim=claim, verdict=Defer(0.0)) for claim in claims])
        except Exception as error:  # noqa: BLE001 - the lease will run out and the route be claimed again
            self._observe(Trouble(where="attempt", error=f"{type(error).__name__}: {error}"))
        finally:
            self.carried_out += len(claims)
            self.in_flight -= len(claims)
            for claim in claims:
                self._leases.drop(claim)
            self.freed.set()

    def _carry_alone(self, claim: Claim) -> None:
        self._spawn((claim,), partial(self._attempt_alone, claim))

    async def _attempt_alone(self, claim: Claim) -> None:
        try:
            settlement = await self._attempts.attempt(claim)
        finally:
            self._called(claim.provider, 1)
        await self._settling.settle(settlement)

    async def _carry_together(self, claims: list[Claim]) -> None:
        """Many messages in one call."""
        try:
            settlements = await self._attempts.attempt_many(claims)
        finally:
            self._called(claims[0].provider, len(claims))
        await self._settling.settle_many(settlements)

    async def _carry_each(self, waiting: dict[int, Claim]) -> None:
        """Many calls from one task; what has ended is settled while the others are under way."""
        claims = list(waiting.values())
        try:
            ready, alone = await self._attempts.line_up(claims)
            for claim in alone:
                self._carry_alone(waiting.pop(claim.token))
            if ready:
                await self._attempts.call_each(ready, partial(self._landed, waiting))
        finally:
            self._called(claims[0].provider, len(waiting))

    def _landed(self, waiting: dict[int, Claim], ended: list[Ended], took: float) -> None:
        claims = [waiting.pop(dispatch.claim.token) for dispatch, _ in ended]
        self._called(claims[0].provider, len(claims))
        self._spawn(claims, partial(self._settle, ended, took))

    async def _settle(self, ended: list[Ended], took: float) -> None:
        await self._settling.settle_many(await self._attempts.conclude(ended, took))

    def _called(self, provider: str, calls: int) -> None:
        self.calls[provider] -= calls
        self.freed.set()
