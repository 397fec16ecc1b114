"""The ground of every simulated world: its settings, and an empty ledger whose last statuses are counted."""

import asyncio
import atexit
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from types import MappingProxyType

from carillon.compose.ledger import parts_needed
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.sqlite.ledger import SqliteLedger

LEASE_SECONDS = 30.0
SETTINGS = """
extends = "local"

[ledger]
lease_seconds = 30

[channels]
sms = ["first", "second"]
push = ["batches"]

[providers.first]
kind = "sandbox"

[providers.second]
kind = "sandbox"

[providers.batches]
kind = "sandbox"

[policy.retry."*/*"]
max_attempts = 30
base_delay_seconds = 2
backoff_factor = 1.5
max_delay_seconds = 20
timeout_seconds = 15
on_open = "defer"
on_unknown = "retry"

[lanes.priority]
max_attempts = 30

[lanes.standard]
max_attempts = 30

[lanes.bulk]
max_attempts = 30

[work]
poll_seconds = 2
first_claims = {first_claims}
concurrency = {concurrency}
claim_on_accept = {claim_on_accept}
"""
ENDS = """
CREATE TABLE simulated_ends (notification_id TEXT NOT NULL, route_id TEXT NOT NULL, status TEXT NOT NULL);
CREATE TRIGGER simulated_ends AFTER UPDATE OF status ON routes
WHEN NEW.status IN ('published', 'dead_letter', 'skipped')
BEGIN INSERT INTO simulated_ends VALUES (NEW.notification_id, NEW.route_id, NEW.status); END;
"""
"""Every write of a last status leaves a row, also one that changes nothing: nothing may be settled twice."""


@cache
def settings_of(first_claims: int, concurrency: int, *, claim_on_accept: bool) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.toml"
        work = {"first_claims": first_claims, "concurrency": concurrency}
        path.write_text(SETTINGS.format(**work, claim_on_accept=str(claim_on_accept).lower()), encoding="utf-8")
        return load(None, path, MappingProxyType({}))


@cache
def empty_ledger() -> Path:
    """An empty ledger with all its tables, of which every world of this process begins with a copy."""
    folder = Path(tempfile.mkdtemp(prefix="carillon-worlds-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "empty.db"

    async def build() -> None:
        parts = parts_needed(settings_of(5, 10, claim_on_accept=True))
        ledger = await SqliteLedger.open(path, lease_seconds=LEASE_SECONDS, parts=parts)
        await ledger.migrate()
        await ledger.aclose()

    asyncio.run(build())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ENDS)
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def new_ledger() -> sqlite3.Connection:
    """The ledger of one world, in memory: all its processes use this one connection.

    A transaction begins and ends inside one step of one process, so none ever meets another one. A connection for each
    would read every page again that another process has changed, and prepare every statement again at every start.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
    with closing(sqlite3.connect(empty_ledger())) as empty:
        empty.backup(connection)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


class MemoryFile(SqliteFile):
    """The file of a process whose connections are the world's."""

    def __init__(self, connection: sqlite3.Connection, sql: Mapping[str, str], clock: Callable[[], float]) -> None:
        super().__init__(Path(), sql, clock)
        self._connection = connection

    def _connect(self) -> sqlite3.Connection:
        return self._connection
