"""What only SQLite can do to us: locked files, full disks, several processes on one file."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.opening import open_ledger
from carillon.ledger.sqlite.file import SqliteFile, Work
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.ledger.statements import load
from tests.support.ledger_builders import enrolment, finish, route, want
from tests.support.ledger_engines import SqliteEngine


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(tmp_path / "deep" / "ledger.db")


def limit_pages(pages: int, connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_full_disk_is_unavailability_without_half_a_batch(engine: SqliteEngine) -> None:
    async with engine.ledger() as ledger:
        assert isinstance(ledger, SqliteLedger)
        await ledger.enrol([enrolment()])

        await ledger._file.alone(partial(limit_pages, 1))  # noqa: SLF001 - the pragma belongs to its connection
        with pytest.raises(LedgerUnavailable, match="full"):
            await ledger.enrol([enrolment(payload_json="x" * 100_000) for _ in range(5)])
        assert len(await engine.rows("records")) == len(await engine.rows("routes")) == 1
        await ledger._file.alone(partial(limit_pages, 1_000_000))  # noqa: SLF001
        await ledger.enrol([enrolment(payload_json="x" * 100_000)])
        assert len(await engine.rows("records")) == 2


async def test_reads_go_on_while_another_process_writes(engine: SqliteEngine) -> None:
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment()])
        other = sqlite3.connect(engine.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            assert (await ledger.counts())["due"] == 1
            writing = asyncio.create_task(ledger.enrol([enrolment()]))
            assert (await ledger.counts())["due"] == 1
            assert not writing.done()
        finally:
            other.execute("ROLLBACK")
            other.close()
        await writing
        assert (await ledger.counts())["due"] == 2


async def test_a_lock_that_never_ends_is_unavailability(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carillon.ledger.sqlite.file._BUSY_SECONDS", 0.05)
    async with engine.ledger() as ledger:
        other = sqlite3.connect(engine.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(LedgerUnavailable, match="locked"):
                await ledger.enrol([enrolment()])
        finally:
            other.execute("ROLLBACK")
            other.close()
        await ledger.enrol([enrolment()])
        assert len(await engine.rows("records")) == 1


async def test_an_idle_claim_writes_nothing(engine: SqliteEngine) -> None:
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment(route(), scheduled_for_ms=4_000_000_000_000)])
        other = sqlite3.connect(engine.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            assert await ledger.claim([want()], 10, "w") == []
        finally:
            other.close()


async def test_what_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        await SqliteLedger.open(tmp_path)
    with pytest.raises(ConfigurationError):
        await SqliteLedger.open(":memory:")


async def test_urls(tmp_path: Path) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/a%20b.db")
    await ledger.aclose()
    await ledger.aclose()
    assert (tmp_path / "a b.db").exists()
    with pytest.raises(LedgerUnavailable):
        await ledger.counts()
    for url in ("sqlite://", "mysql://x", "sqlite:///"):
        with pytest.raises(ConfigurationError):
            await open_ledger(url)


async def test_commits_are_synced_and_logged_ahead(engine: SqliteEngine) -> None:
    async with engine.ledger() as ledger:
        assert (await ledger.check())["settings"] == {"journal_mode": "wal", "synchronous": "2"}


async def planned_anew(engine: SqliteEngine) -> int:
    """How much SQLite plans when the same statements run once more with other values."""
    seen: list[str | None] = []

    def note(_action: int, *names: str | None) -> int:
        seen.append(names[0])
        return sqlite3.SQLITE_OK

    async with engine.ledger() as ledger:
        assert isinstance(ledger, SqliteLedger)
        await ledger._file.alone(lambda connection: connection.set_authorizer(note))  # noqa: SLF001 - it is asked while planning
        for round_ in (0, 1):
            seen.clear()
            for lane in (1, 2):
                await ledger.enrol([enrolment(route(lane=lane, address=f"{round_}-{lane}@example.com"))])
                for claim in await ledger.claim([want(lane=lane)], 10, f"worker {round_}"):
                    await ledger.settle([finish(claim)])
        await ledger._file.alone(lambda connection: connection.set_authorizer(None))  # noqa: SLF001
    return len(seen)


async def test_a_statement_is_planned_once(engine: SqliteEngine) -> None:
    assert await planned_anew(engine) == 0


async def test_control_a_bare_parameter_is_planned_each_time(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carillon.ledger.sqlite.ledger.fixed", lambda text: text)
    assert await planned_anew(engine) > 0


async def test_writes_that_wait_for_each_other_share_a_commit(tmp_path: Path) -> None:
    async with grouped(tmp_path) as (file, commits):
        answers = await together(file, [partial(added, number) for number in range(5)])
        assert answers == list(range(5))
        assert len(commits) <= 2, "the first one, and all that waited for it"
        assert await file.read(kept) == list(range(5))


async def test_a_write_that_fails_takes_no_other_along(tmp_path: Path) -> None:
    async with grouped(tmp_path) as (file, _commits):
        answers = await together(file, [partial(added, 1), partial(added, 1), partial(added, 2), broken])
        assert answers[0] == 1
        assert isinstance(answers[1], sqlite3.IntegrityError)
        assert answers[2] == 2
        assert isinstance(answers[3], ZeroDivisionError)
        assert await file.read(kept) == [1, 2]


async def test_nobody_is_answered_by_a_commit_that_failed(tmp_path: Path) -> None:
    async with grouped(tmp_path) as (file, _commits):
        answers = await together(file, [partial(added, 1), partial(added, 2), orphaned, partial(added, 3)])
        assert {type(answer) for answer in answers} == {sqlite3.IntegrityError}
        assert await file.read(kept) == []
        assert await file.write(partial(added, 4)) == 4, "and the next transaction is a new one"


async def test_an_idle_poll_needs_no_commit(tmp_path: Path) -> None:
    async with grouped(tmp_path) as (file, commits):
        assert await file.write_if(lambda _connection, _now: False, partial(added, 1)) is None
        assert commits == []


async def test_a_thread_that_the_machine_runs_late_answers_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the machine had suspended the thread between looking at the clock and taking the first write.
    monkeypatch.setattr("carillon.ledger.sqlite.file._GROUP_SECONDS", -1.0)
    async with grouped(tmp_path) as (file, _commits), asyncio.timeout(10):
        assert await together(file, [partial(added, number) for number in range(5)]) == list(range(5))
        assert await file.read(kept) == list(range(5))


async def test_a_write_whose_caller_left_before_its_turn_is_not_carried_out(tmp_path: Path) -> None:
    async with grouped(tmp_path) as (file, _commits):
        held = threading.Event()
        holding = asyncio.create_task(file.alone(lambda _connection: held.wait(10)))
        left, kept_waiting = (asyncio.create_task(file.write(partial(added, number))) for number in (1, 2))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        held.set()
        assert await asyncio.wait_for(kept_waiting, 10) == 2
        await holding
        assert await file.read(kept) == [2]


@asynccontextmanager
async def grouped(folder: Path) -> AsyncIterator[tuple[SqliteFile, list[str]]]:
    file = SqliteFile(folder / "group.db", load("sqlite"))
    await file.open()
    commits: list[str] = []
    try:
        await file.alone(lambda connection: connection.execute("CREATE TABLE n (n INTEGER PRIMARY KEY)").close())
        deferred = "CREATE TABLE child (n INTEGER REFERENCES n DEFERRABLE INITIALLY DEFERRED)"
        await file.alone(lambda connection: connection.execute(deferred).close())
        await file.alone(
            lambda connection: connection.set_trace_callback(
                lambda text: commits.append(text) if text == "COMMIT" else None
            )
        )
        yield file, commits
    finally:
        await file.aclose()


async def together(file: SqliteFile, works: Sequence[Work[int]]) -> list[object]:
    """All of them wait while the writing thread is held up."""
    go = threading.Event()
    held = asyncio.create_task(file.alone(lambda _connection: go.wait(40)))
    writes = [asyncio.create_task(file.write(work)) for work in works]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    await held
    return list(await asyncio.gather(*writes, return_exceptions=True))


def added(number: int, connection: sqlite3.Connection, _now: int) -> int:
    connection.execute("INSERT INTO n VALUES (?)", (number,))
    return number


def broken(connection: sqlite3.Connection, _now: int) -> int:
    connection.execute("INSERT INTO n VALUES (77)")
    return 1 // 0


def orphaned(connection: sqlite3.Connection, _now: int) -> int:
    """Found out at the commit."""
    connection.execute("INSERT INTO child VALUES (99)")
    return 99


def kept(connection: sqlite3.Connection, _now: int) -> list[int]:
    return [row[0] for row in connection.execute("SELECT n FROM n ORDER BY n")]
