"""One SQLite file: a thread that writes, a thread that reads, and the translation of errors."""

import asyncio
import errno
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias, TypeVar

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.statements import no_table

T = TypeVar("T")
_NO_TABLE = "no such table: "
_MAGIC = b"SQLite format 3\x00"
_FOR_EVER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
Work: TypeAlias = Callable[[sqlite3.Connection, int], T]

_BUSY_SECONDS = 5.0
_GROUP_SECONDS = 0.02
"""How long a group of writes takes up further ones before it is committed."""
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


class _Write:
    """One piece of work in a group, and its answer."""

    __slots__ = ("done", "look", "loop", "taken", "work")

    def __init__(self, work: Work[Any], look: Work[bool] | None = None) -> None:
        self.work = work
        self.look = look
        self.taken = False
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self.loop.create_future()


class _Group:
    """Writes of one transaction: each keeps or loses its own changes, and nobody is answered before the commit."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[sqlite3.Connection], int]) -> None:
        self._connection = connection
        self._clock = now
        self._answers: list[tuple[_Write, Any, Exception | None]] = []
        self._begun = False
        self._now = 0

    def run(self, write: _Write) -> None:
        try:
            if write.look is not None and not self._looks(write.look):
                self._answers.append((write, None, None))
                return
            if not self._begun:
                self._connection.execute("BEGIN IMMEDIATE")
                self._begun = True
                self._now = self._clock(self._connection)
            self._answers.append((write, self._in_savepoint(write.work), None))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self._answers.append((write, None, error))
            self._fail_if_lost(error)

    def commit(self) -> None:
        """Make it durable, then answer all."""
        try:
            if self._begun:
                self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the callers get it
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._fail_if_lost(error)
        for write, result, failure in self._answers:
            # A loop that has ended waits for nothing.
            with suppress(RuntimeError):
                write.loop.call_soon_threadsafe(_answer, write.done, result, failure)

    def _looks(self, look: Work[bool]) -> bool:
        """Inside the transaction of others it costs nothing to do the work and find nothing."""
        return self._begun or look(self._connection, self._clock(self._connection))

    def _fail_if_lost(self, error: Exception) -> None:
        """If everything was rolled back, by a full disk for example, nobody's changes are kept."""
        if self._begun and not self._connection.in_transaction:
            self._begun = False
            self._answers = [(write, None, each or error) for write, _, each in self._answers]

    def _in_savepoint(self, work: Work[T]) -> T:
        self._connection.execute("SAVEPOINT one")
        try:
            result = work(self._connection, self._now)
            if isinstance(result, sqlite3.Cursor):
                # Another thread would close a cursor that is left open, while this thread uses the connection.
                result.close()
        except BaseException:
            # A full disk may have rolled back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO one")
                self._connection.execute("RELEASE one")
            raise
        self._connection.execute("RELEASE one")
        return result


class SqliteFile:
    """Runs statements in threads, so that they never block the event loop; several processes may share the file."""

    def __init__(self, path: Path, sql: Mapping[str, str], clock: Callable[[], float] | None = None) -> None:
        """`clock` gives the Unix seconds of a rehearsal, whose file is thrown away: nothing waits for the disk."""
        self._path = path
        self._sql = sql
        self._clock = clock
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="ledger-read")
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._waiting: deque[_Write] = deque()

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
        """Run the work in a transaction, with the ledger's clock; on return it is on disk."""
        written: T = await self._grouped(_Write(work))
        return written

    async def write_if(self, look: Work[bool], work: Work[T]) -> T | None:
        """Write only if a read without a lock finds work, so that an idle poll needs no commit and no lock."""
        written: T | None = await self._grouped(_Write(work, look))
        return written

    async def _grouped(self, write: "_Write") -> Any:  # noqa: ANN401 - whatever the work returns
        """Writes that wait while one is committed are committed together: one wait for the disk instead of many."""
        connection = _opened(self._writer)
        self._waiting.append(write)
        try:
            await _in(self._writing, lambda: self._write_group(connection, write))
        except asyncio.CancelledError:
            # Nobody waits for it any more: a claim that is carried out later would lease routes to nobody.
            with suppress(ValueError):
                self._waiting.remove(write)
            raise
        return await write.done

    def _write_group(self, connection: sqlite3.Connection, write: "_Write") -> None:
        """In the writing thread: everything that waits, in its order, and its own write at the latest.

        An earlier call may have taken the write. Otherwise this call takes it, however late the machine runs the
        thread: no other call has to come.
        """
        group = _Group(connection, self._now)
        # In a rehearsal the machine's pace must not decide what is committed together.
        seconds = time.monotonic if self._clock is None else self._clock
        until = seconds() + _GROUP_SECONDS
        while self._waiting and (not write.taken or seconds() < until):
            taken = self._waiting.popleft()
            taken.taken = True
            group.run(taken)
        group.commit()

    async def read(self, work: Work[T]) -> T:
        """Run the work on one snapshot, in parallel to the writer."""
        connection = _opened(self._reader)
        return await _in(self._reading, lambda: self._transaction("BEGIN DEFERRED", connection, work))

    async def alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Pass the writing connection to the work, which handles its own transaction."""
        connection = _opened(self._writer)
        return await _in(self._writing, lambda: work(connection))

    def _now(self, connection: sqlite3.Connection) -> int:
        if self._clock is not None:
            return round(self._clock() * 1000)
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
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._clock is None else 'OFF'}")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def refuse_unfit(path: Path) -> None:
    """Raise ConfigurationError for a file that no later try could open; makes the folder of a new file."""
    other = "name another file with DATABASE_URL=sqlite:///path"
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be created: {error.strerror}; {other}") from None
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; {other}")
    if not path.exists():
        if not _takes_files(folder):
            raise ConfigurationError(f"{folder.absolute()}: no file can be created in this folder; {other}")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise ConfigurationError(f"{path} cannot be read and written by this user; {other}, or change its owner")
    with path.open("rb") as opened:
        begins = opened.read(len(_MAGIC))
    if begins and begins != _MAGIC:
        raise ConfigurationError(f"{path} is no SQLite database; {other}")


def _takes_files(folder: Path) -> bool:
    """Whether a file can be created in the folder, now or later: a disk that is full today counts as yes.

    The modes of the folder do not tell: they let root write into /proc and into what is mounted read-only.
    """
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError as error:
        return error.errno not in _FOR_EVER


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


def _answer(done: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(_translated(error))


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, sqlite3.Error) and _primary(error) in _UNAVAILABLE:
        unavailable = LedgerUnavailable(f"SQLite is not available: {error}")
        unavailable.__cause__ = error
        return unavailable
    if isinstance(error, sqlite3.OperationalError) and str(error).startswith(_NO_TABLE):
        return ConfigurationError(no_table(str(error).removeprefix(_NO_TABLE)))
    return error


async def _in(executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
    except sqlite3.Error as error:
        raise _translated(error) from error.__cause__
