"""How calls to endpoints went lately: counted in this process, and shared with the fleet beside its targets."""

from collections.abc import Mapping, Sequence

import msgspec

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer
from carillon.domain.targets import CALLS_SECONDS, EndpointHealth, TargetState, TargetStore

WINDOW_SECONDS = 600.0
"""Counts are of this window and the one before it: ten to twenty minutes."""
EVERY_SECONDS = 5.0
_MOST_COUNTED = 10_000
_MOST_SHARED = 500
"""A process shares those that it called last: its row stays small."""
_NONE = EndpointHealth()


class EndpointCalls:
    """Counts calls by target; it runs in every call to an endpoint, so it is fast and never raises."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0
        self._now: dict[str, EndpointHealth] = {}
        self._before: dict[str, EndpointHealth] = {}

    def add(self, target: str, oks: Sequence[bool], took_ms: float) -> None:
        """Count calls to one target that ended now."""
        at, good = self._turned(), sum(oks)
        if target not in self._now and len(self._now) >= _MOST_COUNTED:
            return
        ended = EndpointHealth(
            calls=len(oks),
            failures=len(oks) - good,
            total_ms=took_ms * len(oks),
            slowest_ms=took_ms,
            ok_at=at if good else 0.0,
            failed_at=at if good < len(oks) else 0.0,
        )
        self._now[target] = self._now.get(target, _NONE).plus(ended)

    def lately(self) -> dict[str, EndpointHealth]:
        """What this process called last, at most `_MOST_SHARED` of them."""
        self._turned()
        found = {
            name: self._before.get(name, _NONE).plus(self._now.get(name, _NONE))
            for name in self._before.keys() | self._now.keys()
        }
        newest = sorted(found, key=lambda name: (-found[name].ended_at, name))[:_MOST_SHARED]
        return {name: found[name] for name in newest}

    def _turned(self) -> float:
        """The time; an old window is forgotten."""
        at = self._clock.wall()
        if at - self._began >= WINDOW_SECONDS:
            self._before = self._now if at - self._began < 2 * WINDOW_SECONDS else {}
            self._now, self._began = {}, at
        return at


class SharedCalls:
    """One row a process in the store of targets, under a name of its own: no call reads it, only the console does."""

    def __init__(
        self, own: EndpointCalls, store: TargetStore, *, service: str, process: str, clock: Clock, observer: Observer
    ) -> None:
        self._own = own
        self._store = store
        self._service = f"{service}/calls"
        self._process = process
        self._clock = clock
        self._observe = observer
        self._shared: dict[str, EndpointHealth] = {}

    async def run(self) -> None:
        """Share what changed, again and again."""
        await self.forget()
        while True:
            await self.share()
            await self._clock.sleep(EVERY_SECONDS)

    async def share(self) -> None:
        """Write this process's row if it says something new."""
        found = self._own.lately()
        if found == self._shared:
            return

        def change(state: TargetState, _: float) -> tuple[TargetState, None]:
            return msgspec.structs.replace(state, calls=found), None

        try:
            await self._store.change_target(self._service, self._process, change)
        except LedgerUnavailable as error:
            self._observe(Trouble(where="endpoint_calls", error=str(error)))
        else:
            self._shared = found

    async def everywhere(self) -> dict[str, EndpointHealth]:
        """What the fleet called lately, this process as it is now; raises LedgerUnavailable."""
        now, rows = await self._store.target_states(self._service)
        found: dict[str, EndpointHealth] = dict(self._own.lately())
        for process, state in rows.items():
            if process != self._process and now - state.touched < CALLS_SECONDS:
                _merge(found, state.calls or {})
        return found

    async def forget(self) -> None:
        """Remove the rows of processes that ended long ago."""
        try:
            now, rows = await self._store.target_states(self._service)
            for process in [name for name, state in rows.items() if state.quiet(now)]:
                await self._store.change_target(self._service, process, lambda state, _: (state, None))
        except LedgerUnavailable as error:
            self._observe(Trouble(where="endpoint_calls", error=str(error)))


def _merge(found: dict[str, EndpointHealth], more: Mapping[str, EndpointHealth]) -> None:
    for name, health in more.items():
        found[name] = found.get(name, _NONE).plus(health)
