"""Which parts a blueprint consists of, in the order in which a process opens them."""

import importlib
from collections.abc import Sequence

from carillon.compose.alerts import AlertsPart
from carillon.compose.breakers import BreakersPart, ProbingPart
from carillon.compose.intake import IntakePart
from carillon.compose.kafka_door import KafkaDoorPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.listener import Listener
from carillon.compose.live import LivePart
from carillon.compose.part import Part
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.rabbitmq_door import RabbitmqDoorPart
from carillon.compose.receipts import ReceiptsPart
from carillon.compose.templates import TemplatesPart
from carillon.compose.upkeep import HistoryPart, UpkeepPart
from carillon.compose.worker import WorkerPart
from carillon.config.settings import Settings

SERVICES = {"billing": ("payment", "subscription")}
"""The services of a blueprint, which `--roles` may name beside the roles."""


def services_of(settings: Settings) -> tuple[str, ...]:
    """The services that these settings describe."""
    return SERVICES["billing"] if settings.billing is not None else ()


def parts_of(process: Process) -> Sequence[Part]:
    """The list of parts; modules whose clients are slow to load are imported only by the blueprints that need them."""
    settings = process.settings
    name = "billing" if settings.billing is not None else "push" if settings.push is not None else None
    if name is None:
        return _engine(process)
    parts: Sequence[Part] = importlib.import_module(f"carillon.compose.{name}").parts_of(process)
    return parts


def _engine(process: Process) -> Sequence[Part]:
    """Accept, write down, deliver, look after: local, listo, galaxy and sse."""
    ledger = LedgerPart(process)
    before: list[Part] = []
    behind: list[Part] = []
    breakers, live = BreakersPart(process, ledger), LivePart(process, ledger)
    if process.settings.stream is None:
        providers = ProvidersPart(process, lambda: {"live": live.seats})
        worker = WorkerPart(process, ledger, providers, breakers)
    else:
        from carillon.compose import redis_stream  # noqa: PLC0415 - see its first line

        redis = redis_stream.RedisStreamsPart(process)
        providers = ProvidersPart(process, redis.tools)
        worker = WorkerPart(process, ledger, providers, breakers, redis.streams.leased)
        before.append(redis)
        behind.append(redis_stream.RedisStreamDoorPart(process, ledger, providers, redis))
    templates = TemplatesPart(process, ledger)
    intake = IntakePart(process, ledger, providers, breakers=breakers, templates=templates, worker=worker)
    alerts = AlertsPart(process, ledger, providers)
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
        RabbitmqDoorPart(process, ledger, intake),
        KafkaDoorPart(process, ledger),
        Listener(process, ledger, live=live, providers=providers),
    ]
