"""What a process serves over HTTP: every endpoint of its parts, or the health checks, or only the two probes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from carillon.compose import access, from_settings
from carillon.compose.ledger import LedgerPart
from carillon.compose.live import LivePart
from carillon.compose.part import Ending, Part
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.config.settings import Settings
from carillon.upkeep import health
from carillon.upkeep.console import api as console_api
from carillon.upkeep.console import files as console_files
from carillon.upkeep.console.series import Series
from carillon.upkeep.health import Checks, Readiness
from carillon.web import Endpoint, NoServer, ProbeServer, Server, ServerSettings, app
from carillon.web.application import Application
from carillon.web.limits import is_loopback

if TYPE_CHECKING:
    from carillon.web.tickets import Tickets

PAGES = ("queues", "overview", "notifications", "dead-letters", "templates", "outbox", "drills", "streams")
"""The console's pages in the order of its menu."""


class AnyServer(Protocol):
    """A listener of one of the kinds below."""

    @property
    def port(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self, grace: float) -> None: ...


class Listener(Part):
    """The program starts it behind every other part's `open`; its place in the list says when it stops."""

    def __init__(
        self,
        process: Process,
        ledger: LedgerPart,
        *,
        live: LivePart | None = None,
        providers: ProvidersPart | None = None,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._live = live
        self._providers = providers
        self._server: AnyServer = NoServer()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """Where the process listens, as it is told to people."""
        return f"http://{self._process.settings.http.host}:{self.port}"

    @property
    def own_address(self) -> str:
        """How this process reaches itself."""
        host = self._process.settings.http.host
        reached = host if is_loopback(host) else "127.0.0.1"
        return f"http://{f'[{reached}]' if ':' in reached else reached}:{self.port}"

    async def start(self, parts: Sequence[Part], readiness: Readiness, series: Series, *, doors: bool) -> Checks:
        """Serve what these parts have to serve; returns what the process depends on."""
        checks = checks_of(parts)
        self._server = self._build(parts, readiness, series, checks, doors=doors)
        await self._server.start()
        return checks

    async def stop(self, ending: Ending) -> None:
        await self._server.stop(ending.deadline.left())

    def _build(
        self, parts: Sequence[Part], readiness: Readiness, series: Series, checks: Checks, *, doors: bool
    ) -> AnyServer:
        process = self._process
        if process.embedded:
            return NoServer()
        where = server_settings(process.settings, share_port=process.share_port)
        surface = process.settings.http.surface
        if surface == "probes":
            return ProbeServer(health.probes(readiness), where, process.observe)
        endpoints = [found for part in parts if (found := part.health(checks)) is not None]
        if doors:
            endpoints += [] if surface == "health" else [each for part in parts for each in part.endpoints()]
            endpoints += self._console(parts, series)
        endpoints = with_usual(endpoints, health.endpoints(readiness, checks))
        if surface == "health" and not access.console_served(process.settings):
            # Nothing but health is served: nobody is asked who they are.
            return Server(app(endpoints), where)
        streams = self._live.streams if self._live is not None and doors else None
        application = self._application(endpoints, None if streams is None else streams.tickets)
        return Server(application, where) if streams is None else streams.server(application, where)

    def _application(self, endpoints: list[Endpoint], tickets: "Tickets | None") -> Application:
        process = self._process
        return app(endpoints, access.web_settings(process.settings, self._ledger.ledger, tickets, process.observe))

    def _console(self, parts: Sequence[Part], series: Series) -> list[Endpoint]:
        """The console's files and what it asks beyond the API, where the settings allow a console."""
        process = self._process
        if not access.console_served(process.settings):
            return []
        pages = {page for part in parts for page in part.pages()}
        desk = console_api.Desk(
            self._ledger.ledger,
            from_settings.lanes(process.settings),
            series,
            process.clock,
            blueprint=process.settings.blueprint,
            pages=[page for page in PAGES if page in pages] + sorted(pages - set(PAGES)),
        )
        desk.channels = process.chains
        desk.sandboxes = [] if self._providers is None else list(self._providers.sandboxes)
        asked = console_api.endpoints(desk)
        if "overview" not in pages:
            asked = [endpoint for endpoint in asked if endpoint.name != "consoleOverview"]
        return [*console_files.endpoints(), *asked]


def checks_of(parts: Sequence[Part]) -> Checks:
    """What the process depends on, and what else there is to say about its health."""
    needed = {name: check for part in parts for name, check in part.checks().items()}
    return Checks(needed, {name: fact for part in parts for name, fact in part.facts().items()})


def with_usual(endpoints: list[Endpoint], usual: list[Endpoint]) -> list[Endpoint]:
    """An endpoint that a part brings along goes before the usual one."""
    taken = {(endpoint.method, endpoint.path) for endpoint in endpoints}
    return [*endpoints, *(each for each in usual if (each.method, each.path) not in taken)]


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
