"""The settings of the HTTP surface, and the sockets that its servers bind."""

import errno
import logging
import resource
import socket
from contextlib import suppress

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.domain.keys import KeyFinder
from carillon.domain.ports import Observer
from carillon.web.auth import JwtSettings, Tickets
from carillon.web.request import Caller

_log = logging.getLogger(__name__)
OTHER_FILES = 512
"""Files that a process opens beside its connections: stores, vendors, logs."""
_FEWEST_CONNECTIONS = 64


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the HTTP surface, and how callers prove who they are; None sets no limit."""

    body_limit: int = 262_144
    body_seconds: float = 10.0
    slow_bodies_per_address: int = 64
    """Bodies of one address that take longer than a second; 0 sets no limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies, whose X-Forwarded-For is believed."""
    max_in_flight: int = 1000
    requests_per_second: float | None = None
    """For each caller that a token names, or for each address where no tokens are used."""
    requests_burst: float = 200.0
    key_requests_per_second: float | None = None
    """For each API key, with the same burst."""
    anonymous_requests_per_second: float | None = None
    """For each address, for requests without the credentials that are required; the burst is twice as large."""
    auth_failures_per_minute: float | None = None
    """For each address; beyond it 429. A valid token is never refused for this reason."""
    jwt: JwtSettings | None = None
    keys: KeyFinder | None = None
    """Looks API keys up; works with and without tokens."""
    tickets: Tickets | None = None
    """Set where tickets open streams."""
    observe: Observer = lambda _: None
    """Receives an event for every refused token."""
    people_reach_tenant: bool = False
    """True: people and services reach all notifications of their tenant, where an endpoint is shared."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names served beside loopback; if it is empty and credentials are required, every name is served."""
    caller: Caller = Caller()
    """Who asks, where no credentials are required."""
    docs: bool = True
    """Serves /docs and /openapi.json; where credentials are required, /openapi.json requires them too."""
    title: str = "Carillon"
    version: str = "0"

    @property
    def asks(self) -> bool:
        """Whether credentials are required."""
        return self.jwt is not None or self.keys is not None


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and how long it waits for a client."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free port; `Server.port` then holds its number."""
    share_port: bool = False
    """True lets several processes listen on one port (SO_REUSEPORT); the kernel spreads the connections."""
    head_seconds: float = 10.0
    """The time for the head of a request; on granian also for the silence between two requests."""
    read_seconds: float = 10.0
    """The time for a whole request on a surface of probes alone."""
    idle_seconds: float = 60.0
    """The time for the silence between two requests on the h11 listener."""
    write_seconds: float = 10.0
    """How long a reply that lasts waits for a reader that takes none of the next bytes."""
    head_bytes: int = 16_384
    backlog: int = 1024
    max_connections: int = 4096
    idle_per_address: int = 1024
    """Connections of one address without a request under way; 0 sets no limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies, for which `idle_per_address` does not hold."""


def fitted(settings: ServerSettings) -> ServerSettings:
    """The settings with as many connections as this process may have open files beside its own."""
    room = _allow_files(settings.max_connections + OTHER_FILES) - OTHER_FILES
    if room >= settings.max_connections:
        return settings
    room = max(_FEWEST_CONNECTIONS, room)
    _log.warning(
        "only %d connections at once instead of %d: raise the limit of open files (ulimit -n, LimitNOFILE)",
        *(room, settings.max_connections),
    )
    return msgspec.structs.replace(settings, max_connections=room)


def _allow_files(wanted: int) -> int:
    """Raise the limit of open files as far as needed and allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def listen(settings: ServerSettings) -> socket.socket:
    """A listening socket; ConfigurationError says why the port cannot be had."""
    listener = reserve(settings)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.listen(settings.backlog)
    except OSError as error:
        listener.close()
        raise refused(settings, error) from None
    listener.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    return listener


def reserve(settings: ServerSettings) -> socket.socket:
    """A bound socket that does not listen yet; ConfigurationError says why the port cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        share(bound, shared=settings.share_port)
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise refused(settings, error) from None
    return bound


def share(bound: socket.socket, *, shared: bool) -> None:
    """Let other sockets bind the same port from now on, or no longer."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))


def refused(settings: ServerSettings, error: BaseException) -> ConfigurationError:
    """The error of a server that cannot listen."""
    reason, hint = str(error), ""
    if isinstance(error, OSError):
        reason = error.strerror or reason
        hint = "; CARILLON_HTTP__PORT names another port" if error.errno == errno.EADDRINUSE else ""
    return ConfigurationError(f"cannot listen on {settings.host}:{settings.port}: {reason}{hint}")
