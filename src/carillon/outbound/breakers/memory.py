"""Breakers in the memory of this process, and no breakers at all."""

from collections.abc import Collection, Mapping

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
)
from carillon.domain.events import BreakerChanged
from carillon.domain.ports import Clock, Observer


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


_NEW = Breaker()


class NoBreakers:
    """Satisfies Breakers for list queues, which have retries only: it admits every call."""

    async def admit(self, provider: str) -> Admission:  # noqa: ARG002 - the same for every provider
        return Admission.GO

    async def record(self, provider: str, *, ok: bool) -> None:
        """Remember nothing."""

    async def states(self) -> dict[str, State]:
        return {}
