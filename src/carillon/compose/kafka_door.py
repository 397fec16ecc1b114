"""A Kafka topic in front of the ledger, where the settings name its brokers, and the same messages over HTTP."""

import asyncio
import importlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import msgspec

from carillon.compose import from_settings
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Ending, Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Intent
from carillon.doors.http import events as http_events
from carillon.intake.accept import Intake
from carillon.intake.in_order import OrderedIntake
from carillon.ledger.opening import Ledger
from carillon.system import new_id
from carillon.upkeep.health import Check, degraded
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import Endpoint

if TYPE_CHECKING:
    from carillon.doors.kafka.door import KafkaDoor


ASK_SECONDS = 5.0
"""How long the doctor waits for the brokers."""


class EventWire(Protocol):
    """A blueprint's messages."""

    def decode(self, body: bytes, key: str | None = None) -> Intent: ...
    def read(self, said: object, key: str | None = None) -> Intent: ...


class KafkaDoorPart(Part):
    """Reads the topic into the ledger, where the settings name its brokers."""

    title = "Kafka"
    role = Role.DOORS

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger
        self.door: KafkaDoor | None = None

    def refuse(self) -> None:
        door(self._process, None)

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.door = door(self._process, self._ledger.ledger)

    def run(self) -> Mapping[str, Loop]:
        return {} if self.door is None else {"kafka_door": self.door.run}

    async def stop(self, ending: Ending) -> None:
        if self.door is not None:
            self.door.stop()
            await ending.finish(seconds=ending.deadline.left())

    def checks(self) -> Mapping[str, Check]:
        # Without its topic the process still serves streams and takes events over HTTP.
        return {} if self.door is None else {"kafka": degraded(self.door.check)}

    def gauges(self, metrics: Metrics) -> None:
        if self.door is not None:
            metrics.watch_stream(self.door.oldest_unprocessed_age_ms, asyncio.get_running_loop())

    async def examine(self) -> list[Finding]:
        kafka = self._process.settings.kafka
        if kafka.bootstrap_servers is None:
            return []
        try:
            from carillon.doors.kafka.door import topic_depth  # noqa: PLC0415 - its client is an extra
            from carillon.doors.kafka.group import TopicRules  # noqa: PLC0415 - as said
        except ModuleNotFoundError as error:
            return [Finding("Kafka", "ill", f"needs the package {error.name!r}; pip install 'carillon[kafka]'")]
        found = await topic_depth(TopicRules(**msgspec.structs.asdict(kafka)), ASK_SECONDS)
        if found is None:
            return [Finding("Kafka", "warn", f"{kafka.topic}: not there yet")]
        return [Finding("Kafka", "ok", f"{kafka.topic}: {found.partitions} partitions, {found.unread} unread")]


def endpoints(settings: Settings, intake: Intake) -> list[Endpoint]:
    """The endpoint that takes the topic's messages over HTTP, in blueprints that have such messages."""
    wire = _wire(settings)
    return [] if wire is None else http_events.endpoints(intake, wire.read)


def door(process: Process, ledger: Ledger | None) -> "KafkaDoor | None":
    """The door that reads the topic into the ledger; without a ledger the settings are checked and nothing is built."""
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
    if ledger is None:
        return None
    return KafkaDoor(
        rules=rules,
        wire=TopicWire(wire.decode, settings.http.max_body_bytes),
        acceptor=_acceptor(process, ledger),
        clock=process.clock,
        observer=process.observe,
    )


def _acceptor(process: Process, ledger: Ledger) -> OrderedIntake:
    return OrderedIntake(
        ledger=ledger,
        templates=from_settings.templates(process.settings),
        directory=None,
        signal=ledger.signal,
        rules=from_settings.plan_rules(process.settings, process.chains),
        observer=process.observe,
        ids=new_id,
    )


def _wire(settings: Settings) -> EventWire | None:
    name = f"carillon.blueprints.{settings.blueprint.replace('-', '_')}.wire"
    if find_spec(name) is None:
        return None
    opens: Callable[..., EventWire] | None = getattr(importlib.import_module(name), "open_events", None)
    return None if opens is None else opens(settings.priorities, new_id)
