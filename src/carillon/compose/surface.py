"""What a process serves over HTTP: every endpoint, or only the two probes."""

from typing import Any, Protocol

from carillon.compose import parts
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.breaker import State
from carillon.domain.explain import Looks
from carillon.domain.ports import Breakers, Provider
from carillon.domain.synchronous import SendsNow
from carillon.doors.http import endpoints as http_door
from carillon.intake.accept import Intake
from carillon.intake.explain import Explainer
from carillon.ledger.opening import Ledger
from carillon.outbound.worker import Worker
from carillon.providers.sandbox import Drill, Sandbox
from carillon.upkeep import health
from carillon.upkeep.api import notifications as api
from carillon.upkeep.api import sandbox
from carillon.upkeep.health import Check, Readiness
from carillon.web import Endpoint, ServerSettings, WebSettings, app
from carillon.web.application import Application


class Checked(Protocol):
    """What can say how it is."""

    async def check(self) -> dict[str, Any]: ...


class Opened(Protocol):
    """The parts of a process that are reached over HTTP."""

    @property
    def intake(self) -> Intake: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def providers(self) -> dict[str, Provider]: ...
    @property
    def breakers(self) -> Looks: ...
    @property
    def synchronous(self) -> SendsNow | None: ...


def doors(process: Process, opened: Opened) -> list[Endpoint]:
    """Everything that is more than a probe."""
    chains, intake, ledger = process.chains, opened.intake, opened.ledger
    explainer = Explainer(intake, ledger, opened.breakers, parts.plan_rules(process.settings, chains))
    endpoints = http_door.endpoints(intake, synchronous=opened.synchronous, explains=explainer)
    lanes = parts.lanes(process.settings)
    endpoints += api.endpoints(ledger, chains, lanes, strict_receipts=process.settings.strict_receipts)
    sandboxes = [provider for provider in opened.providers.values() if isinstance(provider, Sandbox)]
    if sandboxes:
        endpoints += sandbox.endpoints(sandboxes, list(chains), Drill)
    return endpoints


def checks(ledger: Ledger, breakers: Breakers, worker: Worker | None, redis: Checked | None) -> dict[str, Check]:
    """What /health asks."""

    async def ask_breakers() -> dict[str, Any]:
        states = await breakers.states()
        closed = all(state is State.CLOSED for state in states.values())
        return {
            "status": "healthy" if closed else "degraded",
            "states": {name: str(state) for name, state in states.items()},
        }

    async def ask_worker() -> dict[str, Any]:
        return {"in_flight": 0 if worker is None else worker.in_flight}

    found: dict[str, Check] = {"ledger": ledger.check, "breakers": ask_breakers}
    if worker is not None:
        found["worker"] = ask_worker
    if redis is not None:
        found["redis"] = redis.check
    return found


def application(
    endpoints: list[Endpoint], readiness: Readiness, checks: dict[str, Check], web: WebSettings
) -> Application:
    """One application of all endpoints and the health checks; one that a blueprint brings along goes before ours."""
    taken = {(endpoint.method, endpoint.path) for endpoint in endpoints}
    usual = [each for each in health.endpoints(readiness, checks) if (each.method, each.path) not in taken]
    return app([*endpoints, *usual], web)


def server_settings(settings: Settings, *, share_port: bool) -> ServerSettings:
    """Where the listener listens and how patient it is."""
    http = settings.http
    return ServerSettings(
        host=http.host,
        port=http.port,
        share_port=share_port,
        head_seconds=http.header_timeout_seconds,
        read_seconds=http.read_timeout_seconds,
        idle_seconds=http.idle_timeout_seconds,
    )
