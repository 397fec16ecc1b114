"""Breakers that a fleet shares: read from their store when they may have changed, local while the store is away."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.breaker import Admission, BreakerPolicy, BreakerStep, BreakerVerb, BreakerView, State
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import BreakerChanged, Trouble
from carillon.domain.ports import Clock, Observer
from carillon.outbound.breakers import MemoryBreakers

AWAY_SECONDS = 1.0
_TOGETHER = 100_000
KNOWN_SECONDS = 0.25
"""How long a state is good enough to choose what to claim; calls ask again."""

_SURE = {State.CLOSED: Admission.GO, State.OPEN: Admission.STOP}
"""The admission that follows from a fresh state; only a half-open breaker must be asked for each call."""


class StoreUnavailable(msgspec.Struct, frozen=True):
    """The store of the breakers does not answer now."""

    error: str


class SharedBreakers:
    """Satisfies Breakers; while the store is away each process uses breakers of its own."""

    def __init__(
        self,
        policies: Mapping[str, BreakerPolicy],
        *,
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        self._policies = policies
        # Its changes are told by `_tell`, while the store is away.
        self._fallback = MemoryBreakers(policies, clock, lambda _: None)
        self._clock = clock
        self._observe = observer
        # 0 caches no state: every admission and every outcome goes to the store, and all processes count as one.
        self._refresh = refresh_seconds
        self._seen: dict[str, State] = {}
        self._fresh_until: dict[str, float] = {}
        self._known_until: dict[str, float] = {}
        self._clean: set[str] = set()
        self._away_until = 0.0
        self._failing: set[str] = set()
        """Providers with failures since their last success: only their next success needs a round trip."""
        self._asking: dict[str, Coalescer[str, Admission]] = {}
        self._told: dict[str, State] = {}

    async def admit(self, provider: str) -> Admission:
        state = self._seen.get(provider)
        if state in _SURE and self._clock.monotonic() < self._fresh_until[provider]:
            return _SURE[state]
        asking = self._asking.get(provider)
        if asking is None:
            asking = self._asking[provider] = Coalescer(self._admit, max_batch=_TOGETHER, max_pending=_TOGETHER)
        return await asking.add(provider)

    async def record(self, provider: str, *, ok: bool) -> None:
        closed = self._seen.get(provider) is State.CLOSED
        if ok and closed and (provider in self._clean or (self._refresh and provider not in self._failing)):
            return
        if ok:
            self._failing.discard(provider)
        else:
            self._failing.add(provider)
        await self._fallback.record(provider, ok=ok)
        await self._changed("ok" if ok else "fail", provider)
        if not ok:
            # Other processes may see failures too: the next caller asks the store.
            self._fresh_until[provider] = self._known_until[provider] = 0.0

    async def trip(self, provider: str) -> None:
        self._failing.add(provider)
        await self._fallback.trip(provider)
        await self._changed("trip", provider)

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each in the store, or in this process while the store is away."""
        for provider in providers:
            await self._run("look", provider)
        states = await self.states()
        return {provider: states.get(provider, State.CLOSED) for provider in providers}

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The whole breaker of each in their home, or in this process where it is away."""
        found = await self._fallback.views(providers)
        for provider in providers:
            step = await self._run("look", provider)
            if step is not None and step.seen is not None:
                found[provider] = BreakerView(step.seen, found[provider].policy)
        return found

    async def recovered(self, provider: str) -> None:
        await self._fallback.recovered(provider)
        await self._changed("heal", provider)

    async def states(self) -> dict[str, State]:
        for provider, state in list(self._seen.items()):
            if state is State.HALF_OPEN or self._clock.monotonic() >= self._known_until[provider]:
                await self._run("look", provider)
        # The process's own breakers know the states that the store could not be asked for.
        return {**await self._fallback.states(), **self._seen}

    def leave(self) -> None:
        """The process ends and closes the store; a question may outlive its asker, whom the shutdown has cancelled."""
        self._away_until = math.inf

    async def _admit(self, askers: Sequence[str]) -> list[Admission]:
        """One answer of the store serves all waiting callers; each asks on its own while the breaker is half-open."""
        first = await self._ask(askers[0])
        if first.state in _SURE:
            return [first.admission] * len(askers)
        others = await asyncio.gather(*(self._ask(provider) for provider in askers[1:]))
        return [first.admission, *(other.admission for other in others)]

    async def _ask(self, provider: str) -> BreakerStep:
        said = await self._run("admit", provider)
        if said is None:
            said = BreakerStep(State.HALF_OPEN, await self._fallback.admit(provider))
            await self._tell_own(provider)
        return said

    async def _changed(self, verb: BreakerVerb, provider: str) -> None:
        if await self._run(verb, provider) is None:
            await self._tell_own(provider)

    async def _tell_own(self, provider: str) -> None:
        """While the store is away, the breaker of this process is the one that counts."""
        self._tell(provider, (await self._fallback.states()).get(provider, State.CLOSED))

    async def _step(self, verb: BreakerVerb, provider: str, policy: BreakerPolicy) -> BreakerStep | StoreUnavailable:
        """One atomic step of the breaker in its store; StoreUnavailable when the store does not answer."""
        raise NotImplementedError

    async def _run(self, verb: BreakerVerb, provider: str) -> BreakerStep | None:
        if self._clock.monotonic() < self._away_until:
            return None
        policy = self._policies.get(provider) or self._policies["*"]
        step = await self._step(verb, provider, policy)
        if isinstance(step, StoreUnavailable):
            self._seen.pop(provider, None)
            if self._away_until < math.inf:
                self._observe(Trouble(where="breakers", error=step.error))
                # A store that hangs must not cost every attempt a timeout.
                self._away_until = self._clock.monotonic() + AWAY_SECONDS
            return None
        self._note(provider, step)
        return step

    def _note(self, provider: str, step: BreakerStep) -> None:
        self._seen[provider] = step.state
        (self._clean.add if step.clean else self._clean.discard)(provider)
        now = self._clock.monotonic()
        self._fresh_until[provider] = now + self._refresh
        self._known_until[provider] = now + max(self._refresh, KNOWN_SECONDS)
        self._tell(provider, step.state)

    def _tell(self, provider: str, state: State) -> None:
        """Each change once, whether the store or this process knows of it."""
        # A process that comes later finds it half open: it was open before, and never closed in between.
        before = self._told.get(provider, State.OPEN if state is State.HALF_OPEN else State.CLOSED)
        self._told[provider] = state
        if before is not state:
            self._observe(BreakerChanged(provider=provider, before=before, after=state))


class BreakerLedger(Protocol):
    """A ledger that keeps breakers for all processes."""

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> BreakerStep:
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
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        super().__init__(policies, clock=clock, observer=observer, refresh_seconds=refresh_seconds)
        self._ledger = ledger
        self._service = service

    async def _step(self, verb: BreakerVerb, provider: str, policy: BreakerPolicy) -> BreakerStep | StoreUnavailable:
        try:
            return await self._ledger.breaker_step(self._service, provider, verb, policy)
        except LedgerUnavailable as error:
            return StoreUnavailable(str(error))
