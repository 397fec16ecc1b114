"""One running process over a list of parts: opened in order, supervised, watched, and stopped in the opposite order."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

from carillon.compose import access
from carillon.compose.blueprints import parts_of
from carillon.compose.listener import Listener
from carillon.compose.part import LAST_LOOK_SECONDS, Loop, Part, PartEnd, Role
from carillon.compose.process import Process, process_of
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError, ServerUnavailable
from carillon.domain.events import Event, Trouble
from carillon.domain.ports import Clock, Observer
from carillon.ending import ended
from carillon.outbound.shutdown import Deadline
from carillon.system import SystemClock, Watchdog
from carillon.upkeep import health
from carillon.upkeep.console.series import Series
from carillon.upkeep.health import Checks
from carillon.upkeep.logs import lines as logs
from carillon.upkeep.logs.sink import LoggerSink, LogSink
from carillon.upkeep.metrics.meters import Metrics
from carillon.upkeep.metrics.otlp import (
    Traces,
    configure_metrics,
    configure_traces,
    refuse_unknown_exporters,
    shut_down,
)
from carillon.upkeep.metrics.queues import QUEUES, QueueMetrics
from carillon.web.application import Application

END_SECONDS = 2.0
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
START_WAIT, LONGEST_SILENCE = 0.5, 60.0
"""While a start waits for a server it tries every half second, and logs that at growing intervals."""
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 5.0, 1.0
"""The pause between two health checks of the dependencies: while all answer, and while one is away."""
P = TypeVar("P", bound=Part)


class Telemetry:
    """Sends every event of a process to its logs, metrics, series and traces."""

    def __init__(self, settings: Settings, clock: Clock, sink: LogSink | None = None) -> None:
        if sink is None:
            # The variables of a host program are about the host's own exporters too.
            refuse_unknown_exporters()
        self._meters = configure_metrics(stdout=settings.metrics.stdout, otlp=True, service=settings.service)
        self._tracers = configure_traces(stdout=settings.traces.stdout, service=settings.service)
        named, only = settings.metrics.instruments, settings.metrics.only
        self.metrics = Metrics(table={name: one for name, one in named.items() if name not in QUEUES}, only=only)
        lines = logs.log_observer(sink, sentences=settings.log.sentences, name_people=settings.log.name_people)
        self.series = Series(clock)
        observers: list[Observer] = [lines, self.series]
        # Without the SDK nothing exports metrics, and counting is a tenth of the cost; a host may load the SDK later.
        if sink is not None or "opentelemetry.sdk.metrics" in sys.modules:
            observers.append(self.metrics)
        if settings.queue or settings.push:
            observers.append(QueueMetrics(table={name: named[name] for name in QUEUES.keys() & named}, only=only))
        self._observers: list[Observer] = observers if self._tracers is None else [Traces(self._tracers, observers)]

    def __call__(self, event: Event) -> None:
        """Hand the event to every observer."""
        for observer in self._observers:
            observer(event)

    def also(self, observer: Observer) -> None:
        """Add an observer of every later event."""
        self._observers.append(observer)

    async def end(self) -> None:
        """Export the last metrics and spans."""
        await shut_down([one for one in (self._meters, self._tracers) if one is not None], END_SECONDS)


Parts = Callable[[Process], Sequence[Part]]


class Program:
    """A composed Carillon process; roles, supervision, health, gauges and the deadline are the same for every part."""

    def __init__(
        self,
        settings: Settings,
        roles: frozenset[Role] = frozenset(Role),
        *,
        services: frozenset[str] = frozenset(),
        share_port: bool = False,
        embedded: bool = False,
        parts: Parts = parts_of,
        clock: Clock | None = None,
    ) -> None:
        access.refuse_open_door(settings)
        self._settings = settings
        self._roles = roles
        self._clock = SystemClock() if clock is None else clock
        self._observe = Telemetry(settings, self._clock, LoggerSink() if embedded else None)
        more = {"services": services, "share_port": share_port, "embedded": embedded, "clock": self._clock}
        self._process = process_of(settings, self._observe, **more)
        self._parts = [part for part in parts(self._process) if part.role is None or part.role in roles]
        self._readiness = health.Readiness()
        self._loops: dict[Part, dict[str, asyncio.Task[None]]] = {}
        self._own = Part()
        """Holds the loops of the program itself."""
        self._stopping = asyncio.Event()
        for part in self._parts:
            part.refuse()

    def part(self, kind: type[P]) -> P:
        """The part of this kind."""
        for part in self._parts:
            if isinstance(part, kind):
                return part
        raise CarillonError(f"this process has no {kind.__name__}")

    def api(self, actor: str) -> Application:
        """The endpoints of every part for a program that embeds this one; `actor` is its name in the audit trail."""
        return self.part(Listener).within(self._parts, actor)

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Open every part, report ready, work until told to stop, stop every part, close."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._observe.end)
            for part in self._parts:
                if not await self._open(part, stack, stop):
                    return
            checks = await self._serve()
            stack.push_async_callback(self._end_loops)
            self._start(checks)
            if await self._begun(stop):
                self._readiness.ready = True
                ready(self.part(Listener).address)
                await stop.wait()
            self._readiness.ready = False
            await self._stop()

    async def _open(self, part: Part, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        """Open a part, waiting for a server that is away; False when told to stop meanwhile."""
        began = told_at = self._clock.monotonic()
        silence = 0.0
        while not stop.is_set():
            async with AsyncExitStack() as attempt:
                try:
                    await part.open(attempt)
                except ServerUnavailable as error:
                    now = self._clock.monotonic()
                    if self._process.embedded or self._waited_enough(now - began):
                        raise
                    if now - told_at >= silence:
                        self._observe(Trouble(where="start", error=str(error), retry_in_seconds=START_WAIT))
                        told_at, silence = now, min(max(1.0, 2 * silence), LONGEST_SILENCE)
                else:
                    stack.push_async_exit(attempt.pop_all())
                    return True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), START_WAIT)
        return False

    def _waited_enough(self, seconds: float) -> bool:
        most = self._settings.work.start_seconds
        return most > 0.0 and seconds >= most

    async def _serve(self) -> Checks:
        for part in self._parts:
            for observer in part.observers():
                self._observe.also(observer)
            part.gauges(self._observe.metrics)
        doors = Role.DOORS in self._roles
        return await self.part(Listener).start(self._parts, self._readiness, self._observe.series, doors=doors)

    def _start(self, checks: Checks) -> None:
        own: dict[str, Loop] = {"health": lambda: self._watch(checks)}
        if not self._process.embedded:
            own["watchdog"] = Watchdog(2 * self._settings.ledger.lease_seconds).run
        for part, loops in [(self._own, own), *((part, part.run()) for part in self._parts)]:
            self._loops[part] = {
                name: asyncio.create_task(supervise(name, loop, self._observe)) for name, loop in loops.items()
            }

    async def _begun(self, stop: asyncio.Event) -> bool:
        """Whether every part works; False when told to stop meanwhile."""

        async def begin() -> None:
            for part in self._parts:
                await part.begun()

        beginning, told = asyncio.create_task(begin()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([beginning, told], return_when=asyncio.FIRST_COMPLETED)
            return beginning.done() and not stop.is_set()
        finally:
            await ended(beginning, told)

    async def _watch(self, checks: Checks) -> None:
        """Check the dependencies in the background, so that /readyz answers without asking a server."""
        while not self._stopping.is_set():
            found = await health.examine(checks.needed)
            self._readiness.away = health.away(found)
            with suppress(TimeoutError):
                pause = LOOK_AGAIN_SECONDS if self._readiness.away else LOOK_SECONDS
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _stop(self) -> None:
        seconds = self._settings.work.drain_seconds
        deadline = Deadline(self._clock, seconds, self._cut_off)
        for part in self._parts:
            part.rest(seconds)
        # Let a health check under way end: clients of brokers warn about a cancelled call.
        self._stopping.set()
        await asyncio.wait({self._loops[self._own]["health"]}, timeout=LAST_LOOK_SECONDS)
        for part in reversed(self._parts):
            await part.stop(PartEnd(deadline, self._loops[part]))
        self._observe.metrics.stop_watching()

    def _cut_off(self) -> None:
        for part in self._parts:
            part.cut_off()

    async def _end_loops(self) -> None:
        await ended(*(task for loops in self._loops.values() for task in loops.values()))


async def supervise(name: str, loop: Loop, observe: Observer) -> None:
    """Run a loop until it returns; start it again when it fails, so that a bug in one loop does not end the process."""
    wait = FIRST_WAIT
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - as said
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}", retry_in_seconds=wait))
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
        else:
            return
