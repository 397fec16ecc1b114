"""A ledger in SQLite as one end of a copy."""

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.copy_values import Row, Table, neutral
from carillon.ledger.migrate import migrate_sqlite
from carillon.ledger.sqlite.file import create_private

PAGE = 2000
_BUSY_SECONDS = 2.0


class SqliteEnd:
    """Locks the whole file from the first read on, so that no other process writes to it."""

    def __init__(self, connection: sqlite3.Connection, sql: Mapping[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    @classmethod
    def prepared(cls, path: str, sql: Mapping[str, str]) -> "SqliteEnd":
        """Open and migrate, without a ledger object, which would need the seal keys."""
        create_private(path)
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                migrate_sqlite(connection, sql)
            except sqlite3.Error as error:
                raise LedgerUnavailable(f"{path} cannot be written: {error}") from None
        return cls.open(path, sql)

    @classmethod
    def open(cls, path: str, sql: Mapping[str, str]) -> "SqliteEnd":
        if not Path(path).exists():
            raise ConfigurationError(f"there is no ledger at {path}")
        connection = _connected(path)
        try:
            # Set before the first read. Even an idle process that has the file open holds a lock.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN EXCLUSIVE" if os.access(path, os.W_OK) else "BEGIN")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            connection.close()
            raise LedgerUnavailable(f"{path} is in use ({error}): stop every process that works on it") from None
        except sqlite3.DatabaseError as error:
            connection.close()
            raise ConfigurationError(f"{path} is not a SQLite ledger: {error}") from None
        return cls(connection, sql)

    async def aclose(self) -> None:
        self._connection.close()

    async def used_by(self) -> str | None:
        """None: this process holds the lock."""
        return None

    async def versions(self) -> list[int]:
        try:
            return sorted(row[0] for row in self._connection.execute(self._sql["migrations_applied"]))
        except sqlite3.OperationalError:
            return []

    async def columns(self) -> dict[str, set[str]]:
        """Our tables and their columns."""
        found: dict[str, set[str]] = {}
        for table, column in self._connection.execute(self._sql["copy_tables"]):
            found.setdefault(table, set()).add(column)
        return found

    async def count(self, table: Table) -> int:
        return int(self._connection.execute(self._composed("copy_count", table.name)).fetchone()[0])

    async def last(self, table: Table) -> Row | None:
        statement = self._composed("copy_last", table.name, json.dumps(table.key))
        row = self._connection.execute(statement).fetchone()
        return None if row is None else neutral(table.kinds(table.key), row)

    async def read(self, table: Table, after: Row | None) -> AsyncIterator[list[Row]]:
        about = (table.name, json.dumps(table.names), json.dumps(table.key), after is not None)
        cursor = self._connection.execute(self._composed("copy_reading", *about), after or ())
        kinds = table.kinds(table.names)
        while rows := cursor.fetchmany(PAGE):
            yield [neutral(kinds, row) for row in rows]

    async def write(self, table: Table, rows: list[Row]) -> None:
        statement = self._composed("copy_writing", table.name, json.dumps(table.names))
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def marks(self) -> dict[str, int]:
        return dict(self._connection.execute(self._sql["copy_marks"]).fetchall())

    async def mark(self, name: str, last: int) -> None:
        if name == "claim_tokens":
            self._connection.execute(self._sql["copy_mark_tokens"], (last,))
            return
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(self._sql["copy_unmark"], (name,))
        self._connection.execute(self._sql["copy_mark"], (name, last))
        self._connection.execute("COMMIT")

    def _composed(self, name: str, *about: Any) -> str:  # noqa: ANN401 - parameters
        return str(self._connection.execute(self._sql[name], about).fetchone()[0])


def _connected(path: str) -> sqlite3.Connection:
    if os.access(path, os.W_OK):
        return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise ConfigurationError(f"{path} is read-only and its log {log.name} is not empty: make both writable once")
    return sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True, isolation_level=None)
