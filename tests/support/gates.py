"""A way to a server that can be closed and opened again, while the server itself goes on for other tests."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, Self

from tests.support.kafka import Kafka
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy


class Way(Protocol):
    """What a dependency is reached through."""

    def close(self) -> None: ...
    def open(self) -> None: ...


class Gates:
    """Proxies in a thread of their own; a gate keeps its port while it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: list[Gate] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._open:
            gate.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def before(self, port: int) -> "Gate":
        """An open gate before a server on loopback."""
        gate = Gate(self, port)
        gate.open()
        self._open.append(gate)
        return gate

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(40)


class Gate:
    """Closed, it refuses connections and resets those that were open."""

    def __init__(self, gates: Gates, port: int) -> None:
        self._gates = gates
        self._to = port
        self._proxy: FaultProxy | None = None
        # Below the ports of outgoing connections: one of them took the port of a closed gate, which then stayed closed.
        self.port = free_port()

    def open(self) -> None:
        if self._proxy is None:
            self._gates.run(self._open())

    def close(self) -> None:
        if self._proxy is not None:
            self._gates.run(self._proxy.__aexit__())
            self._proxy = None

    async def _open(self) -> None:
        self._proxy = FaultProxy("127.0.0.1", self._to)
        self._proxy.port = self.port
        await self._proxy.__aenter__()


class Brokers:
    """Kafka's brokers, which clients reach under the addresses that the brokers themselves name."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._down = False

    def close(self) -> None:
        if not self._down:
            self._kafka.tell("down", 1)
            self._down = True

    def open(self) -> None:
        if self._down:
            self._kafka.tell("up", 1)
            self._down = False
