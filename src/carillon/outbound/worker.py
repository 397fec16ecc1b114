"""The one loop over every backlog: claim what can start now, attempt each on its own, settle, drain."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import Claim, Settlement
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.lanes import Lanes
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Signal
from carillon.domain.verdicts import Defer
from carillon.faultpoint import faultpoint
from carillon.outbound.attempt import Attempts
from carillon.outbound.leases import Leases
from carillon.outbound.selection import blocked_providers, questions, wants
from carillon.outbound.settling import Settling

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


class WorkerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much a worker takes on."""

    lanes: Lanes
    chains: Mapping[str, Sequence[str]]
    skip_open: bool = True
    """False where a policy buries on an open breaker: such routes must be claimed to be buried."""
    concurrency: int = 1000
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
        self._attempts = attempts
        self._settling = settling
        self._leases = leases
        self._breakers = breakers
        self._rules = rules
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: Counter[str] = Counter()
        self._carried_out = 0
        self._full = False
        """Some provider has as many calls under way as it bears: its next work begins when one ends."""
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Claims not yet settled."""
        return self._in_flight.total()

    async def run(self) -> None:
        """Work until stop(); then drain."""
        renewal = asyncio.create_task(self._leases.run())
        try:
            while not self._stopping.is_set():
                await self._turn()
        finally:
            await self._drain()
            renewal.cancel()

    def stop(self) -> None:
        """Claim no more; what is in flight gets its time to finish."""
        self._stopping.set()
        self._freed.set()
        self._signal.ring()

    async def _turn(self) -> None:
        # A message that kills its worker takes everything claimed beside it along: a young process dares little, and
        # twice as much with each round that it survives.
        free = min(self._rules.concurrency, 1 + self._carried_out) - self.in_flight
        if free <= 0:
            self._freed.clear()
            await self._freed.wait()
            return
        claimed = await self._claim(free)
        if claimed is None:
            return
        if not claimed and not self._full:
            await self._signal.wait(self._rules.poll_seconds)
        elif not claimed or self.in_flight > self._rules.concurrency * 3 // 4:
            # Under load many small claims cost more than they bring: let a few slots come free first.
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.poll_seconds / 10):
                    await self._freed.wait()

    async def _claim(self, free: int) -> int | None:
        """Claim and start; None when the ledger was away and time has been spent waiting."""
        wait = FIRST_WAIT
        while not self._stopping.is_set():
            asked_at = self._clock.monotonic()
            try:
                claims = await self._ask(min(free, self._rules.batch))
            except LedgerUnavailable as error:
                self._observe(Trouble(where="claim", error=str(error), retry_in_seconds=wait))
                await self._pause(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                if claims:
                    faultpoint("after_claim")
                # Taken and started in one breath: a lease without its task would be renewed for ever.
                self._leases.take(claims, asked_at)
                self._start(claims)
                return len(claims)
        return None

    async def _ask(self, total: int) -> list[Claim]:
        claims: list[Claim] = []
        for providers, most in questions(await self._room(), total):
            left = min(most, total - len(claims))
            if left <= 0:
                break
            try:
                asked = wants(self._rules.lanes, providers, left)
                claims += await self._backlog.claim(asked, left, self._owner)
            except LedgerUnavailable:
                # What is in hand already is carried out even if the ledger leaves now; the next turn will notice.
                if not claims:
                    raise
                break
        return claims

    async def _room(self) -> dict[str, int]:
        states = await self._breakers.states()
        blocked = blocked_providers(self._rules.chains, states) if self._rules.skip_open else set()
        room: dict[str, int] = {}
        self._full = False
        for chain in self._rules.chains.values():
            for provider in chain:
                most = self._rules.max_in_flight.get(provider, self._rules.concurrency)
                space = most - self._in_flight[provider]
                if states.get(provider) is State.HALF_OPEN and len(chain) == 1:
                    space = min(space, 1)
                elif space * 4 < most:
                    # Its calls under way will make room soon; a quarter at a time is worth a claim.
                    self._full = True
                    continue
                if provider not in blocked and space > 0:
                    room[provider] = space
        return room

    def _start(self, claims: Sequence[Claim]) -> None:
        batches: dict[str, list[Claim]] = {}
        for claim in claims:
            self._in_flight[claim.provider] += 1
            if self._attempts.takes_many(claim):
                batches.setdefault(claim.provider, []).append(claim)
            else:
                self._spawn([claim])
        for batch in batches.values():
            self._spawn(batch)

    def _spawn(self, claims: list[Claim]) -> None:
        task = asyncio.create_task(self._carry_out(claims))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, claims: list[Claim]) -> None:
        """Attempt and settle; whatever goes wrong here must not reach the siblings."""
        try:
            if len(claims) == 1:
                await self._settling.settle(await self._attempts.attempt(claims[0]))
            else:
                await self._settling.settle_many(await self._attempts.attempt_many(claims))
        except asyncio.CancelledError:
            await self._settling.settle_many([Settlement(claim=claim, verdict=Defer(0.0)) for claim in claims])
        except Exception as error:  # noqa: BLE001 - the lease will run out and the route be claimed again
            self._observe(Trouble(where="attempt", error=f"{type(error).__name__}: {error}"))
        finally:
            self._carried_out += len(claims)
            for claim in claims:
                self._leases.drop(claim)
                self._in_flight[claim.provider] -= 1
            self._freed.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _drain(self) -> None:
        """Let calls finish; cut off what does not, settle it as unknown, and leave nothing leased."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._rules.drain_seconds)
        if self._tasks:
            self._attempts.cutting_off = True
            self._settling.give_up()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=2.0)
