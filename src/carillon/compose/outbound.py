"""Outbound of a process: breakers, the worker, and delivery while the caller waits."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar

from carillon.compose import from_settings, messages
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart, mail_completer
from carillon.config.settings import Settings
from carillon.domain.breaker import State
from carillon.domain.events import Rehomed
from carillon.domain.lanes import SYNCHRONOUS
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Provider, Signal
from carillon.intake.accept import Intake, SynchronousIntake
from carillon.ledger.opening import Ledger
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import BreakerProbe, MemoryBreakers, RecoverableBreakers
from carillon.outbound.breakers.shared import LedgerBreakers, SharedBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.synchronous import SynchronousDelivery, SynchronousRules, SynchronousSweep
from carillon.outbound.targets import Targets
from carillon.outbound.worker import Worker, WorkerClaimOnAccept, WorkerRules
from carillon.providers import Tools
from carillon.providers.sandbox import Sandbox
from carillon.system import new_id, system_dice
from carillon.upkeep.health import Check, degraded
from carillon.upkeep.metrics.meters import Metrics

if TYPE_CHECKING:
    from carillon.compose.redis import SharedRedis

LEASE_SHARE = 3.0
"""A synchronous delivery is abandoned after three times its timeout."""
USUAL_SECONDS = 2.0


class BreakersPart(Part):
    """Breakers in Redis if there is one, in the ledger if the settings say so, else in memory.

    What the fleet knows about targets is in Redis if there is one, else in the ledger.
    """

    title = "Redis"
    kept: ClassVar[str | None] = None
    """What this Redis also keeps that no Redis Cluster can."""
    breakers: RecoverableBreakers
    targets: Targets

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger
        self.shared: SharedRedis | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        process, settings = self._process, self._process.settings
        policies = from_settings.breaker_policies(settings)
        if settings.redis.url is not None:
            from carillon.compose.redis import SharedRedis  # noqa: PLC0415 - see its first line

            self.shared = SharedRedis(settings.redis.url, cluster=settings.redis.cluster)
            stack.push_async_callback(self.shared.aclose)
            await self.shared.check_topology(self.kept)
            self.breakers = self.shared.breakers(settings, process.clock, process.observe)
        elif settings.ledger.share_breakers:
            self.breakers = LedgerBreakers(
                self._ledger.ledger, policies, service=settings.service, clock=process.clock, observer=process.observe
            )
        else:
            self.breakers = MemoryBreakers(policies, process.clock, process.observe)
        if isinstance(self.breakers, SharedBreakers):
            stack.callback(self.breakers.leave)
        self.targets = Targets(
            self._ledger.ledger if self.shared is None else self.shared.targets(),
            from_settings.endpoint_policies(settings),
            service=settings.service,
            clock=process.clock,
            observer=process.observe,
            rates=from_settings.rates(settings),
        )

    def checks(self) -> Mapping[str, Check]:
        # Without Redis each process uses its own breakers: degraded, not down.
        return {} if self.shared is None else {"redis": degraded(self.shared.check)}

    def facts(self) -> Mapping[str, Check]:
        async def ask() -> dict[str, Any]:
            states = await self.breakers.states()
            closed = all(state is State.CLOSED for state in states.values())
            return {
                "status": "healthy" if closed else "degraded",
                "states": {name: str(state) for name, state in states.items()},
            }

        return {"breakers": ask}

    async def examine(self) -> list[DoctorFinding]:
        settings = self._process.settings
        location = settings.redis.location()
        if settings.stream is not None:
            return []
        if location is None:
            shared = (
                "the ledger shares breakers"
                if settings.ledger.share_breakers
                else "each process keeps its own breakers"
            )
            return [DoctorFinding("Redis", "ok", f"not configured; {shared}")]
        from carillon.compose.redis import examine_redis  # noqa: PLC0415 - see its first line

        return [await examine_redis(location, "shared breakers", part=self.kept, cluster=settings.redis.cluster)]


class ProbingPart(Part):
    """Asks providers whose breaker is open; a drill's time scale shortens the interval too."""

    role = Role.OUTBOUND

    def __init__(self, process: Process, providers: ProvidersPart, breakers: BreakersPart) -> None:
        self._process = process
        self._providers = providers
        self._breakers = breakers

    def run(self) -> Mapping[str, Loop]:
        settings = self._process.settings
        if not settings.probing.providers:
            return {}
        probing = BreakerProbe(
            providers=self._providers.providers,
            names=settings.probing.providers,
            breakers=self._breakers.breakers,
            clock=self._process.clock,
            observer=self._process.observe,
            every_seconds=settings.probing.interval_seconds * settings.drill.time_scale,
        )
        return {"probing": probing.run}


def synchronous(
    process: Process,
    stack: AsyncExitStack,
    *,
    intake: Intake,
    ledger: Ledger,
    providers: dict[str, Provider],
    breakers: Breakers,
    targets: Targets,
) -> SynchronousDelivery | None:
    """Synchronous delivery; None if the blueprint has no synchronous lane."""
    settings = process.settings
    lane = settings.lanes.get(SYNCHRONOUS)
    if lane is None:
        return None
    tools = from_settings.tools(settings, process.clock, system_dice)
    stack.push_async_callback(tools.http.aclose)
    seconds = lane.timeout_seconds or USUAL_SECONDS
    return SynchronousDelivery(
        enrol=SynchronousIntake(
            intake, ledger, process.observe, owner=process.owner, seconds=seconds * LEASE_SHARE
        ).enrol,
        providers=_own_providers(process, stack, tools, providers),
        breakers=breakers,
        settler=Settler(ledger, process.observe),
        stories=ledger,
        rules=_synchronous_rules(process, seconds),
        clock=process.clock,
        ids=new_id,
        targets=targets,
        completer=mail_completer(settings, ledger, tools),
    )


def _synchronous_rules(process: Process, seconds: float) -> SynchronousRules:
    settings = process.settings
    return SynchronousRules(
        chains=process.chains,
        seconds=seconds,
        use_cases=settings.synchronous.use_cases,
        slots=settings.synchronous.slots,
        strict_receipts=settings.strict_receipts,
        policies=from_settings.policies(settings),
        suppressions=from_settings.suppression_terms(settings),
        unsubscribe=from_settings.unsubscribes(settings),
    )


def _own_providers(
    process: Process, stack: AsyncExitStack, tools: Tools, shared: dict[str, Provider]
) -> dict[str, Provider]:
    """Providers with connections of their own: a slow vendor may occupy all connections of the workers."""
    kept = {name: provider for name, provider in shared.items() if isinstance(provider, Sandbox)}
    own = from_settings.providers(process.settings, process.used - kept.keys(), tools)
    for provider in own.values():
        stack.push_async_callback(provider.aclose)
    return own | kept


def abandoned(process: Process, ledger: Ledger) -> SynchronousSweep | None:
    """The sweep of abandoned synchronous deliveries; None without a synchronous lane."""
    lane = process.settings.lanes.get(SYNCHRONOUS)
    if lane is None:
        return None
    return SynchronousSweep(
        ledger=ledger,
        backlog=ledger,
        settler=Settler(ledger, process.observe),
        lane=lane,
        instead=process.settings.lanes["priority"],
        providers=process.used,
        clock=process.clock,
        observer=process.observe,
        owner=process.owner,
    )


Chains = dict[str, tuple[str, ...]]
Leased = Callable[[Backlog, AsyncExitStack], Backlog]
"""Wraps a backlog so that its claims are leased in Redis too."""


class WorkerPart(Part):
    """Claims routes in the ledger, sends them through providers and settles them."""

    role = Role.OUTBOUND

    def __init__(
        self,
        process: Process,
        ledger: LedgerPart,
        providers: ProvidersPart,
        breakers: BreakersPart,
        leased: Leased | None = None,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self._breakers = breakers
        self._leased = leased
        self.worker: Worker | None = None
        """None if the process does not send."""

    async def open(self, stack: AsyncExitStack) -> None:
        process, ledger = self._process, self._ledger.ledger
        self.worker = build_worker(
            process.settings,
            backlog=ledger if self._leased is None else self._leased(ledger, stack),
            signal=ledger.signal,
            providers=self._providers.providers,
            breakers=self._breakers.breakers,
            chains=process.chains,
            clock=process.clock,
            observer=process.observe,
            owner=process.owner,
            targets=self._breakers.targets,
            preparing={"completer": mail_completer(process.settings, ledger, self._providers.tools)},
        )
        await self._rehome()

    def claim_on_accept(self) -> WorkerClaimOnAccept | None:
        """None if no worker runs beside the doors, or if claims are leased outside the ledger too."""
        settings = self._process.settings
        if self.worker is None or not settings.work.claim_on_accept or settings.stream is not None:
            return None
        return WorkerClaimOnAccept(self.worker, self._ledger.ledger, self._process.owner, settings.ledger.lease_seconds)

    def gauges(self, metrics: Metrics) -> None:
        if self.worker is not None:
            metrics.watch_waits(self.worker.waits, asyncio.get_running_loop())

    def run(self) -> Mapping[str, Loop]:
        if self.worker is None:
            return {}
        for channel, chain in self._process.chains.items():
            self._process.tell_started(f"{channel}_publisher", " → ".join(chain))
        return {"worker": self.worker.run}

    def rest(self, seconds: float) -> None:
        if self.worker is not None:
            self.worker.stop_claiming(seconds)

    async def stop(self, ending: PartEnd) -> None:
        if self.worker is not None:
            self.worker.stop()
            # The worker cancels its calls at the deadline itself.
            await ending.finish()
            for channel in self._process.chains:
                self._process.tell_stopped(f"{channel}_publisher")

    def facts(self) -> Mapping[str, Check]:
        async def ask() -> dict[str, Any]:
            return {"in_flight": 0 if self.worker is None else self.worker.in_flight}

        return {"worker": ask}

    async def _rehome(self) -> None:
        """Move routes that wait for a provider or lane that the settings no longer have; nobody would claim them."""
        lanes, process = from_settings.lanes(self._process.settings), self._process
        ranks = [lane.rank for lane in lanes.ordered()]
        for channel, chain in process.chains.items():
            moved = await self._ledger.ledger.rehome(channel, chain, ranks, lanes.by_name["standard"].rank)
            if moved:
                process.observe(Rehomed(channel=channel, routes=moved, provider=chain[0]))


def build_worker(
    settings: Settings,
    *,
    backlog: Backlog,
    signal: Signal,
    providers: dict[str, Provider],
    breakers: Breakers,
    chains: Chains,
    clock: Clock,
    observer: Observer,
    owner: str,
    targets: Targets,
    preparing: Mapping[str, Any],
) -> Worker:
    """One worker over any backlog; `preparing` holds the fields of Attempts that make messages ready."""
    leases = Leases(backlog, clock, observer, settings.ledger.lease_seconds)
    attempts = Attempts(
        providers=providers,
        breakers=breakers,
        leases=leases,
        rules=_attempt_rules(settings, chains),
        clock=clock,
        dice=system_dice,
        targets=targets,
        **preparing,
    )
    return Worker(
        backlog=backlog,
        signal=signal,
        attempts=attempts,
        settler=Settler(backlog, observer, settings.work.batch),
        leases=leases,
        breakers=breakers,
        rules=_rules(settings, chains, providers),
        clock=clock,
        observer=observer,
        owner=owner,
        targets=targets,
    )


def _attempt_rules(settings: Settings, chains: Chains) -> AttemptRules:
    lanes, policies = from_settings.lanes(settings), from_settings.policies(settings)
    push = settings.push
    if push is None:
        picker = settings.task_picker is not None
        return AttemptRules(
            chains,
            policies,
            lanes,
            outlive_leases=picker,
            give_back=picker,
            suppressions=from_settings.suppression_terms(settings),
            categories=from_settings.categories(settings),
            unsubscribe=from_settings.unsubscribes(settings),
            phones=messages.phone_rules(settings),
            groups=from_settings.groups(settings),
        )
    return AttemptRules(
        chains,
        policies,
        lanes,
        half_open_wait_seconds=push.half_open_seconds,
        end_on_open=True,
        throttled_fails=True,
    )


def _rules(settings: Settings, chains: Chains, providers: Mapping[str, Provider]) -> WorkerRules:
    lanes, policies = from_settings.lanes(settings), from_settings.policies(settings)
    work = settings.work
    return WorkerRules(
        lanes=lanes,
        chains=chains,
        skip_open=policies.all_defer,
        concurrency=work.concurrency,
        first_claims=work.first_claims,
        batch=work.batch,
        max_in_flight=_own_limits(providers) | work.max_in_flight,
        groups=from_settings.groups(settings),
        poll_seconds=work.poll_seconds,
        drain_seconds=work.drain_seconds,
    )


def _own_limits(providers: Mapping[str, Provider]) -> dict[str, int]:
    """How many calls a provider makes at once: it would keep more of them waiting while their time runs out."""
    found = {name: getattr(one, "calls_at_once", None) for name, one in providers.items()}
    return {name: most for name, most in found.items() if most is not None}
