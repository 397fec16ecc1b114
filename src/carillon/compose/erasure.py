"""Where else than in the ledger something about a person is kept: what an erasure empties, waits for, or only names."""

from collections.abc import Mapping, Sequence
from functools import partial

from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Loop, Part, Role
from carillon.compose.process import Process
from carillon.config.policies import EVERY_OTHER
from carillon.config.settings import Settings
from carillon.domain.errors import ArchiveUnavailable, ConfigurationError, LedgerUnavailable
from carillon.domain.rights import KnownPerson
from carillon.upkeep.consent.rights import Forget, OutsidePlace, Places, UnfinishedErasures
from carillon.upkeep.history.copier import ClickHouse

WORKED_ON = "until they are worked on: erase again after that"
TRIMMED = "until those who own the stream trim it"


def kept_at(settings: Settings) -> ClickHouse:
    """The ClickHouse of the settings; raises ConfigurationError if they name none."""
    wanted = settings.history
    if wanted.url is None:
        raise ConfigurationError("history.url: no history is kept; name a ClickHouse, or chdb:///folder on one machine")
    return ClickHouse(wanted.url, keep_days=wanted.keep_days, timeout_seconds=wanted.timeout_seconds)


def places_beside(settings: Settings) -> Places:
    """The places that an erasure empties, or waits for: history, lists that wait, and dead letters of queues."""
    found: dict[str, Forget] = {}
    push, redis = settings.push, settings.redis.location()
    lists = [queue for queue in settings.queue if queue != EVERY_OTHER]
    if settings.history.url is not None:
        found["history"] = _history_forgets(settings)
    if push is not None:
        found[push.failed_queue] = partial(_failed_queue_forgets, push.rabbitmq_url, push.failed_queue)
    if lists and redis is not None:
        # Before the failed lists: a message that fails meanwhile is found there.
        found |= {queue: partial(_list_has_worked, redis, queue) for queue in lists}
        found["failed lists"] = partial(_failed_lists_forget, redis, lists)
    return found


def places_outside(settings: Settings) -> list[OutsidePlace]:
    """The places that may name a person and belong to others, each with the end of what it keeps."""
    kafka, push = settings.kafka, settings.push
    doors = {
        "RabbitMQ": settings.rabbitmq_door.queue,
        "Service Bus": settings.servicebus_door.queue,
    }
    found = [_outside(f"{name} {queue}", "requests that wait", WORKED_ON) for name, queue in doors.items() if queue]
    if push is not None:
        found.append(_outside(f"RabbitMQ {push.queue}", "messages that wait", WORKED_ON))
    if settings.stream is not None:
        name = settings.stream.name
        found.append(_outside(f"Redis stream {name}", "intents as producers wrote them, read and unread", TRIMMED))
    if kafka.bootstrap_servers is not None:
        found.append(_outside(f"Kafka topic {kafka.topic}", "messages as producers wrote them", "its retention.ms"))
    return found + [_outgoing(settings.providers[name]) for name in _streams(settings)]


def _streams(settings: Settings) -> list[str]:
    used = dict.fromkeys(name for chain in settings.channels.values() for name in chain)
    return [name for name in used if settings.providers.get(name, {}).get("kind") == "redis_stream"]


def _outgoing(given: Mapping[str, object]) -> OutsidePlace:
    most = given.get("max_len")
    kept = TRIMMED if most is None else f"until about {most} newer entries are in it"
    return _outside(f"Redis stream {given['stream']}", "messages that were handed over to its readers", kept)


def _outside(place: str, holds: str, kept: str) -> OutsidePlace:
    return OutsidePlace(place=place, holds=holds, kept=kept)


def _history_forgets(settings: Settings) -> Forget:
    archive = kept_at(settings)

    async def forget(person: KnownPerson) -> None:
        await archive.forget(person.tenant_id, person.person)

    return forget


async def _failed_queue_forgets(url: str, queue: str, person: KnownPerson) -> None:
    from carillon.ledger.rabbitmq.connection import take_out  # noqa: PLC0415 - its client is an extra

    try:
        await take_out(url, queue, person.mentioned_in)
    except (ConnectionError, TimeoutError) as error:
        raise ArchiveUnavailable(str(error)) from error


async def _failed_lists_forget(url: str, queues: Sequence[str], person: KnownPerson) -> None:
    from carillon.ledger.redis.lists_upkeep import take_out_failed  # noqa: PLC0415 - its client is slow to load

    try:
        await take_out_failed(url, queues, person.mentioned_in)
    except LedgerUnavailable as error:
        raise ArchiveUnavailable(str(error)) from error


async def _list_has_worked(url: str, queue: str, person: KnownPerson) -> None:
    """A message that waits, is put off or runs is not taken away from its worker: the erasure waits for its end."""
    from carillon.ledger.redis.lists_upkeep import still_names  # noqa: PLC0415 - its client is slow to load

    try:
        named = await still_names(url, queue, person.mentioned_in)
    except LedgerUnavailable as error:
        raise ArchiveUnavailable(str(error)) from error
    if named:
        raise ArchiveUnavailable(f"{queue} has {named} messages about the person that wait or run")


class ErasuresPart(Part):
    """Goes on with unfinished erasures, in a blueprint whose upkeep does nothing else."""

    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def run(self) -> Mapping[str, Loop]:
        process = self._process
        places = places_beside(process.settings)
        return {"erasures": UnfinishedErasures(self._ledger.ledger, places, process.clock, process.observe).run}
