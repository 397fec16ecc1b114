"""Questions to providers whose breaker is open: an answer lets a message probe them before their time is up."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from carillon.domain.breaker import State
from carillon.domain.events import ProviderProbed, Trouble
from carillon.domain.ports import Breakers, Clock, Observer, Probed, Provider

PATIENCE_SECONDS = 10.0


class Healable(Breakers, Protocol):
    """Breakers that believe an answer which carried no message."""

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each, as the whole fleet sees it; takes no probe right."""
        ...

    async def recovered(self, provider: str) -> None:
        """Let an open breaker be probed now; closes nothing."""
        ...


class Probing:
    """Asks each open provider every so often; never sends anybody's message."""

    def __init__(
        self,
        *,
        providers: Mapping[str, Provider],
        names: Collection[str],
        breakers: Healable,
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
        self._look = min(look_seconds, every_seconds / 10)
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Look after the breakers for as long as the process lives."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a provider's bug must not end the questions to the others
                self._observe(Trouble(where="probing", error=f"{type(error).__name__}: {error}"))
            await self._clock.sleep(self._look)

    async def look(self) -> None:
        """Ask whoever is open and was not asked within the interval."""
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
