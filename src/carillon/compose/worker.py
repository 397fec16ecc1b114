"""The worker, built from its settings."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from carillon.compose import from_settings
from carillon.compose.breakers import BreakersPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Ending, Loop, Part, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.config.settings import Settings
from carillon.domain.events import Rehomed
from carillon.domain.lanes import Lanes
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Preparer, Provider, Signal
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.worker import Worker, WorkerClaimOnAccept, WorkerRules
from carillon.system import system_dice
from carillon.upkeep.health import Check

Chains = dict[str, tuple[str, ...]]
Leased = Callable[[Backlog, AsyncExitStack], Backlog]
"""A backlog whose claims are leased in a second place as well."""


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
        """None where the process does not send."""

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
        )
        await self._rehome()

    def claim_on_accept(self) -> WorkerClaimOnAccept | None:
        """None where no worker runs beside the doors, or where a claim is made outside the ledger too."""
        settings = self._process.settings
        if self.worker is None or not settings.work.claim_on_accept or settings.stream is not None:
            return None
        return WorkerClaimOnAccept(self.worker, self._ledger.ledger, self._process.owner, settings.ledger.lease_seconds)

    def run(self) -> Mapping[str, Loop]:
        if self.worker is None:
            return {}
        for channel, chain in self._process.chains.items():
            self._process.tell_started(f"{channel}_publisher", " → ".join(chain))
        return {"worker": self.worker.run}

    def rest(self, seconds: float) -> None:
        if self.worker is not None:
            self.worker.stop_claiming(seconds)

    async def stop(self, ending: Ending) -> None:
        if self.worker is not None:
            self.worker.stop()
            # The worker cuts its calls off by itself.
            await ending.finish()
            for channel in self._process.chains:
                self._process.tell_stopped(f"{channel}_publisher")

    def facts(self) -> Mapping[str, Check]:
        async def ask() -> dict[str, Any]:
            return {"in_flight": 0 if self.worker is None else self.worker.in_flight}

        return {"worker": ask}

    async def _rehome(self) -> None:
        """Move what waits for a provider or lane that the settings no longer have; it would wait for ever."""
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
    preparer: Preparer | None = None,
) -> Worker:
    """One worker over any backlog."""
    lanes, policies = from_settings.lanes(settings), from_settings.policies(settings)
    leases = Leases(backlog, clock, observer, settings.ledger.lease_seconds)
    attempts = Attempts(
        providers=providers,
        breakers=breakers,
        leases=leases,
        rules=_attempt_rules(settings, lanes, policies, chains),
        clock=clock,
        dice=system_dice,
        preparer=preparer,
    )
    return Worker(
        backlog=backlog,
        signal=signal,
        attempts=attempts,
        settler=Settler(backlog, observer, settings.work.batch),
        leases=leases,
        breakers=breakers,
        rules=_rules(settings, lanes, policies, chains),
        clock=clock,
        observer=observer,
        owner=owner,
    )


def _attempt_rules(settings: Settings, lanes: Lanes, policies: PolicyTable, chains: Chains) -> AttemptRules:
    push = settings.push
    if push is None:
        picker = settings.task_picker is not None
        return AttemptRules(chains, policies, lanes, outlive_leases=picker, give_back=picker)
    return AttemptRules(
        chains,
        policies,
        lanes,
        half_open_wait_seconds=push.half_open_seconds,
        end_on_open=True,
        throttled_fails=True,
    )


def _rules(settings: Settings, lanes: Lanes, policies: PolicyTable, chains: Chains) -> WorkerRules:
    work = settings.work
    return WorkerRules(
        lanes=lanes,
        chains=chains,
        skip_open=policies.all_defer,
        concurrency=work.concurrency,
        first_claims=work.first_claims,
        batch=work.batch,
        max_in_flight=work.max_in_flight,
        poll_seconds=work.poll_seconds,
        drain_seconds=work.drain_seconds,
    )
