"""One SQLite file: a thread that writes, a thread that reads, and the translation of errors."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from carillon.domain.errors import ConfigurationError, LedgerUnavailable

T = TypeVar("T")
Work: TypeAlias = Callable[[sqlite3.Connection, int], T]

_BUSY_SECONDS = 5.0
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_INTERRUPT,
}


class SqliteFile:
    """Runs statements in threads, so that they never block the event loop; several processes may share the file."""

    def __init__(self, path: Path, sql: Mapping[str, str]) -> None:
        self._path = path
        self._sql = sql
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="ledger-read")
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    async def open(self) -> None:
        self._writer = await _in(self._writing, self._connect)
        self._reader = await _in(self._reading, self._connect)

    async def aclose(self) -> None:
        ends = ((self._reading, self._reader), (self._writing, self._writer))
        self._reader = self._writer = None
        for executor, connection in ends:
            if connection is not None:
                await _in(executor, connection.close)
            executor.shutdown(wait=False)

    async def write(self, work: Work[T]) -> T:
        """Run the work in one transaction, with the ledger's clock; on return it is on disk."""
        connection = _opened(self._writer)
        return await _in(self._writing, lambda: self._transaction("BEGIN IMMEDIATE", connection, work))

    async def write_if(self, look: Work[bool], work: Work[T]) -> T | None:
        """Write only if a read without a lock finds work, so that an idle poll needs no commit and no lock."""
        connection = _opened(self._writer)

        def both() -> T | None:
            if not look(connection, self._now(connection)):
                return None
            return self._transaction("BEGIN IMMEDIATE", connection, work)

        return await _in(self._writing, both)

    async def read(self, work: Work[T]) -> T:
        """Run the work on one snapshot, in parallel to the writer."""
        connection = _opened(self._reader)
        return await _in(self._reading, lambda: self._transaction("BEGIN DEFERRED", connection, work))

    async def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Pass the writing connection to the work, which handles its own transaction."""
        connection = _opened(self._writer)
        return await _in(self._writing, lambda: work(connection))

    def _now(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute(self._sql["clock"]).fetchone()[0])

    def _transaction(self, begin: str, connection: sqlite3.Connection, work: Work[T]) -> T:
        connection.execute(begin)
        try:
            result = work(connection, self._now(connection))
            if isinstance(result, sqlite3.Cursor):
                # Another thread would close a cursor that is left open, while this thread uses the connection.
                result.close()
            connection.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _connect(self) -> sqlite3.Connection:
        create_private(self._path)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.row_factory = sqlite3.Row
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def create_private(path: str | Path) -> None:
    """Make a missing file that only its owner reads; SQLite gives its log and its index the same mode.

    A file that is there is not opened: closing it would drop this process's locks on it.
    """
    # What else is wrong with the path, SQLite says itself.
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _write_ahead(connection: sqlite3.Connection) -> None:
    # Unlike other statements, a change of the mode does not wait for other processes.
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            break
    if mode != "wal":
        raise ConfigurationError("this SQLite database cannot use a write-ahead log; put the file on a local disk")


def _opened(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise LedgerUnavailable("the SQLite ledger is closed")
    return connection


def _primary(error: sqlite3.Error) -> int:
    # The low byte names the kind, the rest the detail.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


async def _in(executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
    except sqlite3.Error as error:
        if _primary(error) in _UNAVAILABLE:
            raise LedgerUnavailable(f"SQLite is not available: {error}") from error
        raise
