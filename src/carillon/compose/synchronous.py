"""Delivery while the caller waits, built from its settings."""

from contextlib import AsyncExitStack

from carillon.compose import from_settings
from carillon.compose.process import Process
from carillon.domain.lanes import SYNCHRONOUS
from carillon.domain.ports import Breakers, Provider
from carillon.intake.accept import Intake
from carillon.intake.synchronous import IntakeHolder
from carillon.ledger.opening import Ledger
from carillon.outbound.settle import Settler
from carillon.outbound.synchronous import SynchronousDelivery, SynchronousRules
from carillon.outbound.synchronous_sweep import SynchronousSweep
from carillon.providers.sandbox import Sandbox
from carillon.system import new_id, system_dice

LEASE_SHARE = 3.0
"""A delivery is abandoned when it has taken three times what it may."""
USUAL_SECONDS = 2.0


def synchronous(
    process: Process,
    stack: AsyncExitStack,
    *,
    intake: Intake,
    ledger: Ledger,
    providers: dict[str, Provider],
    breakers: Breakers,
) -> SynchronousDelivery | None:
    """None where the blueprint has no lane for it."""
    settings = process.settings
    lane = settings.lanes.get(SYNCHRONOUS)
    if lane is None:
        return None
    seconds = lane.timeout_seconds or USUAL_SECONDS
    return SynchronousDelivery(
        holder=IntakeHolder(intake, ledger, process.observe, owner=process.owner, seconds=seconds * LEASE_SHARE),
        providers=_own_providers(process, stack, providers),
        breakers=breakers,
        settler=Settler(ledger, process.observe),
        stories=ledger,
        rules=SynchronousRules(
            chains=process.chains,
            seconds=seconds,
            use_cases=settings.synchronous.use_cases,
            slots=settings.synchronous.slots,
        ),
        clock=process.clock,
        ids=new_id,
    )


def _own_providers(process: Process, stack: AsyncExitStack, shared: dict[str, Provider]) -> dict[str, Provider]:
    """Connections of their own: those of the workers may all be taken by a slow vendor."""
    kept = {name: provider for name, provider in shared.items() if isinstance(provider, Sandbox)}
    tools = from_settings.tools(process.settings, process.clock, system_dice)
    stack.push_async_callback(tools.http.aclose)
    own = from_settings.providers(process.settings, process.used - kept.keys(), tools)
    for provider in own.values():
        stack.push_async_callback(provider.aclose)
    return own | kept


def abandoned(process: Process, ledger: Ledger) -> SynchronousSweep | None:
    """The sweep that goes with it."""
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
