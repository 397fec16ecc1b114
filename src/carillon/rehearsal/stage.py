"""The parts of a rehearsal: the real engine over a ledger that is thrown away, with vendors that are played."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import msgspec

from carillon.compose import from_settings
from carillon.compose.ledger import LedgerPart, live_providers, parts_needed
from carillon.compose.listener import Listener
from carillon.compose.outbound import BreakersPart, ProbingPart, WorkerPart
from carillon.compose.part import Part
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.rehearsals import why_not
from carillon.config.messages import SmsSettings
from carillon.config.sections import Alerts, Auth, HistorySettings, Http, Kafka, RabbitmqDoor, ServicebusDoor
from carillon.config.settings import DrillSettings, GroupSettings, Redis, Settings, Work
from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Event
from carillon.domain.notifications import Template
from carillon.domain.pace import RatePolicy
from carillon.domain.ports import Observer
from carillon.intake.accept import Intake
from carillon.intake.templates import FileTemplates
from carillon.ledger.local_signal import LocalSignal
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.rehearsal.vendor import RehearsedVendor
from carillon.system import new_id, system_dice
from carillon.upkeep.rehearsals.plan import RehearsalPlan

MEDIAN_SECONDS = 0.15
SHORTEST_WAIT = 0.001
SANDBOX = "sandbox"


def rehearsed(settings: Settings, plan: RehearsalPlan, url: str) -> Settings:
    """The same policies, lanes, breakers, groups and chains, without servers, doors, credentials and exporters."""
    reason = why_not(settings)
    if reason is not None:
        raise ConfigurationError(reason)
    replace = msgspec.structs.replace
    return replace(
        _without_servers(settings, url),
        groups=_groups(settings),
        providers={name: {"kind": SANDBOX} for name in settings.providers},
        policy=replace(
            settings.policy, rate={name: _slower(rate, plan.scale) for name, rate in settings.policy.rate.items()}
        ),
        tenant={
            name: replace(tenant, requests_per_second=_fewer(tenant.requests_per_second, plan.scale))
            for name, tenant in settings.tenant.items()
        },
        work=_narrower(settings.work, plan),
    )


def _without_servers(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(
        settings,
        blueprint="local",
        http=Http(port=0),
        auth=Auth(),
        redis=Redis(),
        stream=None,
        directory=None,
        rabbitmq_door=RabbitmqDoor(),
        servicebus_door=ServicebusDoor(),
        kafka=Kafka(),
        history=HistorySettings(),
        alerts=Alerts(),
        drill=DrillSettings(),
        # Numbers are made up, and say nothing about the countries of real people.
        sms=SmsSettings(),
        ledger=msgspec.structs.replace(settings.ledger, url=url, seal_keys=[], seal_keys_file=None, lease_keys=None),
    )


def _narrower(work: Work, plan: RehearsalPlan) -> Work:
    """All processes as one, and each played call stands for several: so much fewer at once."""
    concurrency = max(1, work.concurrency * plan.processes // plan.scale)
    most = {name: max(1, number // plan.scale) for name, number in work.max_in_flight.items()}
    return msgspec.structs.replace(work, concurrency=concurrency, max_in_flight=most, first_claims=concurrency)


def _slower(rate: RatePolicy, scale: int) -> RatePolicy:
    return RatePolicy(
        per_second=_fewer(rate.per_second, scale), endpoint_per_second=_fewer(rate.endpoint_per_second, scale)
    )


def _fewer(per_second: float | None, scale: int) -> float | None:
    return None if per_second is None else per_second / scale


def _groups(settings: Settings) -> dict[str, GroupSettings]:
    """The groups as the real kinds of the providers form them: here every provider is played."""
    return {
        name: GroupSettings(by=found.by, cap=found.cap, members=settings.groups.get(name, GroupSettings()).members)
        for name, found in from_settings.groups(settings).items()
    }


class RehearsedSignal(LocalSignal):
    """Wakes the worker when the next retry is due, so that no virtual second is spent on looking in vain."""

    def __init__(self, due_in: Callable[[], float | None]) -> None:
        super().__init__()
        self._due_in = due_in

    async def wait(self, timeout_seconds: float) -> None:
        due_in = self._due_in()
        await super().wait(timeout_seconds if due_in is None else max(due_in, SHORTEST_WAIT))


class RehearsedLedger(LedgerPart):
    """A SQLite ledger whose clock is the rehearsal's."""

    def __init__(self, process: Process, due_in: Callable[[], float | None]) -> None:
        """`due_in` says in how many seconds the next retry is due; None if something is due already."""
        super().__init__(process)
        self._process = process
        self._due_in = due_in

    async def open(self, stack: AsyncExitStack) -> None:
        settings = self._process.settings
        self.ledger = await SqliteLedger.open(
            settings.ledger.url.removeprefix("sqlite:///"),
            lease_seconds=settings.ledger.lease_seconds,
            record_attempts=settings.ledger.record_attempts,
            parts=parts_needed(settings),
            clock=self._process.clock.wall,
        )
        self.ledger.signal = RehearsedSignal(self._due_in)
        self.ledger.live = live_providers(self._process.chains)
        stack.push_async_callback(self.ledger.aclose)
        await self.ledger.migrate()
        self._opened = True


class RehearsedProviders(ProvidersPart):
    """Every provider of every chain, played."""

    def __init__(self, process: Process, plan: RehearsalPlan) -> None:
        super().__init__(process)
        self._of = process
        self._plan = plan
        self.vendors: dict[str, RehearsedVendor] = {}

    async def open(self, stack: AsyncExitStack) -> None:
        process, plan = self._of, self._plan
        self.tools = from_settings.tools(process.settings, process.clock, system_dice)
        stack.push_async_callback(self.tools.http.aclose)
        usual = plan.latencies.get("*", MEDIAN_SECONDS)
        self.vendors = {
            name: RehearsedVendor(
                name,
                plan.outages,
                median_seconds=plan.latencies.get(name, usual),
                clock=process.clock,
                begins=process.clock.monotonic(),
                dice=Random(f"{plan.seed} {name}"),  # noqa: S311 - no secret
            )
            for name in sorted(process.used)
        }
        self.providers = dict(self.vendors)


class RehearsedIntake(Part):
    """Accepts notifications of one template, which every channel has."""

    intake: Intake

    def __init__(self, process: Process, ledger: RehearsedLedger, worker: WorkerPart) -> None:
        self._process = process
        self._ledger = ledger
        self._worker = worker

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        process, ledger = self._process, self._ledger.ledger
        self.intake = Intake(
            ledger=ledger,
            templates=played_templates(process.settings, process.chains),
            signal=ledger.signal,
            rules=from_settings.plan_rules(process.settings, process.chains),
            observer=process.observe,
            ids=new_id,
            clock=process.clock,
            claim_on_accept=self._worker.claim_on_accept(),
            max_pending=1_000_000,
        )


PLAYED = "rehearsal"


def played_templates(settings: Settings, chains: Mapping[str, Any]) -> FileTemplates:
    """One short template for every channel."""
    locale = settings.locale.default
    return FileTemplates(
        {
            (PLAYED, channel, locale): Template(
                code=PLAYED, channel=channel, locale=locale, subject="Rehearsal", text="A rehearsal."
            )
            for channel in chains
        }
    )


class Watcher(Part):
    """Hands every event of the process to the rehearsal."""

    def __init__(self, watch: Observer) -> None:
        self._watch = watch

    def observers(self) -> Sequence[Callable[[Event], None]]:
        return (self._watch,)


def stage(process: Process, plan: RehearsalPlan, watch: Observer, due_in: Callable[[], float | None]) -> list[Part]:
    """The parts in the order in which the program opens them."""
    ledger = RehearsedLedger(process, due_in)
    breakers = BreakersPart(process, ledger)
    providers = RehearsedProviders(process, plan)
    worker = WorkerPart(process, ledger, providers, breakers)
    return [
        ledger,
        breakers,
        providers,
        worker,
        RehearsedIntake(process, ledger, worker),
        ProbingPart(process, providers, breakers),
        Watcher(watch),
        Listener(process, ledger),
    ]
