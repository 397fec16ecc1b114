"""Where a listener listens, and how patient it is."""

import errno
import socket

import msgspec

from carillon.domain.errors import ConfigurationError


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen and how patient to be with a connection."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one; `Server.port` then knows it."""
    share_port: bool = False
    """True lets several processes listen on one port (SO_REUSEPORT); the kernel spreads the connections."""
    head_seconds: float = 10.0
    """How long a request's head may take; for `Server` also how long a kept connection may stay silent."""
    read_seconds: float = 10.0
    """How long a whole request may take, where probes are served alone."""
    idle_seconds: float = 60.0
    """How long a kept connection may stay silent, where probes are served alone or replies may last."""
    write_seconds: float = 10.0
    """How long a reader may make no room for what is written to it, where replies may last."""
    head_bytes: int = 16_384
    backlog: int = 1024
    max_connections: int = 4096


def listen(settings: ServerSettings) -> socket.socket:
    """A bound socket; ConfigurationError says why there is none."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.share_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(settings.backlog)
        listener.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    except OSError as error:
        listener.close()
        hint = "; CARILLON_HTTP__PORT names another port" if error.errno == errno.EADDRINUSE else ""
        raise ConfigurationError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}{hint}") from None
    return listener
