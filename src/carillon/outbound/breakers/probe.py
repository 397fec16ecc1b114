"""Health checks of providers whose breaker is open: a healthy one goes half-open before its open time is over."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from carillon.domain.breaker import BreakerView, State
from carillon.domain.events import ProviderProbed, Trouble
from carillon.domain.ports import Breakers, Clock, Observer, Probed, Provider

PATIENCE_SECONDS = 10.0


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
