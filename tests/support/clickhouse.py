"""A private ClickHouse that speaks HTTP, and a look into it."""

import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from carillon.domain.history import EndedRoute
from tests.support.daemon import Daemon
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
ENDING = EndedRoute(
    changed_us=0,
    notification_id="n-1",
    route_id="sse:user:ann",
    notification_type="job.new",
    producer="jobs",
    tenant_id=None,
    user_id="ann",
    channel="sse",
    provider="sse",
    lane=1,
    status="published",
    attempts=1,
    error=None,
    accepted_us=0,
    wanted_us=None,
    ended_us=0,
    delivered_us=None,
)


class ClickHouse(Daemon):
    """Its data outlives a kill, as a server's does."""

    def __init__(self) -> None:
        super().__init__("ch")
        self._asks: Client | None = None
        self.port = free_port()

    def command(self) -> list[str]:
        module = ["-m", "tests.support.clickhouse_server", str(self.port), str(self.folder)]
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, *module]

    def is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rows(self, statement: str) -> list[dict[str, Any]]:
        return list(self._client().query(statement).named_results())

    def command_of(self, statement: str) -> None:
        self._client().command(statement)

    def start(self) -> None:
        self._asks = None
        super().start()

    def _client(self) -> Client:
        """One for all questions until the server is started again: each new client asks the server about itself."""
        if self._asks is None:
            self._asks = clickhouse_connect.get_client(host="127.0.0.1", port=self.port, autogenerate_session_id=False)
        return self._asks


def clickhouse_fixture() -> Any:
    """Assigned to `server`, it gives a module's tests one server between them."""

    def server() -> Iterator[ClickHouse]:
        with ClickHouse() as running:
            yield running

    return pytest.fixture(scope="module", name="server")(server)


def place_fixture() -> Any:
    """Assigned to `place`, it is the module's server without a table."""

    def place(server: ClickHouse) -> ClickHouse:
        server.command_of("DROP TABLE IF EXISTS notification_history SYNC")
        return server

    return pytest.fixture(name="place")(place)


def ending(age: timedelta = timedelta(), **changes: Any) -> EndedRoute:
    """Something that ended so long ago, after 40 ms."""
    at = round((datetime.now(UTC) - age).timestamp() * 1e6)
    times = {"changed_us": at, "accepted_us": at - 40_000, "ended_us": at}
    return msgspec.structs.replace(ENDING, **(times | changes))
