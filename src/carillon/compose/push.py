"""A process that works on a RabbitMQ queue; imported only where it is asked for: its clients are slow to load."""

import asyncio
import importlib
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

from carillon.compose import parts, surface
from carillon.compose.deadline import Deadline
from carillon.compose.fleet import Fleet
from carillon.compose.parts import open_ledger
from carillon.compose.push_templates import preparing
from carillon.compose.telemetry import Telemetry
from carillon.compose.work import worker as built_worker
from carillon.config.push import Push
from carillon.config.settings import Settings
from carillon.domain.claims import Settlement
from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Trouble
from carillon.domain.intents import Intent, Malformed
from carillon.ending import ended
from carillon.ledger.opening import Ledger
from carillon.ledger.rabbitmq.backlog import QueueRules, RabbitBacklog
from carillon.ledger.rabbitmq.deliveries import ClaimRules
from carillon.ledger.rabbitmq.delivery_end import LEAVE_SECONDS
from carillon.ledger.rabbitmq.line import LineRules
from carillon.ledger.rabbitmq.marks import MarkRules, Marks
from carillon.outbound.breakers.memory import MemoryBreakers
from carillon.outbound.breakers.redis import RedisBreakers
from carillon.outbound.watchdog import Watchdog
from carillon.outbound.worker import Worker
from carillon.system import SystemClock, new_id, system_dice
from carillon.upkeep import health
from carillon.upkeep.health import Check
from carillon.web import Server, app

LOOK_SECONDS = 1.0
AGAIN_SECONDS = 1.0
BEGIN_SECONDS = 2.0
"""How long a silent broker keeps a process from saying that it is ready."""


class Wire(Protocol):
    """A blueprint's messages."""

    def decode(self, body: bytes) -> Intent | Malformed: ...
    def reason(self, settlement: Settlement) -> str: ...


class PushProgram:
    """A composed push worker: queue, marks, templates, provider, audit log, health."""

    surface = "health"

    def __init__(self, settings: Settings, *, share_port: bool = False) -> None:
        if settings.push is None or settings.redis.url is None:
            raise ConfigurationError("push: this process works on a queue and keeps its marks in Redis (redis.url)")
        self._settings = settings
        self._push: Push = settings.push
        self._share_port = share_port
        self._clock = SystemClock()
        self._observe = Telemetry(settings)
        self._chains = parts.chains(settings)
        (self._channel,) = self._chains
        self._provider = self._chains[self._channel][0]
        self._fleet = Fleet(settings.redis.url)
        self._readiness = health.Readiness()
        self._deadline: Deadline | None = None
        """Once the word to stop has come."""

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Open everything, say so, work until told to stop, drain, close."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._observe.end)
            ledger = await open_ledger(self._settings)
            stack.push_async_callback(ledger.aclose)
            await ledger.migrate()
            stack.push_async_callback(self._fleet.aclose)
            breakers = self._breakers()
            backlog = self._backlog(ledger)
            worker = self._worker(backlog, breakers, stack)
            server = self._server(ledger, backlog, breakers)
            await server.start()
            self._keep(stack, Watchdog(2 * self._settings.ledger.lease_seconds).run())
            self._keep(stack, backlog.line.run())
            stack.push_async_callback(self._leave, backlog)
            working = asyncio.create_task(self._work(worker))
            # Whoever publishes at our word finds a queue: a broker throws away what has none.
            with suppress(TimeoutError):
                await asyncio.wait_for(backlog.line.begun.wait(), BEGIN_SECONDS)
            self._readiness.ready = True
            ready(f"http://{self._settings.http.host}:{server.port}")
            await stop.wait()
            self._readiness.ready = False
            deadline = self._deadline = Deadline(self._clock, self._settings.work.drain_seconds, ledger)
            worker.stop_claiming(self._settings.work.drain_seconds)
            await backlog.stop()
            worker.stop()
            await working
            await server.stop(deadline.left())

    async def _leave(self, backlog: RabbitBacklog) -> None:
        if self._deadline is None:
            await backlog.aclose()
        else:
            await backlog.aclose(min(LEAVE_SECONDS, self._deadline.step()))

    def _keep(self, stack: AsyncExitStack, loop: Any) -> None:  # noqa: ANN401 - any coroutine
        stack.push_async_callback(ended, asyncio.create_task(loop))

    async def _work(self, worker: Worker) -> None:
        while True:
            try:
                await worker.run()
            except Exception as error:  # noqa: BLE001 - a bug in the loop must not end the process
                said = f"{type(error).__name__}: {error}"
                self._observe(Trouble(where="worker", error=said, retry_in_seconds=AGAIN_SECONDS))
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _breakers(self) -> RedisBreakers:
        own = MemoryBreakers(parts.breaker_policies(self._settings), self._clock, self._observe)
        return self._fleet.breakers(self._settings, own, self._clock, self._observe)

    def _backlog(self, ledger: Ledger) -> RabbitBacklog:
        push, scale = self._push, self._settings.drill.time_scale
        wire: Wire = importlib.import_module("carillon.blueprints.push_worker.wire")
        # Its alone: a mark with this name can only have been set by this very process.
        name = f"{socket.gethostname()}/{os.getpid()}/{new_id()}"
        marks = MarkRules(
            holder_prefix=f"{self._settings.service}:holder:",
            mark_seconds=push.mark_seconds,
            takeover_after_seconds=push.takeover_after,
        )
        return RabbitBacklog(
            rules=QueueRules(
                line=self._line(), claims=self._claims(), pause_seconds=push.requeue_pause_seconds * scale
            ),
            decode=wire.decode,
            reason=wire.reason,
            marks=Marks(self._fleet.redis, name, marks),
            audit=ledger,
            clock=self._clock,
            observer=self._observe,
            dice=system_dice,
        )

    def _line(self) -> LineRules:
        push = self._push
        return LineRules(
            url=push.rabbitmq_url,
            queue=push.queue,
            failed_queue=push.failed_queue,
            prefetch=self._settings.work.concurrency,
            exchange=push.exchange,
        )

    def _claims(self) -> ClaimRules:
        policies, lanes = parts.policies(self._settings), parts.lanes(self._settings)
        policy = self._provider if self._provider in policies.policies else policies.name_for("system", self._channel)
        return ClaimRules(
            channel=self._channel,
            provider=self._provider,
            policy=policy,
            lane=lanes.queued()[0].rank,
            max_attempts=policies.get(policy).max_attempts,
        )

    def _worker(self, backlog: RabbitBacklog, breakers: RedisBreakers, stack: AsyncExitStack) -> Worker:
        tools = parts.tools(self._settings, self._clock, system_dice)
        stack.push_async_callback(tools.http.aclose)
        providers = parts.providers(self._settings, {self._provider}, tools)
        for provider in providers.values():
            stack.push_async_callback(provider.aclose)
        return built_worker(
            self._settings,
            backlog=backlog,
            signal=backlog.signal,
            providers=providers,
            breakers=breakers,
            chains=self._chains,
            clock=self._clock,
            observer=self._observe,
            owner=socket.gethostname(),
            preparer=preparing(self._settings, self._push, self._provider, tools, breakers),
        )

    def _server(self, ledger: Ledger, backlog: RabbitBacklog, breakers: RedisBreakers) -> Server:
        async def database() -> dict[str, Any]:
            await ledger.check()
            return {}

        async def cache_service() -> dict[str, Any]:
            return {"status": "unhealthy"} if await self._fleet.check() else {}

        async def message_broker() -> dict[str, Any]:
            await backlog.line.check()
            return {}

        checks: dict[str, Check] = {
            "database": database,
            "cache_service": cache_service,
            "message_broker": message_broker,
        }
        aside = {name: _breaker(breakers, name) for name in (self._provider, "template_service")}
        where = surface.server_settings(self._settings, share_port=self._share_port)
        return Server(app(health.endpoints(self._readiness, checks, aside)), where)


def _breaker(breakers: RedisBreakers, name: str) -> Check:
    async def look() -> dict[str, Any]:
        async with asyncio.timeout(LOOK_SECONDS):
            state = (await breakers.look([name]))[name]
        return {"status": "healthy" if state == "closed" else "degraded", "circuit_breaker": str(state)}

    return look
