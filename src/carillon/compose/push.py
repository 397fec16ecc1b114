"""The parts of a push worker: RabbitMQ, Redis, the template service, the provider, the audit log and their health."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from carillon.compose import from_settings
from carillon.compose.erasure import places_beside
from carillon.compose.ledger import LedgerPart
from carillon.compose.listener import Listener
from carillon.compose.outbound import BreakersPart
from carillon.compose.part import LAST_LOOK_SECONDS, DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.upkeep import retention_rules
from carillon.config.sections import Push
from carillon.domain.errors import ConfigurationError
from carillon.domain.lanes import Lanes
from carillon.domain.queue_events import QueueLooked
from carillon.upkeep import health
from carillon.upkeep.api import pauses as pauses_api
from carillon.upkeep.cleanup import AuditRetention
from carillon.upkeep.consent.rights import UnfinishedErasures
from carillon.upkeep.health import Check, Checks, answers_at
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import Endpoint

if TYPE_CHECKING:
    from carillon.compose.push_worker import PushWorker

LOOK_SECONDS = 1.0
BEGIN_SECONDS = 2.0
"""How long a silent broker delays the readiness of the process."""
EXTRA = "push.rabbitmq_url: needs the package {!r}; pip install 'carillon[rabbitmq]'"


def parts_of(process: Process) -> Sequence[Part]:
    """The parts; the listener stops after the worker, so that /health answers until the end."""
    settings = process.settings
    if settings.push is None or settings.redis.url is None:
        raise ConfigurationError("push: this process works on a queue and keeps its marks in Redis (redis.url)")
    ledger = LedgerPart(process, check="database")
    breakers = PushBreakersPart(process, ledger, settings.push)
    providers = ProvidersPart(process)
    worker = PushWorkerPart(process, settings.push, ledger, breakers=breakers, providers=providers)
    broker = BrokerPart(process, settings.push, worker)
    templates = TemplateServicePart(settings.push, breakers)
    looks = QueueLooksPart(process, settings.push)
    return [
        ledger,
        breakers,
        broker,
        providers,
        templates,
        Listener(process, ledger, providers=providers, breakers=breakers),
        looks,
        AuditRetentionPart(process, ledger),
        worker,
    ]


class PushBreakersPart(BreakersPart):
    """The Redis of breakers and marks; without it the worker sends nothing."""

    kept = "marks"

    def __init__(self, process: Process, ledger: LedgerPart, push: Push) -> None:
        super().__init__(process, ledger)
        self._push = push

    async def begun(self) -> None:
        # The first question writes the keys, so that operators find them before the first message.
        (chain,) = self._process.chains.values()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self.breakers.look([*chain, "template_service"])

    def checks(self) -> Mapping[str, Check]:
        return {} if self.shared is None else {"cache_service": self.shared.check}

    def facts(self) -> Mapping[str, Check]:
        (chain,) = self._process.chains.values()
        return {chain[0]: self.state_of(chain[0])}

    def state_of(self, name: str) -> Check:
        """One breaker, as /health shows it."""

        async def look() -> dict[str, Any]:
            async with asyncio.timeout(LOOK_SECONDS):
                state = (await self.breakers.look([name]))[name]
            return {"status": "healthy" if state == "closed" else "degraded", "circuit_breaker": str(state)}

        return look

    def health(self, checks: Checks) -> Endpoint | None:
        return health.in_brief(checks)

    def endpoints(self) -> list[Endpoint]:
        """The pauses: every process with the role doors serves them, the worker may be another process."""
        process, chains = self._process, self._process.chains
        lanes = from_settings.lanes(process.settings)
        known = pauses_api.Known(
            # Every message of the queue has the same lane.
            lanes=Lanes({name: lane for name, lane in lanes.by_name.items() if lane is lanes.queued()[0]}),
            providers=frozenset(name for chain in chains.values() for name in chain),
            senseless={
                "tenant": f"messages of {self._push.queue} name no tenant",
                "queue": "this blueprint has no queues in Redis lists; pause the provider",
            },
        )
        return pauses_api.endpoints(self.targets, self.breakers, self._ledger.ledger, process.clock, known)

    def pages(self) -> Sequence[str]:
        return ("overview",)


class TemplateServicePart(Part):
    """The service from which the worker fetches the template of each message."""

    title = "Templates"

    def __init__(self, push: Push, breakers: PushBreakersPart) -> None:
        self._push = push
        self._breakers = breakers

    def checks(self) -> Mapping[str, Check]:
        return {"template_service": answers_at(self._push.template_service_url)}

    def facts(self) -> Mapping[str, Check]:
        return {"template_service": self._breakers.state_of("template_service")}

    async def examine(self) -> list[DoctorFinding]:
        from carillon.compose.templates import ask_service  # noqa: PLC0415 - only the doctor asks

        complaint = await ask_service(self._push)
        if complaint is not None:
            return [DoctorFinding("Templates", "ill", f"{self._push.template_service_url}: {complaint}")]
        return [
            DoctorFinding("Templates", "ok", f"{self._push.template_service_url} answers; fetched for each message")
        ]


class PushWorkerPart(Part):
    """Consumes the queue and sends its messages."""

    role = Role.OUTBOUND

    def __init__(
        self,
        process: Process,
        push: Push,
        ledger: LedgerPart,
        *,
        breakers: BreakersPart,
        providers: ProvidersPart,
    ) -> None:
        self._process = process
        self._push = push
        self._ledger = ledger
        self._breakers = breakers
        self._providers = providers
        self.work: PushWorker | None = None

    def refuse(self) -> None:
        _need_client()

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        from carillon.compose.push_worker import PushWorker  # noqa: PLC0415 - see `refuse`

        shared = self._breakers.shared
        if shared is None:
            raise ConfigurationError("push: this process keeps its marks in Redis (redis.url)")
        self.work = PushWorker(
            self._process,
            self._push,
            ledger=self._ledger.ledger,
            redis=shared.redis,
            breakers=self._breakers.breakers,
            targets=self._breakers.targets,
            providers=self._providers,
        )

    def gauges(self, metrics: Metrics) -> None:
        if self.work is not None:
            metrics.watch_waits(self.work.worker.waits, asyncio.get_running_loop())

    def run(self) -> Mapping[str, Loop]:
        return (
            {} if self.work is None else {"rabbitmq": self.work.backlog.connection.run, "worker": self.work.worker.run}
        )

    async def begun(self) -> None:
        # Declare the queue before reporting ready: a broker drops messages that have no queue.
        if self.work is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.work.backlog.connection.begun.wait(), BEGIN_SECONDS)

    def rest(self, seconds: float) -> None:
        if self.work is not None:
            self.work.worker.stop_claiming(seconds)

    async def stop(self, ending: PartEnd) -> None:
        if self.work is not None:
            await self.work.backlog.stop()
            self.work.worker.stop()
            await ending.finish("worker")
            await self.work.leave(ending.deadline)


class BrokerPart(Part):
    """Checks RabbitMQ and its two queues."""

    title = "RabbitMQ"

    def __init__(self, process: Process, push: Push, worker: PushWorkerPart) -> None:
        self._process = process
        self._push = push
        self._worker = worker

    def checks(self) -> Mapping[str, Check]:
        reached = answers_at(self._push.rabbitmq_url)

        async def message_broker() -> Mapping[str, Any]:
            if self._worker.work is None:
                return await reached()
            await self._worker.work.backlog.connection.check()
            return {}

        return {"message_broker": message_broker}

    async def examine(self) -> list[DoctorFinding]:
        push = self._push
        try:
            from carillon.ledger.rabbitmq.connection import depths  # noqa: PLC0415 - its client is an extra
        except ModuleNotFoundError as error:
            return [
                DoctorFinding("RabbitMQ", "ill", f"needs the package {error.name!r}; pip install 'carillon[rabbitmq]'")
            ]
        found = await depths(push.rabbitmq_url, (push.queue, push.failed_queue))
        words = [f"{name}: {'not there yet' if depth is None else f'{depth} waiting'}" for name, depth in found.items()]
        return [DoctorFinding("RabbitMQ", "ok", ", ".join(words))]


class AuditRetentionPart(Part):
    """Deletes old rows of the audit log."""

    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def refuse(self) -> None:
        settings = self._process.settings
        marks = 0 if settings.push is None else settings.push.mark_seconds
        if settings.retention.audit_seconds < marks:
            # A copy that comes while its mark lives writes a missing row; it must not write a pruned one again.
            raise ConfigurationError(
                f"retention.audit_seconds: rows must be kept at least as long as marks (push.mark_seconds = {marks})"
            )

    def run(self) -> Mapping[str, Loop]:
        process = self._process
        rules = retention_rules(process.settings)
        ledger, places = self._ledger.ledger, places_beside(process.settings)
        return {
            "retention": AuditRetention(ledger, process.observe, process.clock, rules).run,
            "erasures": UnfinishedErasures(ledger, places, process.clock, process.observe).run,
        }


class QueueLooksPart(Part):
    """Reads the depths of both queues for the gauges."""

    role = Role.UPKEEP

    def __init__(self, process: Process, push: Push) -> None:
        self._process = process
        self._push = push
        self._stopping = asyncio.Event()

    def refuse(self) -> None:
        _need_client()

    def run(self) -> Mapping[str, Loop]:
        return {"monitor_queue_depths": self._look_on}

    async def stop(self, ending: PartEnd) -> None:
        """Let a query under way end: the broker's client warns about a cancelled call."""
        self._stopping.set()
        await ending.finish(seconds=min(LAST_LOOK_SECONDS, ending.deadline.left()))

    async def _look_on(self) -> None:
        from carillon.ledger.rabbitmq.connection import depths  # noqa: PLC0415 - its client is an extra and slow to load

        push, process = self._push, self._process
        while not self._stopping.is_set():
            # /health reports a broker that is away.
            with suppress(ConnectionError, TimeoutError):
                found = await depths(push.rabbitmq_url, (push.queue, push.failed_queue))
                waiting, failed = (found[name] or 0 for name in (push.queue, push.failed_queue))
                nothing = {"processing": 0, "delayed": 0}
                process.observe(QueueLooked(queue=push.queue, main=waiting, failed=failed, **nothing))
                # The queue under its own name too: an operator looks for the name that the broker shows.
                process.observe(QueueLooked(queue=push.failed_queue, main=failed, failed=0, **nothing))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), process.settings.beat.depth_seconds)


def _need_client() -> None:
    """Refuse to start a part that asks RabbitMQ without its client."""
    try:
        import aio_pika  # noqa: F401, PLC0415 - an extra, and slow to load
    except ModuleNotFoundError as error:
        raise ConfigurationError(EXTRA.format(error.name)) from None
