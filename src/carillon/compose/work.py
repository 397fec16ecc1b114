"""The worker, built from its settings."""

from carillon.compose import parts
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.events import Rehomed
from carillon.domain.lanes import Lanes
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import Backlog, Breakers, Clock, Observer, Preparer, Provider, Signal
from carillon.ledger.opening import Ledger
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.worker import Worker, WorkerClaimOnAccept, WorkerRules
from carillon.system import system_dice

Chains = dict[str, tuple[str, ...]]


def worker(
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
    """One worker over whichever backlog."""
    lanes, policies = parts.lanes(settings), parts.policies(settings)
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


async def rehome(process: Process, ledger: Ledger, lanes: Lanes) -> None:
    """What waits for a provider or lane that the settings no longer have would wait for ever."""
    ranks = [lane.rank for lane in lanes.ordered()]
    for channel, chain in process.chains.items():
        moved = await ledger.rehome(channel, chain, ranks, lanes.by_name["standard"].rank)
        if moved:
            process.observe(Rehomed(channel=channel, routes=moved, provider=chain[0]))


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


def claim_on_accept(
    settings: Settings, worker: Worker | None, ledger: Ledger, owner: str
) -> WorkerClaimOnAccept | None:
    """None where nobody works beside the doors, or where a claim is made otherwise than in the ledger alone."""
    if worker is None or not settings.work.claim_on_accept or settings.stream is not None:
        return None
    return WorkerClaimOnAccept(worker, ledger, owner, settings.ledger.lease_seconds)


def _rules(settings: Settings, lanes: Lanes, policies: PolicyTable, chains: Chains) -> WorkerRules:
    work = settings.work
    return WorkerRules(
        lanes=lanes,
        chains=chains,
        skip_open=all(policy.on_open == "defer" for policy in policies.policies.values()),
        concurrency=work.concurrency,
        first_claims=work.first_claims,
        batch=work.batch,
        max_in_flight=work.max_in_flight,
        poll_seconds=work.poll_seconds,
        drain_seconds=work.drain_seconds,
    )
