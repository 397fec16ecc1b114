"""One running process: its parts are opened in order, supervised, and closed in the opposite order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from carillon.compose import (
    administration,
    alerting,
    chores,
    consuming,
    health_of,
    kafka_door,
    parts,
    picker,
    receipts,
    surface,
    trust,
)
from carillon.compose import live as sse
from carillon.compose import synchronous as immediate
from carillon.compose.deadline import Deadline
from carillon.compose.parts import open_ledger
from carillon.compose.process import Process
from carillon.compose.supervising import supervise
from carillon.compose.telemetry import Telemetry
from carillon.compose.wording import Wording
from carillon.compose.work import claim_on_accept, rehome
from carillon.compose.work import worker as built_worker
from carillon.config.settings import Settings
from carillon.domain.events import PartStarted, PartStopped
from carillon.domain.ports import Backlog, Breakers, ClaimOnAccept, Provider, Signal
from carillon.ending import ended
from carillon.intake.accept import Intake
from carillon.ledger.opening import Ledger
from carillon.outbound.breakers.memory import MemoryBreakers
from carillon.outbound.breakers.probe import RecoverableBreakers
from carillon.outbound.synchronous import SynchronousDelivery
from carillon.outbound.watchdog import Watchdog
from carillon.outbound.worker import Worker
from carillon.providers import Tools
from carillon.system import SystemClock, new_id, system_dice
from carillon.upkeep import health
from carillon.upkeep.alerts import Relay
from carillon.upkeep.logs.sink import LoggerSink
from carillon.web import NoServer, ProbeServer, Server

if TYPE_CHECKING:
    from carillon.compose.fleet import Fleet
    from carillon.compose.redis_stream import Streams
    from carillon.web.stream_server import StreamServer


class Role(StrEnum):
    """What a process does; all three by default."""

    DOORS = "doors"
    OUTBOUND = "outbound"
    UPKEEP = "upkeep"


class Opened(NamedTuple):
    """The parts of a running process."""

    ledger: Ledger
    streams: "Streams | None"
    tools: Tools
    providers: dict[str, Provider]
    breakers: RecoverableBreakers
    worker: Worker | None
    wording: Wording
    intake: Intake
    synchronous: SynchronousDelivery | None
    live: sse.LiveStreams | None = None


class Program:
    """A composed Carillon process."""

    def __init__(
        self, settings: Settings, roles: frozenset[Role], *, share_port: bool = False, embedded: bool = False
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._reads = Role.DOORS in roles
        self._share_port = share_port
        self._clock = SystemClock()
        self._embedded = embedded
        """A guest in somebody's program: it has no listener, ends no process and speaks into the host's log."""
        self._observe = Telemetry(settings, LoggerSink() if embedded else None)
        self._tasks: list[asyncio.Task[None]] = []
        self._chains = parts.chains(settings)
        self._lanes = parts.lanes(settings)
        self._owner = picker.owner(settings)
        self._process = Process(settings, self._chains, self._clock, self._observe, self._owner)
        self._readiness = health.Readiness()
        self._fleet: Fleet | None = None
        self.surface = settings.http.surface
        """What is served: everything, or the probes alone."""
        self.opened: Opened | None = None
        """The parts, for whoever runs them inside a program of their own."""

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Open everything, say so, work until told to stop, drain, close."""
        trust.refuse_open_door(self._settings)
        async with AsyncExitStack() as stack:
            opened = self.opened = await self._open(stack)
            relay = alerting.relay(self._process, opened.ledger, opened.tools.http, stack)
            server = self._server(opened)
            await server.start()
            stack.push_async_callback(self._end_tasks)
            self._start_upkeep(opened.ledger, relay)
            self._tasks += [asyncio.create_task(self._supervise(*one)) for one in sse.loops(opened.live, self._observe)]
            self._start_probing(opened)
            working = await self._start_work(opened)
            reading = self._start_door(opened)
            brokers = consuming.start(self._process, opened, self._supervise, self._observe, wanted=self._reads)
            self._readiness.ready = True
            ready(f"http://{self._settings.http.host}:{server.port}")
            await stop.wait()
            self._readiness.ready = False
            deadline = Deadline(self._clock, self._settings.work.drain_seconds, opened.ledger)
            if opened.worker is not None:
                opened.worker.stop_claiming(self._settings.work.drain_seconds)
            sse.close(opened.live)
            await server.stop(deadline.left())
            await self._stop_door(opened.streams, reading, deadline.left())
            await brokers.stop(deadline.left())
            await opened.intake.drain()
            if opened.synchronous is not None:
                await opened.synchronous.drain(deadline.left())
            await self._stop_work(opened.worker, working)

    async def _open(self, stack: AsyncExitStack) -> Opened:
        streams = await self._streams(stack)
        ledger = await open_ledger(self._settings)
        stack.push_async_callback(ledger.aclose)
        await ledger.migrate()
        breakers = self._breakers(ledger, stack)
        live = sse.open_live(self._process, ledger, stack, alone=not self._share_port)
        tools = self._tools(streams, live)
        stack.push_async_callback(tools.http.aclose)
        providers = parts.providers(self._settings, self._process.used, tools)
        for provider in providers.values():
            stack.push_async_callback(provider.aclose)
        worker = None
        if Role.OUTBOUND in self._roles:
            backlog = ledger if streams is None else streams.leased(ledger, stack)
            worker = self._worker(backlog, ledger.signal, providers, breakers)
        wording = Wording(self._settings, ledger, self._clock)
        await wording.refuse_gaps()
        intake = self._intake(ledger, wording, claim_on_accept(self._settings, worker, ledger, self._owner))
        waited = immediate.synchronous(
            self._process, stack, intake=intake, ledger=ledger, providers=providers, breakers=breakers
        )
        return Opened(ledger, streams, tools, providers, breakers, worker, wording, intake, waited, live)

    async def _start_work(self, opened: Opened) -> "asyncio.Task[None] | None":
        if opened.worker is None:
            return None
        await rehome(self._process, opened.ledger, self._lanes)
        for channel, chain in self._chains.items():
            self._tell_started(f"{channel}_publisher", " → ".join(chain))
        return asyncio.create_task(self._supervise("worker", opened.worker.run))

    async def _stop_work(self, worker: Worker | None, working: "asyncio.Task[None] | None") -> None:
        if worker is None or working is None:
            return
        worker.stop()
        await working
        for channel in self._chains:
            self._tell_stopped(f"{channel}_publisher")

    async def _streams(self, stack: AsyncExitStack) -> "Streams | None":
        if self._settings.stream is None:
            return None
        from carillon.compose.redis_stream import Streams  # noqa: PLC0415 - see its first line

        streams = Streams(self._settings, self._clock, self._observe, f"{self._owner}/{new_id()}")
        await streams.open(stack)
        self._tell_started("redis_client", self._settings.redis.address)
        return streams

    def _tools(self, streams: "Streams | None", live: sse.LiveStreams | None) -> Tools:
        if streams is None:
            return parts.tools(self._settings, self._clock, system_dice, live=sse.seats(live))
        return parts.tools(
            self._settings, self._clock, system_dice, redis=streams.redis, encoders=streams.wire.encoders
        )

    def _start_door(self, opened: Opened) -> "asyncio.Task[None] | None":
        ledger, streams = opened.ledger, opened.streams
        if streams is None or not self._reads:
            return None
        rules = parts.plan_rules(self._settings, self._chains)
        door = streams.open_door(ledger, ledger.signal, rules, opened.tools.http)
        if self._settings.directory is not None:
            self._tell_started("directory_client", self._settings.directory.url)
        self._tell_started("intent_consumer", self._settings.stream.name if self._settings.stream else None)
        self._observe.metrics.watch_stream(door.oldest_unprocessed_age_ms, asyncio.get_running_loop())
        return asyncio.create_task(self._supervise("door", door.run))

    async def _stop_door(self, streams: "Streams | None", reading: "asyncio.Task[None] | None", seconds: float) -> None:
        if streams is None or streams.door is None or reading is None:
            return
        streams.door.stop()
        await asyncio.wait({reading}, timeout=seconds)
        await ended(reading)
        await streams.door.aclose()
        self._tell_stopped("intent_consumer")

    def _tell_started(self, part: str, detail: str | None = None) -> None:
        # Where there is an API to ask, the log need not say it.
        if self._settings.http.surface == "probes":
            self._observe(PartStarted(part=part, detail=detail))

    def _tell_stopped(self, part: str) -> None:
        if self._settings.http.surface == "probes":
            self._observe(PartStopped(part=part))

    def _breakers(self, ledger: Ledger, stack: AsyncExitStack) -> RecoverableBreakers:
        own = MemoryBreakers(parts.breaker_policies(self._settings), self._clock, self._observe)
        if self._settings.redis.url is not None:
            from carillon.compose.fleet import Fleet  # noqa: PLC0415 - see its first line

            self._fleet = Fleet(self._settings.redis.url)
            stack.push_async_callback(self._fleet.aclose)
            return self._fleet.breakers(self._settings, own, self._clock, self._observe)
        return health_of.shared_breakers(self._process, ledger, own)

    def _intake(self, ledger: Ledger, wording: Wording, claim_on_accept: ClaimOnAccept | None) -> Intake:
        return Intake(
            ledger=ledger,
            templates=wording.templates,
            acquaint=wording.acquaint,
            signal=ledger.signal,
            rules=parts.plan_rules(self._settings, self._chains),
            observer=self._observe,
            ids=new_id,
            claim_on_accept=claim_on_accept,
        )

    def _worker(self, backlog: Backlog, signal: Signal, providers: dict[str, Provider], breakers: Breakers) -> Worker:
        return built_worker(
            self._settings,
            backlog=backlog,
            signal=signal,
            providers=providers,
            breakers=breakers,
            chains=self._chains,
            clock=self._clock,
            observer=self._observe,
            owner=self._owner,
        )

    def _start_upkeep(self, ledger: Ledger, relay: Relay | None) -> None:
        if relay is not None:
            self._observe.also(relay)
        self._observe.metrics.watch(ledger, asyncio.get_running_loop())
        if not self._embedded:
            self._tasks.append(asyncio.create_task(Watchdog(2 * self._settings.ledger.lease_seconds).run()))
        if Role.UPKEEP in self._roles:
            self._tell_started("retention_worker")
            for name, loop in chores.loops(self._process, ledger, relay).items():
                self._tasks.append(asyncio.create_task(self._supervise(name, loop)))

    def _start_probing(self, opened: Opened) -> None:
        probing = health_of.probing(self._process, opened.providers, opened.breakers)
        if probing is not None and Role.OUTBOUND in self._roles:
            self._tasks.append(asyncio.create_task(self._supervise("probing", probing.run)))

    def _server(self, opened: Opened) -> "Server | ProbeServer | NoServer | StreamServer":
        if self._embedded:
            return NoServer()
        where = surface.server_settings(self._settings, share_port=self._share_port)
        if self._settings.http.surface == "probes":
            return ProbeServer(health.probes(self._readiness), where, self._observe)
        endpoints = []
        if self._reads:
            endpoints = surface.doors(self._process, opened)
            endpoints += kafka_door.endpoints(self._process, opened)
            endpoints += opened.wording.endpoints()
            endpoints += receipts.endpoints(self._process, opened.ledger)
            endpoints += administration.endpoints(self._process, opened, self._observe.series)
        checks = surface.checks(opened.ledger, opened.breakers, opened.worker, opened.streams or self._fleet)
        live = opened.live if self._reads else None
        endpoints += sse.endpoints(live, checks)
        web = trust.web_settings(self._settings, opened.ledger, sse.tickets(live), self._observe)
        application = surface.application(endpoints, self._readiness, checks, web)
        return Server(application, where) if live is None else live.server(application, where)

    async def _supervise(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        await supervise(name, loop, self._observe)

    async def _end_tasks(self) -> None:
        await ended(*self._tasks)
        await self._observe.end()
