"""Which parts a blueprint has, in the order in which a process opens them, and what `carillon doctor` asks them."""

import asyncio
import importlib
from collections.abc import Callable, Sequence

from carillon.compose.doors import RabbitmqDoorPart, ServiceBusDoorPart
from carillon.compose.intake import IntakePart, KafkaDoorPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.listener import Listener
from carillon.compose.live import LivePart
from carillon.compose.outbound import BreakersPart, ProbingPart, WorkerPart
from carillon.compose.part import DoctorFinding, Part
from carillon.compose.process import Process, process_of
from carillon.compose.providers import ProvidersPart
from carillon.compose.receipts import ReceiptsPart
from carillon.compose.rehearsals import RehearsalsPart
from carillon.compose.templates import TemplatesPart
from carillon.compose.upkeep import AlertsPart, HistoryPart, UpkeepPart
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.upkeep.metrics.otlp import exported

SERVICES = {"billing": ("payment", "subscription")}
"""The services of a blueprint, which `--roles` may name beside the roles."""
PATIENCE_SECONDS = 5.0
ORDER = ("Ledger", "Redis", "RabbitMQ", "Service Bus", "Kafka", "History", "Templates", "Directory", "", "Providers")
"""The order of the doctor's questions; a part that is not named here comes before the providers."""


def services_of(settings: Settings) -> tuple[str, ...]:
    """The services that these settings describe."""
    return SERVICES["billing"] if settings.billing is not None else ()


def parts_of(process: Process) -> Sequence[Part]:
    """The list of parts; a blueprint imports modules with slow clients only if it needs them."""
    settings = process.settings
    name = "billing" if settings.billing is not None else "push" if settings.push is not None else None
    if name is None:
        return _engine(process)
    parts: Sequence[Part] = importlib.import_module(f"carillon.compose.{name}").parts_of(process)
    return parts


def _engine(process: Process) -> Sequence[Part]:
    """The parts of local, listo, galaxy and sse."""
    ledger = LedgerPart(process)
    before, behind = list[Part](), list[Part]()
    breakers, live = BreakersPart(process, ledger), LivePart(process, ledger)
    if process.settings.stream is None:
        providers = ProvidersPart(process, lambda: {"live": live.seats})
        worker = WorkerPart(process, ledger, providers, breakers)
    else:
        from carillon.compose.redis import RedisStreamDoorPart, RedisStreamsPart  # noqa: PLC0415 - see its first line

        redis = RedisStreamsPart(process)
        providers = ProvidersPart(process, lambda: {**redis.tools(), "live": live.seats})
        worker = WorkerPart(process, ledger, providers, breakers, redis.streams.leased)
        before.append(redis)
        behind.append(RedisStreamDoorPart(process, ledger, providers, redis))
    templates, alerts = TemplatesPart(process, ledger), AlertsPart(process, ledger, providers)
    intake = IntakePart(process, ledger, providers, breakers=breakers, templates=templates, worker=worker)
    queues = [door(process, ledger, intake) for door in (RabbitmqDoorPart, ServiceBusDoorPart)]
    return [
        *before,
        ledger,
        breakers,
        live,
        providers,
        worker,
        templates,
        intake,
        ReceiptsPart(process, ledger),
        alerts,
        UpkeepPart(process, ledger, alerts),
        HistoryPart(process, ledger),
        ProbingPart(process, providers, breakers),
        *behind,
        *queues,
        KafkaDoorPart(process, ledger),
        RehearsalsPart(process),
        Listener(process, ledger, live=live, providers=providers, breakers=breakers),
    ]


async def examine(settings: Settings, parts: Callable[[Process], Sequence[Part]] = parts_of) -> list[DoctorFinding]:
    """Ask every part its question; an ill part does not stop the questions to the others."""
    findings = [DoctorFinding("Settings", "ok", f"blueprint {settings.blueprint}"), *_telemetry()]
    for part in sorted(parts(process_of(settings, lambda _: None)), key=_place):
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                findings += await part.examine()
        except TimeoutError:
            findings.append(DoctorFinding(part.title, "ill", f"no answer within {PATIENCE_SECONDS:g} s"))
        except (CarillonError, OSError) as error:
            findings.append(DoctorFinding(part.title, "ill", str(error)))
    return findings


def _telemetry() -> list[DoctorFinding]:
    """What leaves by the standard variables, or why it cannot; nothing is asked for without them."""
    try:
        leaving = exported()
    except ConfigurationError as error:
        return [DoctorFinding("Telemetry", "ill", str(error))]
    return [DoctorFinding("Telemetry", "ok", ", ".join(leaving))] if leaving else []


def _place(part: Part) -> int:
    return ORDER.index(part.title if part.title in ORDER else "")
