"""A Kafka topic in front of the ledger, where the settings name its brokers, and the same messages over HTTP."""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import msgspec

from carillon.compose import parts
from carillon.compose.process import Process
from carillon.compose.surface import Opened
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Intent
from carillon.doors.http import events as http_events
from carillon.intake.in_order import OrderedIntake
from carillon.system import new_id
from carillon.web import Endpoint

if TYPE_CHECKING:
    from carillon.doors.kafka.door import KafkaDoor


class EventWire(Protocol):
    """A blueprint's messages."""

    def decode(self, body: bytes, key: str | None = None) -> Intent: ...
    def read(self, said: object, key: str | None = None) -> Intent: ...


def endpoints(process: Process, opened: Opened) -> list[Endpoint]:
    """Where the topic's messages are posted, in blueprints that have such messages."""
    wire = _wire(process.settings)
    return [] if wire is None else http_events.endpoints(opened.intake, wire.read)


def door(process: Process, opened: Opened) -> "KafkaDoor | None":
    """The door that reads the topic into the ledger."""
    settings = process.settings
    kafka = settings.kafka
    if kafka.bootstrap_servers is None:
        return None
    wire = _wire(settings)
    if wire is None:
        raise ConfigurationError(f"kafka.bootstrap_servers: {settings.blueprint} reads no topic; sse does")
    try:
        # Here, because the client is an extra and slow to load.
        from carillon.doors.kafka.door import KafkaDoor  # noqa: PLC0415 - as said
        from carillon.doors.kafka.group import TopicRules, refusal  # noqa: PLC0415 - as said
        from carillon.doors.kafka.wire import TopicWire  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"kafka.bootstrap_servers: needs the package {error.name!r}; pip install 'carillon[kafka]'"
        ) from None
    rules = TopicRules(**msgspec.structs.asdict(kafka))
    said = refusal(rules)
    if said is not None:
        raise ConfigurationError(f"kafka.options: {said}")
    return KafkaDoor(
        rules=rules,
        wire=TopicWire(wire.decode, settings.http.max_body_bytes),
        acceptor=_acceptor(process, opened),
        clock=process.clock,
        observer=process.observe,
    )


def _acceptor(process: Process, opened: Opened) -> OrderedIntake:
    return OrderedIntake(
        ledger=opened.ledger,
        templates=parts.templates(process.settings),
        directory=None,
        signal=opened.ledger.signal,
        rules=parts.plan_rules(process.settings, process.chains),
        observer=process.observe,
        ids=new_id,
    )


def _wire(settings: Settings) -> EventWire | None:
    name = f"carillon.blueprints.{settings.blueprint.replace('-', '_')}.wire"
    if find_spec(name) is None:
        return None
    opens: Callable[..., EventWire] | None = getattr(importlib.import_module(name), "open_events", None)
    return None if opens is None else opens(settings.priorities, new_id)
