"""What a process serves over HTTP: every endpoint of its parts, or the health checks, or only the two probes."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from carillon.compose import access, from_settings, rehearsals
from carillon.compose.ledger import LedgerPart
from carillon.compose.live import LivePart
from carillon.compose.outbound import BreakersPart
from carillon.compose.part import Part, PartEnd
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.config.settings import Settings
from carillon.upkeep import health
from carillon.upkeep.console import api as console_api
from carillon.upkeep.console.attention import Lookout
from carillon.upkeep.console.series import Series
from carillon.upkeep.health import Checks, OneLook, Readiness, examine
from carillon.web import Endpoint, NoServer, ProbeServer, Server, ServerSettings, WebSettings, app
from carillon.web.application import Application
from carillon.web.gate import is_loopback
from carillon.web.request import Caller
from carillon.web.streaming import Lasting

if TYPE_CHECKING:
    from carillon.web.auth import Tickets

OF_OVERVIEW = frozenset({"consoleOverview", "consoleHistory"})
"""The endpoints of the console that a blueprint without an overview does not have."""
PAGES = ("queues", "overview", "notifications", "dead-letters", "templates", "outbox", "drills", "rehearsal", "streams")
"""The console's pages in the order of its menu."""
BY_ITSELF = frozenset({"overview"})
"""The pages that show what the console's own endpoints say; the others ask those of the parts."""


class AnyServer(Protocol):
    """The listener of a process: granian, streams, probes only, or none."""

    @property
    def port(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self, grace: float) -> None: ...


class Listener(Part):
    """Serves HTTP: the program starts it after every part is open, and stops it at its place in the list."""

    def __init__(
        self,
        process: Process,
        ledger: LedgerPart,
        *,
        live: LivePart | None = None,
        providers: ProvidersPart | None = None,
        breakers: BreakersPart | None = None,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._live = live
        self._providers = providers
        self._breakers = breakers
        self._server: AnyServer = NoServer()
        self._lasting: Lasting | None = None

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """The address that the process prints for people."""
        return self._url(self._process.settings.http.host)

    @property
    def own_address(self) -> str:
        """The address under which this process calls itself."""
        host = self._process.settings.http.host
        return self._url(host if is_loopback(host) else "127.0.0.1")

    def _url(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self, parts: Sequence[Part], readiness: Readiness, series: Series, *, doors: bool) -> Checks:
        """Serve the endpoints of these parts; returns the checks of everything that the process depends on."""
        checks = checks_of(parts)
        self._server = self._build(parts, readiness, series, checks, doors=doors)
        await self._server.start()
        return checks

    def within(self, parts: Sequence[Part], actor: str) -> Application:
        """The whole API for the program that embeds this process, which may do everything under this name."""
        settings = self._process.settings
        where = WebSettings(
            body_limit=settings.http.max_body_bytes,
            # The host alone calls, and nobody would ask again for it.
            max_in_flight=sys.maxsize,
            caller=Caller(actor, service=actor),
            docs=False,
            observe=self._process.observe,
        )
        return app([each for part in parts for each in part.endpoints()], where)

    def rest(self, seconds: float) -> None:
        del seconds
        if self._lasting is not None:
            self._lasting.end()

    async def stop(self, ending: PartEnd) -> None:
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
            endpoints += self._console(parts, series, checks)
        # Where callers prove nothing, only loopback may see details, as it may see everything else.
        local = not process.settings.auth.asked() and is_loopback(process.settings.http.host)
        endpoints = with_usual(endpoints, health.endpoints(readiness, checks, tells_strangers=local))
        if surface == "health" and not access.console_served(process.settings):
            # The listener serves health checks only, which need no authentication.
            return Server(app(endpoints), where)
        streams = self._live.streams if self._live is not None and doors else None
        application = self._application(endpoints, None if streams is None else streams.tickets)
        if streams is None or not streams.own_listener:
            return Server(application, where)
        return streams.server(application, where)

    def _application(self, endpoints: list[Endpoint], tickets: "Tickets | None") -> Application:
        process = self._process
        where = access.web_settings(process.settings, self._ledger.ledger, tickets, process.observe)
        application = app(endpoints, where)
        self._lasting = application.lasting
        return application

    def _console(self, parts: Sequence[Part], series: Series, checks: Checks) -> list[Endpoint]:
        """The console's files and its own endpoints, if the settings allow a console."""
        process = self._process
        if not access.console_served(process.settings):
            return []
        pages, absent = self._pages(parts)
        console = console_api.Console(
            self._ledger.ledger,
            from_settings.lanes(process.settings),
            series,
            process.clock,
            blueprint=process.settings.blueprint,
            pages=[page for page in PAGES if page in pages] + sorted(pages - set(PAGES)),
        )
        console.channels = process.chains
        console.absent = absent
        console.sandboxes = [] if self._providers is None else list(self._providers.sandboxes)
        if self._breakers is not None:
            look = OneLook(lambda: examine(checks.needed))
            breakers, targets = self._breakers.breakers, self._breakers.targets
            console.lookout = Lookout(
                chains=process.chains, breakers=breakers, targets=targets, dependencies=look.result
            )
        asked = console_api.endpoints(console)
        if "overview" not in pages:
            asked = [endpoint for endpoint in asked if endpoint.name not in OF_OVERVIEW]
        return [*console_api.file_endpoints(), *asked]

    def _pages(self, parts: Sequence[Part]) -> tuple[set[str], dict[str, str]]:
        """The console's pages, and those that this process does not have, each with the reason."""
        settings = self._process.settings
        pages = {page for part in parts for page in part.pages()}
        missing = rehearsals.absent(settings)
        absent = {} if missing is None else {rehearsals.PAGE: missing}
        if settings.http.surface != "health":
            return pages, absent
        said = 'this page needs the whole API: set http.surface = "full"'
        return pages & BY_ITSELF, dict.fromkeys(pages - BY_ITSELF, said) | absent


def checks_of(parts: Sequence[Part]) -> Checks:
    """The checks of the process's dependencies, and the further facts of /health."""
    needed = {name: check for part in parts for name, check in part.checks().items()}
    return Checks(needed, {name: fact for part in parts for name, fact in part.facts().items()})


def with_usual(endpoints: list[Endpoint], usual: list[Endpoint]) -> list[Endpoint]:
    """The /health of a part, if one has its own; else the usual one."""
    taken = {(endpoint.method, endpoint.path) for endpoint in endpoints}
    return [*endpoints, *(each for each in usual if (each.method, each.path) not in taken)]


def server_settings(settings: Settings, *, share_port: bool) -> ServerSettings:
    """The address and the timeouts of the listener."""
    http = settings.http
    return ServerSettings(
        host=http.host,
        port=http.port,
        share_port=share_port,
        head_seconds=http.header_timeout_seconds,
        read_seconds=http.read_timeout_seconds,
        idle_seconds=http.idle_timeout_seconds,
        max_connections=http.max_connections,
        idle_per_address=http.max_idle_connections_per_address,
        trusted_proxies=tuple(http.trusted_proxies),
    )
