"""The console, where a blueprint allows one."""

from carillon.compose import parts
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.ports import Clock, Provider
from carillon.ledger.opening import Ledger
from carillon.providers.sandbox import Sandbox
from carillon.upkeep.console import api as console_api
from carillon.upkeep.console import files as console_files
from carillon.upkeep.console.series import Series
from carillon.web import Endpoint

QUEUES = ("queues",)
EVERYWHERE = ("overview", "notifications", "dead-letters", "templates")


def endpoints(process: Process, ledger: Ledger, providers: dict[str, Provider], series: Series) -> list[Endpoint]:
    """Its files and what it asks beyond the API."""
    if not process.settings.http.console:
        return []
    pages = list(EVERYWHERE)
    sandboxes = [name for name, provider in providers.items() if isinstance(provider, Sandbox)]
    if sandboxes:
        pages += ["outbox", "drills"]
    if process.settings.sse is not None:
        pages.append("streams")
    desk = console_api.Desk(
        ledger,
        parts.lanes(process.settings),
        series,
        process.clock,
        blueprint=process.settings.blueprint,
        pages=pages,
    )
    desk.channels = process.chains
    desk.sandboxes = sandboxes
    return [*console_files.endpoints(), *console_api.endpoints(desk)]


def of_queues(settings: Settings, ledger: Ledger, series: Series, clock: Clock) -> list[Endpoint]:
    """The same for a process that works off queues: nothing is sent through channels there."""
    if not settings.http.console:
        return []
    lanes = parts.lanes(settings)
    desk = console_api.Desk(ledger, lanes, series, clock, blueprint=settings.blueprint, pages=QUEUES)
    asked = [endpoint for endpoint in console_api.endpoints(desk) if endpoint.name != "consoleOverview"]
    return [*console_files.endpoints(), *asked]
