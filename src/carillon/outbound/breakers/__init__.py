"""Breakers in the memory of this process, admission of calls, and the health checks that make an open one half-open."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from carillon.domain.breaker import (
    Admission,
    Breaker,
    BreakerPolicy,
    BreakerView,
    State,
    admit,
    effective,
    from_now,
    record,
    recover,
    trip,
)
from carillon.domain.events import BreakerChanged, ProviderProbed, Trouble
from carillon.domain.ports import Breakers, Clock, Observer, Probed, Provider

POLL_SECONDS = 0.1
_NEW = Breaker()
PATIENCE_SECONDS = 10.0


async def admitted(breakers: Breakers, name: str, clock: Clock, patience_seconds: float) -> Admission:
    """The breaker's answer; unless it is STOP, the caller records its outcome. Does not wait for an open one."""
    ends_at = clock.monotonic() + patience_seconds
    while (said := await breakers.admit(name)) is Admission.STOP:
        # Only an open breaker refuses. A breaker that has closed meanwhile is asked again and admits the call.
        if clock.monotonic() >= ends_at or (await breakers.states()).get(name) is State.OPEN:
            break
        await clock.sleep(POLL_SECONDS)
    return said


class MemoryBreakers:
    """One breaker per provider, as this process sees it."""

    def __init__(self, policies: Mapping[str, BreakerPolicy], clock: Clock, observer: Observer) -> None:
        self._policies = policies
        self._clock = clock
        self._observe = observer
        self._breakers: dict[str, Breaker] = {}

    async def admit(self, provider: str) -> Admission:
        before = self._breakers.get(provider)
        if before is None or before.state is State.CLOSED:
            return Admission.GO
        after, admission = admit(before, self._policy(provider), self._clock.monotonic())
        self._keep(provider, before, after)
        return admission

    async def record(self, provider: str, *, ok: bool) -> None:
        before = self._breakers.get(provider, _NEW)
        if ok and before is _NEW:
            return
        after = record(before, self._policy(provider), ok=ok, now=self._clock.monotonic())
        self._keep(provider, before, after)

    async def trip(self, provider: str) -> None:
        before = self._breakers.get(provider, _NEW)
        self._keep(provider, before, trip(before, self._clock.monotonic()))

    async def states(self) -> dict[str, State]:
        now = self._clock.monotonic()
        return {name: effective(breaker, self._policy(name), now) for name, breaker in self._breakers.items()}

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each; a provider without a record is closed."""
        states = await self.states()
        return {provider: states.get(provider, State.CLOSED) for provider in providers}

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The whole breaker of each; one that was never asked about is new."""
        now = self._clock.monotonic()
        return {
            provider: BreakerView(from_now(self._breakers.get(provider, _NEW), now), self._policy(provider))
            for provider in providers
        }

    async def recovered(self, provider: str) -> None:
        """Make an open breaker half-open: the provider passed a health check."""
        before = self._breakers.get(provider)
        if before is not None:
            self._keep(provider, before, recover(before))

    def _policy(self, provider: str) -> BreakerPolicy:
        return self._policies.get(provider) or self._policies["*"]

    def _keep(self, provider: str, before: Breaker, after: Breaker) -> None:
        self._breakers[provider] = after
        if before.state is not after.state:
            self._observe(BreakerChanged(provider=provider, before=before.state, after=after.state))


class NoBreakers:
    """Satisfies Breakers for list queues, which have retries only: it admits every call."""

    async def admit(self, provider: str) -> Admission:  # noqa: ARG002 - the same for every provider
        return Admission.GO

    async def record(self, provider: str, *, ok: bool) -> None:
        """Remember nothing."""

    async def trip(self, provider: str) -> None:
        """Open nothing."""

    async def states(self) -> dict[str, State]:
        return {}


class RecoverableBreakers(Breakers, Protocol):
    """Breakers that a health check can make half-open."""

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each, as the whole fleet sees it; uses up no probe."""
        ...

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The whole breaker of each, its times counted from now; takes no probe right."""
        ...

    async def recovered(self, provider: str) -> None:
        """Make an open breaker half-open; never closes one."""
        ...


class BreakerProbe:
    """Checks each provider with an open breaker at an interval; never sends a message."""

    def __init__(
        self,
        *,
        providers: Mapping[str, Provider],
        names: Collection[str],
        breakers: RecoverableBreakers,
        clock: Clock,
        observer: Observer,
        every_seconds: float,
        look_seconds: float = 1.0,
    ) -> None:
        self._probed = {name: provider for name, provider in providers.items() if isinstance(provider, Probed)}
        self._names = [name for name in names if name in self._probed]
        self._breakers = breakers
        self._clock = clock
        self._observe = observer
        self._every = every_seconds
        self._sleep = min(look_seconds, every_seconds / 10)
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            try:
                await self.check()
            except Exception as error:  # noqa: BLE001 - a provider's bug must not end the checks of the others
                self._observe(Trouble(where="probing", error=f"{type(error).__name__}: {error}"))
            await self._clock.sleep(self._sleep)

    async def check(self) -> None:
        """Check each open provider that was not checked within the interval."""
        states = await self._breakers.states()
        now = self._clock.monotonic()
        due = []
        for name in self._names:
            if states.get(name) is not State.OPEN:
                self._next.pop(name, None)
            elif now >= self._next.setdefault(name, now + self._every):
                self._next[name] = now + self._every
                due.append(name)
        await asyncio.gather(*(self._ask(name) for name in due))

    async def _ask(self, name: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                wrong = await self._probed[name].probe()
        except TimeoutError:
            wrong = "no answer in time"
        self._observe(ProviderProbed(provider=name, error=wrong))
        if wrong is None:
            await self._breakers.recovered(name)
