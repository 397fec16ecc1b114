"""The targets of this process's calls: breakers and paces, read from the fleet's store now and then."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, State, record
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import (
    BreakerChanged,
    CallsPaused,
    CallsResumed,
    EndpointDisabled,
    EndpointEnabled,
    TargetSlowed,
    Trouble,
)
from carillon.domain.pace import (
    HORIZON_SECONDS,
    LEAST_LEAD_SECONDS,
    MARGIN,
    MOST_DEFERRED_SECONDS,
    MOST_LEAD_SECONDS,
    NO_PACE,
    Pace,
    first_place,
    limit_of,
    reserve,
    room,
    slowed,
)
from carillon.domain.pauses import Paused
from carillon.domain.ports import Clock, Observer
from carillon.domain.targets import (
    NEW_TARGET,
    NO_RATES,
    Change,
    ClockOffset,
    Held,
    Rates,
    T,
    TargetState,
    TargetStore,
    TargetView,
    asked,
    changed,
    has_calls,
    held_by,
    holds,
    parts_of,
)
from carillon.outbound.endpoint_calls import EndpointCalls

REFRESH_SECONDS = 0.5
PATIENCE_SECONDS = 2.0
AWAY_SECONDS = 1.0
"""A store that hangs must not cost every call a timeout."""
_READ_PER_SECOND = 2000
"""With very many targets in trouble, they are read less often."""
_FORGOTTEN_AT_ONCE = 100
_ENABLED = Breaker()
_MOST_COUNTED = 10_000
GOLDEN = 0.618  # multiples of it are spread evenly over [0, 1) after the point


class Targets:
    """What the fleet knows about targets; while the store is away, this process goes on with what it saw last."""

    def __init__(
        self,
        store: TargetStore | None,
        policies: Mapping[str, BreakerPolicy],
        *,
        service: str,
        clock: Clock,
        observer: Observer,
        rates: Rates = NO_RATES,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._rates = rates
        self._limited = rates != NO_RATES
        self._counts: dict[str, tuple[float, int]] = {}
        """How many calls started to each target, and since when."""
        self._tails: dict[tuple[str, int], float] = {}
        """When the last deferred call of each target and lane has its turn."""
        self._deferred = 0
        self.calls = EndpointCalls(clock)
        self.store = store
        self._policies = policies
        self._service = service
        self._clock = clock
        self._observe = observer
        self._refresh = refresh_seconds
        self._seen: dict[str, TargetState] = {}
        """Only targets in trouble have a state; times are on this process's clock."""
        self.paused: dict[str, Paused] = {}
        self._changes = 0
        self._newer: dict[str, int] = {}
        """The number of this process's last change of a target, for those changed since the last look at the store."""
        self._fresh_until = float("-inf")
        self._away_until = float("-inf")
        self._offset = ClockOffset()
        self._latency = 0.0
        """The seconds that the store takes for a change, averaged over the last few."""
        self._reading = asyncio.Lock()
        self._changing: dict[str, tuple[asyncio.Lock, int]] = {}
        """For each target that is being changed: its lock, and how many want it."""

    def policy(self, target: str) -> BreakerPolicy:
        """The policy of an endpoint's breaker is its provider's."""
        return self._policies.get(parts_of(target)[0]) or self._policies["*"]

    @property
    def calm(self) -> bool:
        """Whether nothing is known about any target and no rate is configured: then no call needs to ask."""
        return not self._seen and not self._limited

    async def refresh(self) -> None:
        """Read the store if the last look is too old."""
        if self._clock.monotonic() < self._fresh_until or self.store is None:
            return
        async with self._reading:
            if self._clock.monotonic() >= self._fresh_until:
                await self._read(self.store)

    def held(self, target: str) -> Held | None:
        """What holds a call to an endpoint by the last look; None if its breaker may admit the call."""
        state = self._seen.get(target)
        if state is None or state.breaker.state is State.CLOSED:
            return None
        return held_by(target, state.breaker, self.policy(target), self._clock.monotonic())

    def closed(self, target: str) -> bool:
        """Whether calls to an endpoint need no admission, by the last look."""
        state = self._seen.get(target)
        return state is None or state.breaker.state is State.CLOSED

    async def ask(self, target: str) -> Held | Admission:
        """Ask for admission; unless the call is held, the caller records the outcome, as it may be the probe."""
        if self.closed(target):
            return Admission.GO
        policy = self.policy(target)

        def change(state: TargetState, now: float) -> tuple[TargetState, tuple[State, Held | Admission]]:
            breaker, said = asked(target, state.breaker, policy, now)
            return msgspec.structs.replace(state, breaker=breaker), (state.breaker.state, said)

        (before, said), after, _ = await self._change(target, change)
        self._tell(target, before, after.breaker.state)
        return said

    async def record(self, target: str, oks: Sequence[bool]) -> None:
        """Record outcomes of an endpoint, in the order in which they came."""
        if all(oks) and target not in self._seen:
            return
        policy = self.policy(target)

        def change(state: TargetState, now: float) -> tuple[TargetState, tuple[Breaker, float]]:
            breaker = state.breaker
            for ok in oks:
                breaker = record(breaker, policy, ok=ok, now=now)
            return msgspec.structs.replace(state, breaker=breaker), (state.breaker, now)

        (before, now), after, _ = await self._change(target, change)
        breaker = after.breaker
        self._tell(target, before.state, breaker.state)
        provider, endpoint = parts_of(target)
        if breaker.disabled and not before.disabled:
            self._observe(
                EndpointDisabled(
                    provider=provider,
                    endpoint=endpoint or "",
                    failing_seconds=round(now - before.failing_since, 3),
                    failures=breaker.failures,
                )
            )
        elif before.disabled and not breaker.disabled:
            self._observe(EndpointEnabled(provider=provider, endpoint=endpoint or "", by="probe"))

    async def enable(self, target: str, by: str) -> bool:
        """Close the breaker of an endpoint by hand; False if it was closed."""

        def change(state: TargetState, _: float) -> tuple[TargetState, Breaker]:
            return msgspec.structs.replace(state, breaker=_ENABLED), state.breaker

        before, *_ = await self._change(target, change)
        self._tell(target, before.state, State.CLOSED)
        provider, endpoint = parts_of(target)
        if before.disabled:
            self._observe(EndpointEnabled(provider=provider, endpoint=endpoint or "", by=by))
        return before.state is not State.CLOSED

    async def pause(self, target: str, paused: Paused | None) -> Paused | None:
        """Pause a target in the fleet's store; None resumes it. What paused it before; raises LedgerUnavailable."""
        if self.store is None:
            raise LedgerUnavailable("this process shares nothing with others")

        def change(state: TargetState, _: float) -> tuple[TargetState, Paused | None]:
            return msgspec.structs.replace(state, paused=paused), state.paused

        now, after, before = await self.store.change_target(self._service, target, change)
        self._keep(target, after.moved(self._offset.heard(now, self._clock.monotonic())))
        return before

    def failing_since(self, target: str) -> float | None:
        """Since when an endpoint fails, on this process's clock; None if it works."""
        state = self._seen.get(target)
        return None if state is None else state.breaker.failing_since or None

    async def views(self, names: Iterable[str] | None = None) -> dict[str, TargetView]:
        """Targets as the fleet knows them now, with times relative to now; without names, all that are in trouble."""
        self._fresh_until = float("-inf")
        await self.refresh()
        now = self._clock.monotonic()
        found = {name: self._seen.get(name, NEW_TARGET) for name in (self._seen if names is None else names)}
        return {
            name: TargetView(state.moved(-now), self.policy(name), self._rates.limit(name))
            for name, state in found.items()
        }

    def waits(self) -> Counter[tuple[str, str]]:
        """How many targets keep calls waiting by the last look, by reason and provider; tenants are not named."""
        now, found = self._clock.monotonic(), Counter[tuple[str, str]]()
        for name, state in self._seen.items():
            view = TargetView(state.moved(-now), self.policy(name), self._rates.limit(name))
            where = parts_of(name)[0] if has_calls(name) else name.partition("/")[0]
            found.update((held.reason, where) for held in holds(name, view))
        return found

    def paced(self, target: str) -> bool:
        """Whether calls to a target need places, by the settings or by what was learnt."""
        state = self._seen.get(target)
        return (state is not None and state.pace != NO_PACE) or self._rates.limit(target) is not None

    def room(self, target: str) -> int | None:
        """How many calls to a target could start now, by the last look; None is as many as one likes."""
        return room(self._pace(target), self._rates.limit(target), self._clock.monotonic())

    async def places(self, target: str, calls: int) -> list[float]:
        """Take places for at most so many calls: the seconds until each of them starts."""
        now, limit = self._clock.monotonic(), self._rates.limit(target)
        if self.room(target) == 0:
            return []
        if limit_of(self._pace(target), limit, now) is None and first_place(self._pace(target), now) <= now:
            return [0.0] * calls

        def change(state: TargetState, now: float) -> tuple[TargetState, list[float]]:
            pace, starts = reserve(state.pace, limit, calls, now, lead)
            return msgspec.structs.replace(state, pace=pace), starts

        lead = min(max(LEAST_LEAD_SECONDS, 2 * self._latency), MOST_LEAD_SECONDS)
        asked_at = self._clock.monotonic()
        starts, _, shift = await self._change(target, change)
        now = self._clock.monotonic()
        self._latency += (now - asked_at - self._latency) / 4
        # A place that is over when the answer comes is not used: beside those of others it would be one too many.
        left = (at + shift - now for at in starts)
        return [seconds for seconds in left if seconds >= 0.0]

    def turn(self, target: str, lane: int) -> Held:
        """The turn of a call without a place: calls of one lane wait one behind the other."""
        now, pace = self._clock.monotonic(), self._pace(target)
        at = max(first_place(pace, now), self._tails.get((target, lane), now))
        limit = limit_of(pace, self._rates.limit(target), now)
        self._deferred += 1
        if at - now > MOST_DEFERRED_SECONDS:
            at = now + MOST_DEFERRED_SECONDS * (1 + self._deferred * GOLDEN % 1) / 2
        elif limit is not None:
            if len(self._tails) > _MOST_COUNTED:
                self._tails = {key: until for key, until in self._tails.items() if until > now}
            self._tails[target, lane] = at + 1 / (limit * MARGIN)
        # A little before its place, so that the claim is made in time.
        return Held(target, max(0.0, at - now - HORIZON_SECONDS / 2), rate=True)

    def started(self, target: str, calls: int) -> None:
        """Count calls that start now, to know the rate at which a peer complains."""
        now = self._clock.monotonic()
        since, count = self._counts.get(target, (now, 0))
        if now - since > 1.0:
            since, count = now, 0
        if len(self._counts) > _MOST_COUNTED:
            self._counts.clear()
        self._counts[target] = (since, count + calls)

    async def slow(self, target: str, retry_after: float | None, *, too_fast: bool = True) -> None:
        """A peer said that calls come too fast, or only that it wants a pause."""
        limit = self._rates.limit(target)
        observed = float(self._counts.get(target, (0.0, 0))[1]) if too_fast else None

        def change(state: TargetState, now: float) -> tuple[TargetState, tuple[Pace, float]]:
            pace = slowed(state.pace, limit, observed=observed, retry_after=retry_after, now=now)
            return msgspec.structs.replace(state, pace=pace), (state.pace, now)

        (before, now), after, _ = await self._change(target, change)
        if after.pace != before:
            provider, endpoint = parts_of(target)
            self._observe(
                TargetSlowed(
                    provider=provider,
                    endpoint=endpoint,
                    pause_seconds=round(after.pace.not_before - now, 3),
                    per_second=round(after.pace.learnt, 3),
                )
            )

    def _pace(self, target: str) -> Pace:
        state = self._seen.get(target)
        return NO_PACE if state is None else state.pace

    async def _read(self, store: TargetStore) -> None:
        last_change = self._changes
        try:
            if self._clock.monotonic() < self._away_until:
                return
            async with asyncio.timeout(PATIENCE_SECONDS):
                now, states = await store.target_states(self._service)
        except (LedgerUnavailable, TimeoutError) as error:
            self._gone(error)
            return
        shift = self._offset.heard(now, self._clock.monotonic())
        seen = {name: state.moved(shift) for name, state in states.items()}
        # What changed here meanwhile is newer than what was read.
        self._newer = {name: number for name, number in self._newer.items() if number > last_change}
        for name in self._newer:
            seen.pop(name, None)
            if name in self._seen:
                seen[name] = self._seen[name]
        self._seen = seen
        self._note_pauses({name: state.paused for name, state in seen.items() if state.paused is not None})
        pause = self._refresh and max(self._refresh, len(states) / _READ_PER_SECOND)
        self._fresh_until = self._clock.monotonic() + pause
        quiet = [name for name, state in states.items() if state.quiet(now)]
        for name in quiet[:_FORGOTTEN_AT_ONCE]:
            await self._change(name, lambda state, _: (state, None))

    async def _change(self, target: str, change: Change[T]) -> tuple[T, TargetState, float]:
        """The answer, the new state on the store's clock, and how far this process's clock is ahead of the store's."""
        # One change of a target at a time: only other processes are in its way.
        lock, users = self._changing.get(target) or (asyncio.Lock(), 0)
        self._changing[target] = (lock, users + 1)
        try:
            async with lock:
                return await self._change_now(target, change)
        finally:
            users = self._changing[target][1] - 1
            if users:
                self._changing[target] = (lock, users)
            else:
                del self._changing[target]

    async def _change_now(self, target: str, change: Change[T]) -> tuple[T, TargetState, float]:
        if self.store is not None and self._clock.monotonic() >= self._away_until:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    now, after, answer = await self.store.change_target(self._service, target, change)
            except (LedgerUnavailable, TimeoutError) as error:
                self._gone(error)
            else:
                shift = self._offset.heard(now, self._clock.monotonic())
                self._keep(target, after.moved(shift))
                return answer, after, shift
        now = self._clock.monotonic()
        after, answer = changed(self._seen.get(target, NEW_TARGET), now, change)
        self._keep(target, after)
        return answer, after, 0.0

    def _keep(self, target: str, state: TargetState) -> None:
        self._changes += 1
        self._newer[target] = self._changes
        if state.quiet(self._clock.monotonic()):
            self._seen.pop(target, None)
        else:
            self._seen[target] = state
        if state.paused is not None or target in self.paused:
            others = {name: paused for name, paused in self.paused.items() if name != target}
            self._note_pauses(others if state.paused is None else {**others, target: state.paused})

    def _note_pauses(self, paused: dict[str, Paused]) -> None:
        """Take over what is paused now; the log of every process says what began and what ended."""
        for name in self.paused.keys() - paused.keys():
            self._observe(CallsResumed(what=self.paused[name].what))
        for name, one in paused.items():
            if self.paused.get(name) != one:
                self._observe(CallsPaused(what=one.what, by=one.by, reason=one.reason))
        self.paused = paused

    def _gone(self, error: Exception) -> None:
        self._observe(Trouble(where="targets", error=str(error) or "no answer in time"))
        self._away_until = self._fresh_until = self._clock.monotonic() + AWAY_SECONDS

    def _tell(self, target: str, before: State, after: State) -> None:
        if before is not after:
            provider, endpoint = parts_of(target)
            self._observe(BreakerChanged(provider=provider, before=before, after=after, endpoint=endpoint))
