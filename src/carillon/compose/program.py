"""One running process: its parts are opened in order, supervised, and closed in the opposite order."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from carillon import __version__
from carillon.compose import parts
from carillon.compose.parts import open_ledger
from carillon.domain.breaker import State
from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Event, Rehomed, Trouble
from carillon.domain.ports import Breakers, Observer, Provider
from carillon.doors import http as http_door
from carillon.intake.accept import Intake
from carillon.ledger.opening import Ledger
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settling import Settling
from carillon.outbound.watchdog import Watchdog
from carillon.outbound.worker import Worker, WorkerRules
from carillon.providers.sandbox import Drill, Sandbox
from carillon.settings import Settings
from carillon.system import SystemClock, new_id, system_dice
from carillon.upkeep import api, health, logs, sandbox
from carillon.upkeep.health import Check
from carillon.upkeep.metrics import Metrics, configure_metrics
from carillon.upkeep.retention import Retention, RetentionSettings
from carillon.web import Endpoint, JwtSettings, Server, ServerSettings, WebSettings, app
from carillon.web.application import ASGI
from carillon.web.limits import is_loopback

if TYPE_CHECKING:
    from carillon.compose.fleet import Fleet

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


class Role(StrEnum):
    """What a process does; all three by default."""

    DOORS = "doors"
    OUTBOUND = "outbound"
    UPKEEP = "upkeep"


class Program:
    """A composed Carillon process."""

    def __init__(self, settings: Settings, roles: frozenset[Role], *, share_port: bool = False) -> None:
        self._settings = settings
        self._roles = roles
        self._share_port = share_port
        self._clock = SystemClock()
        self._meters = configure_metrics(stdout=settings.metrics.stdout, otlp=True, service=settings.service)
        self._metrics = Metrics()
        self._observers: list[Observer] = [logs.log_observer(), self._metrics]
        self._tasks: list[asyncio.Task[None]] = []
        self._chains = parts.chains(settings)
        self._lanes = parts.lanes(settings)
        self._policies = parts.policies(settings)
        self._readiness = health.Readiness()
        self._fleet: Fleet | None = None

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Open everything, say so, work until told to stop, drain, close."""
        self._refuse_open_door()
        async with AsyncExitStack() as stack:
            ledger = await open_ledger(self._settings)
            stack.push_async_callback(ledger.aclose)
            await ledger.migrate()
            breakers = self._breakers(stack)
            tools = parts.tools(self._settings, self._clock, system_dice)
            stack.push_async_callback(tools.http.aclose)
            used = {name for chain in self._chains.values() for name in chain}
            providers = parts.providers(self._settings, used, tools)
            for provider in providers.values():
                stack.push_async_callback(provider.aclose)
            worker = self._worker(ledger, providers, breakers) if Role.OUTBOUND in self._roles else None
            intake = self._intake(ledger)
            checks = self._checks(ledger, breakers, worker)
            server = Server(self._app(intake, ledger, providers, checks), self._server_settings())
            await server.start()
            stack.push_async_callback(self._end_tasks)
            self._start_upkeep(ledger)
            if worker is not None:
                await self._rehome(ledger)
            working = asyncio.create_task(self._supervise("worker", worker.run)) if worker else None
            self._readiness.ready = True
            ready(f"http://{self._settings.http.host}:{server.port}")
            await stop.wait()
            self._readiness.ready = False
            await server.stop(self._settings.work.drain_seconds)
            await intake.drain()
            if worker is not None and working is not None:
                worker.stop()
                await working

    async def _rehome(self, ledger: Ledger) -> None:
        """What waits for a provider or lane that the settings no longer have would wait for ever."""
        ranks = [lane.rank for lane in self._lanes.ordered()]
        for channel, chain in self._chains.items():
            moved = await ledger.rehome(channel, chain, ranks, self._lanes.by_name["standard"].rank)
            if moved:
                self._observe(Rehomed(channel=channel, routes=moved, provider=chain[0]))

    def _observe(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    def _refuse_open_door(self) -> None:
        if self._settings.auth.secret is None and not is_loopback(self._settings.http.host):
            raise ConfigurationError(
                "auth.secret (JWT_SECRET_KEY): without it only loopback is served; "
                f"set it or listen on 127.0.0.1 instead of {self._settings.http.host}"
            )

    def _breakers(self, stack: AsyncExitStack) -> Breakers:
        policies = parts.breaker_policies(self._settings)
        own = MemoryBreakers(policies, self._clock, self._observe)
        if self._settings.redis.url is None:
            return own
        from carillon.compose.fleet import Fleet  # noqa: PLC0415 - see its first line

        self._fleet = Fleet(self._settings.redis.url)
        stack.push_async_callback(self._fleet.aclose)
        return self._fleet.breakers(self._settings, own, self._clock, self._observe)

    def _intake(self, ledger: Ledger) -> Intake:
        return Intake(
            ledger=ledger,
            templates=parts.templates(self._settings),
            signal=ledger.signal,
            rules=parts.plan_rules(self._settings, self._chains),
            observer=self._observe,
            ids=new_id,
        )

    def _worker(self, ledger: Ledger, providers: dict[str, Provider], breakers: Breakers) -> Worker:
        work = self._settings.work
        leases = Leases(ledger, self._clock, self._observe, self._settings.ledger.lease_seconds)
        attempts = Attempts(
            providers=providers,
            breakers=breakers,
            leases=leases,
            rules=AttemptRules(self._chains, self._policies, self._lanes),
            clock=self._clock,
            dice=system_dice,
        )
        return Worker(
            backlog=ledger,
            signal=ledger.signal,
            attempts=attempts,
            settling=Settling(ledger, self._observe, work.batch),
            leases=leases,
            breakers=breakers,
            rules=WorkerRules(
                lanes=self._lanes,
                chains=self._chains,
                skip_open=all(policy.on_open == "defer" for policy in self._policies.policies.values()),
                concurrency=work.concurrency,
                batch=work.batch,
                max_in_flight=work.max_in_flight,
                poll_seconds=work.poll_seconds,
                drain_seconds=work.drain_seconds,
            ),
            clock=self._clock,
            observer=self._observe,
            owner=f"{socket.gethostname()}/{os.getpid()}",
        )

    def _start_upkeep(self, ledger: Ledger) -> None:
        self._metrics.watch(ledger, asyncio.get_running_loop())
        watchdog = Watchdog(2 * self._settings.ledger.lease_seconds)
        self._tasks.append(asyncio.create_task(watchdog.run()))
        if Role.UPKEEP in self._roles:
            kept = self._settings.retention
            rules = RetentionSettings(
                interval_seconds=kept.interval_seconds,
                record_seconds=kept.record_seconds,
                malformed_seconds=kept.malformed_seconds,
                batch=kept.batch,
            )
            retention = Retention(ledger, self._observe, self._clock, rules)
            self._tasks.append(asyncio.create_task(self._supervise("retention", retention.run)))

    def _app(self, intake: Intake, ledger: Ledger, providers: dict[str, Provider], checks: dict[str, Check]) -> ASGI:
        endpoints: list[Endpoint] = []
        if Role.DOORS in self._roles:
            endpoints += http_door.endpoints(intake)
            endpoints += api.endpoints(ledger, self._chains)
            sandboxes = [provider for provider in providers.values() if isinstance(provider, Sandbox)]
            if sandboxes:
                endpoints += sandbox.endpoints(sandboxes, list(self._chains), Drill)
        endpoints += health.endpoints(self._readiness, checks)
        auth = self._settings.auth
        jwt = None
        if auth.secret is not None:
            jwt = JwtSettings(secret=auth.secret, issuer=auth.issuer, audience=auth.audience)
        web = WebSettings(
            body_limit=self._settings.http.max_body_bytes,
            max_in_flight=self._settings.http.max_requests_in_flight,
            jwt=jwt,
            version=__version__,
        )
        return app(endpoints, web)

    def _server_settings(self) -> ServerSettings:
        http = self._settings.http
        return ServerSettings(
            host=http.host, port=http.port, share_port=self._share_port, head_seconds=http.header_timeout_seconds
        )

    def _checks(self, ledger: Ledger, breakers: Breakers, worker: Worker | None) -> dict[str, Check]:
        async def ask_breakers() -> dict[str, Any]:
            states = await breakers.states()
            closed = all(state is State.CLOSED for state in states.values())
            return {
                "status": "healthy" if closed else "degraded",
                "states": {name: str(s) for name, s in states.items()},
            }

        async def ask_worker() -> dict[str, Any]:
            return {"in_flight": 0 if worker is None else worker.in_flight}

        checks: dict[str, Check] = {"ledger": ledger.check, "breakers": ask_breakers}
        if worker is not None:
            checks["worker"] = ask_worker
        if self._fleet is not None:
            checks["redis"] = self._fleet.check
        return checks

    async def _supervise(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop that should never end by itself; start it again when it does."""
        wait = FIRST_WAIT
        while True:
            try:
                await loop()
            except Exception as error:  # noqa: BLE001 - a bug in one loop must not end the process
                self._observe(Trouble(where=name, error=f"{type(error).__name__}: {error}", retry_in_seconds=wait))
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                return

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._meters is not None:
            # The last numbers leave from another thread, because their gauges ask this loop.
            await asyncio.to_thread(self._meters.shutdown)
