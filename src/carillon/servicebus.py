"""The way to Azure Service Bus for the whole package; imported only where it is configured."""

import asyncio
import logging
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from azure.servicebus import parse_connection_string
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from carillon.domain.errors import ConfigurationError

OPEN_SECONDS = 4.0
"""The longest wait for a connection, its token and its link: another broker never answers the token.

Shorter than the timeout of the relay of alerts, so that the error names the sink."""
_LEAVE_SECONDS = 1.0
FAILURES = (ServiceBusError, OSError, ValueError)
"""What the vendor's library raises; ValueError is a client that was closed by another failure."""
_sockets: ContextVar[list[Any] | None] = ContextVar("servicebus_sockets", default=None)

# The library logs each failure with a traceback, and raises it too; those who call it report it.
logging.getLogger("azure.servicebus").setLevel(logging.CRITICAL)


class Namespace:
    """One connection to a namespace; its client repeats nothing by itself: the callers have their own pauses."""

    def __init__(self, connection_string: str) -> None:
        self.client = ServiceBusClient.from_connection_string(
            connection_string, retry_total=0, socket_timeout=OPEN_SECONDS, logging_enable=False
        )
        self._sockets: list[Any] = []
        _sockets.set(self._sockets)

    async def leave(self) -> None:
        """Close the connection; what was fetched and not settled goes back to its queue."""
        with suppress(*FAILURES, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self.client.close()
        for transport in self._sockets:
            if transport.writer is not None:
                transport.writer.transport.abort()


def checked(name: str, text: str) -> None:
    """Raise ConfigurationError, which names the setting and never its value, for what is no connection string."""
    try:
        parse_connection_string(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _watch_sockets() -> None:
    """The library forgets the socket of a connection that failed or never opened; each retry would cost a file."""
    with suppress(ImportError, AttributeError):
        kind: Any = import_module("azure.servicebus._pyamqp.aio._transport_async").AsyncTransport
        connect = kind.connect

        async def watched(transport: Any) -> None:  # noqa: ANN401 - the library's own
            held = _sockets.get()
            if held is not None:
                held.append(transport)
            await connect(transport)

        kind.connect = watched


_watch_sockets()
