"""The parts of the intake: it accepts, explains and looks up notifications from HTTP and Kafka."""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from carillon.compose import from_settings, messages, outbound, receipts
from carillon.compose.ledger import LedgerPart, ordered_people, parts_needed
from carillon.compose.outbound import BreakersPart, WorkerPart
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.templates import TemplatesPart
from carillon.config.settings import Settings
from carillon.domain.consent import Categories
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Templates
from carillon.domain.targets import EndpointProvider
from carillon.doors.http import endpoints as http_door
from carillon.doors.http import events as http_events
from carillon.intake.accept import Intake
from carillon.intake.digests import DigestCloser
from carillon.intake.erased import ErasedAddresses
from carillon.intake.explain import Explainer
from carillon.intake.in_order import OrderedIntake
from carillon.intake.templates import OneTemplate
from carillon.ledger.opening import Ledger
from carillon.outbound.admission import Admissions
from carillon.outbound.endpoint_calls import SharedCalls
from carillon.outbound.synchronous import SynchronousDelivery
from carillon.receipts.callbacks import observe_receipts
from carillon.system import new_id
from carillon.upkeep.api import admin as admin_api
from carillon.upkeep.api import digests as digests_api
from carillon.upkeep.api import endpoints as endpoints_api
from carillon.upkeep.api import notifications as api
from carillon.upkeep.api import pauses as pauses_api
from carillon.upkeep.api import receipts as receipts_api
from carillon.upkeep.api import skipped as skipped_api
from carillon.upkeep.api import targets as targets_api
from carillon.upkeep.api import templates_sending
from carillon.upkeep.api import waiting as waiting_api
from carillon.upkeep.api.waits import Waits
from carillon.upkeep.health import Check, degraded
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import Endpoint

if TYPE_CHECKING:
    from carillon.blueprints.sse.wire import EventWire
    from carillon.doors.kafka.door import KafkaDoor


ASK_SECONDS = 5.0
"""How long the doctor waits for the brokers."""


class KafkaDoorPart(Part):
    """Reads a Kafka topic into the ledger, if the settings name its brokers."""

    title = "Kafka"
    role = Role.DOORS

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger
        self.door: KafkaDoor | None = None

    def refuse(self) -> None:
        kafka_door(self._process, None)

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.door = kafka_door(self._process, self._ledger.ledger)

    def run(self) -> Mapping[str, Loop]:
        return {} if self.door is None else {"kafka_door": self.door.run}

    async def stop(self, ending: PartEnd) -> None:
        if self.door is not None:
            self.door.stop()
            await ending.finish(seconds=ending.deadline.left())

    def checks(self) -> Mapping[str, Check]:
        # Without Kafka the process still serves streams and accepts events over HTTP: degraded, not down.
        return {} if self.door is None else {"kafka": degraded(self.door.check)}

    def gauges(self, metrics: Metrics) -> None:
        if self.door is not None:
            metrics.watch_stream(self.door.oldest_unprocessed_age_ms, asyncio.get_running_loop())

    async def examine(self) -> list[DoctorFinding]:
        kafka = self._process.settings.kafka
        if kafka.bootstrap_servers is None:
            return []
        try:
            from carillon.doors.kafka.door import topic_depth  # noqa: PLC0415 - its client is an extra
            from carillon.doors.kafka.group import TopicRules  # noqa: PLC0415 - as said
        except ModuleNotFoundError as error:
            return [DoctorFinding("Kafka", "ill", f"needs the package {error.name!r}; pip install 'carillon[kafka]'")]
        found = await topic_depth(TopicRules(**msgspec.structs.asdict(kafka)), ASK_SECONDS)
        if found is None:
            return [DoctorFinding("Kafka", "warn", f"{kafka.topic}: not there yet")]
        return [DoctorFinding("Kafka", "ok", f"{kafka.topic}: {found.partitions} partitions, {found.unread} unread")]


def event_endpoints(settings: Settings, intake: Intake) -> list[Endpoint]:
    """The endpoint that accepts the topic's messages over HTTP, in blueprints that define such messages."""
    wire = _wire(settings)
    return [] if wire is None else http_events.endpoints(intake, wire.read)


def kafka_door(process: Process, ledger: Ledger | None) -> "KafkaDoor | None":
    """The door that reads the topic into the ledger; without a ledger it only checks the settings."""
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
        templates=messages.templates(process.settings),
        directory=None,
        signal=ledger.signal,
        rules=from_settings.plan_rules(process.settings, process.chains),
        observer=process.observe,
        ids=new_id,
        clock=process.clock,
        add_choices=ordered_people(process.settings, ledger, process.clock),
        erased=ErasedAddresses(ledger, process.clock),
    )


def _wire(settings: Settings) -> "EventWire | None":
    name = f"carillon.blueprints.{settings.blueprint.replace('-', '_')}.wire"
    if find_spec(name) is None:
        return None
    opens: Callable[..., EventWire] | None = getattr(importlib.import_module(name), "open_events", None)
    return None if opens is None else opens(settings.priorities, new_id)


class IntakePart(Part):
    """Accepts, explains and looks up notifications for HTTP and for the doors of brokers."""

    intake: Intake

    def __init__(
        self,
        process: Process,
        ledger: LedgerPart,
        providers: ProvidersPart,
        *,
        breakers: BreakersPart,
        templates: TemplatesPart,
        worker: WorkerPart,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self._breakers = breakers
        self._templates = templates
        self._worker = worker
        self.synchronous: SynchronousDelivery | None = None

    def _intake(self, templates: Templates) -> Intake:
        process, ledger = self._process, self._ledger.ledger
        return Intake(
            ledger=ledger,
            templates=templates,
            add_preferences=self._templates.wording.add_preferences,
            erased=ErasedAddresses(ledger, process.clock),
            signal=ledger.signal,
            rules=from_settings.plan_rules(process.settings, process.chains),
            observer=process.observe,
            ids=new_id,
            clock=process.clock,
            claim_on_accept=self._worker.claim_on_accept(),
        )

    async def open(self, stack: AsyncExitStack) -> None:
        process, ledger = self._process, self._ledger.ledger
        self.intake = self._intake(self._templates.wording.templates)
        self.synchronous = outbound.synchronous(
            process,
            stack,
            intake=self.intake,
            ledger=ledger,
            providers=self._providers.providers,
            breakers=self._breakers.breakers,
            targets=self._breakers.targets,
        )

    def run(self) -> Mapping[str, Loop]:
        process = self._process
        calls = self._calls()
        found: dict[str, Loop] = {} if calls is None else {"endpoint_calls": calls.run}
        if "api" not in parts_needed(process.settings):
            # Nothing here takes events for digests, and the ledger has no tables for them.
            return found
        closer = DigestCloser(
            self._ledger.ledger,
            self.intake.accept,
            process.clock,
            process.observe,
            lease_seconds=process.settings.ledger.lease_seconds,
        )
        return {**found, "digests": closer.run}

    async def stop(self, ending: PartEnd) -> None:
        await self.intake.drain()
        if self.synchronous is not None:
            await self.synchronous.drain(ending.deadline.left())

    def endpoints(self) -> list[Endpoint]:
        settings, chains, ledger = self._process.settings, self._process.chains, self._ledger.ledger
        rules, breakers = from_settings.plan_rules(settings, chains), self._breakers.breakers
        synchronous = None if self.synchronous is None else self.synchronous.door()
        found = http_door.endpoints(self.intake, synchronous=synchronous, explains=self.explainer())
        lanes = from_settings.lanes(settings)
        found += api.endpoints(
            ledger,
            chains,
            lanes,
            groups=rules.groups,
            waits_for=Waits(self._admissions().waits_for, breakers, chains, self._process.clock),
            strict_receipts=settings.strict_receipts,
        )
        found += event_endpoints(settings, self.intake)
        found += templates_sending.endpoints(
            lambda draft: self._intake(OneTemplate(draft)), self._templates.wording.tools()
        )
        found += digests_api.endpoints(ledger)
        found += waiting_api.endpoints(ledger, self._process.clock)
        reported = partial(observe_receipts, observer=self._process.observe)
        found += receipts_api.endpoints(ledger, receipts.receipt_rules(settings, chains), reported)
        return [*found, *self._administration(rules.categories)]

    def explainer(self) -> Explainer:
        """Explains requests as this process would meet them now."""
        settings = self._process.settings
        return Explainer(
            self.intake,
            self._ledger.ledger,
            self._breakers.breakers,
            from_settings.plan_rules(settings, self._process.chains),
            self._process.clock,
            targets=self._admissions(),
            terms=from_settings.suppression_terms(settings),
            erased=ErasedAddresses(self._ledger.ledger, self._process.clock),
        )

    def _admissions(self) -> Admissions:
        breakers = self._breakers
        return Admissions(self._providers.providers, breakers.breakers, breakers.targets, self._process.clock)

    def _administration(self, categories: Categories) -> list[Endpoint]:
        """What administrators and operators do by hand, and see of providers and endpoints."""
        settings, chains, ledger = self._process.settings, self._process.chains, self._ledger.ledger
        targets, breakers, clock = self._breakers.targets, self._breakers.breakers, self._process.clock
        lanes, calls = from_settings.lanes(settings), self._calls()
        admin = admin_api.endpoints(ledger, breakers, chains, lanes, clock=clock, ids=new_id)
        admin += skipped_api.endpoints(ledger, lanes, categories)
        admin += endpoints_api.endpoints(ledger, self._receivers(), lanes)
        if settings.ledger.replay != "redrive":
            # If only producers may send again, administrators may only read.
            admin = [endpoint for endpoint in admin if endpoint.method == "GET"]
        admin += endpoints_api.health_endpoints(None if calls is None else calls.everywhere)
        known = pauses_api.Known(
            lanes=lanes,
            providers=frozenset(name for chain in chains.values() for name in chain),
            receivers=frozenset(self._receivers()),
            senseless={"queue": "this blueprint has no queues in Redis lists; pause a provider or a lane"},
        )
        admin += pauses_api.endpoints(targets, breakers, ledger, clock, known)
        return [*admin, *targets_api.endpoints(targets, ledger, clock)]

    def pages(self) -> Sequence[str]:
        return (
            *("overview", "notifications", "dead-letters", "providers", "digests", "audit"),
            *(("endpoints",) if self._receivers() else ()),
        )

    def _calls(self) -> SharedCalls | None:
        """How calls to endpoints went lately; None where no provider has endpoints."""
        process, targets = self._process, self._breakers.targets
        if not self._receivers() or targets.store is None:
            return None
        return SharedCalls(
            targets.calls,
            targets.store,
            service=process.settings.service,
            process=process.owner,
            clock=process.clock,
            observer=process.observe,
        )

    def _receivers(self) -> dict[str, EndpointProvider]:
        """The providers whose routes call many receivers."""
        found = self._providers.providers
        return {name: one for name, one in found.items() if isinstance(one, EndpointProvider)}
