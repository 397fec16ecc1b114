"""A ledger carried from SQLite to PostgreSQL and back: everything, once, also when the copy is killed midway."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.ledger.copy_values import Column, Digest, Table
from carillon.ledger.copying import CopyRefused, copy_ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.sqlite.ledger import SqliteLedger
from tests.support import copied, tables
from tests.support.process import run_carillon
from tests.support.servers import Postgres

pytestmark = pytest.mark.slow


class Moved:
    """A full SQLite ledger, carried to PostgreSQL by a command that was killed on its way, and resumed."""

    def __init__(self, path: Path, dsn: str, known: dict[str, Table], said: list[Any]) -> None:
        self.path = path
        self.dsn = dsn
        self.known = known
        self.killed, self.refused, self.resumed = said


def carillon(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **env}
    return run_carillon([*args], env=environment, timeout=120)


def copy_killed_and_resumed(source: str, target: str) -> list[Any]:
    killed = carillon("ledger", "copy", source, target, CARILLON_FAULTPOINTS="after_copied_page=exit9@4")
    refused = carillon("ledger", "copy", source, target)
    return [killed, refused, carillon("ledger", "copy", source, target, "--resume", "--json")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def moved(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Moved]:
    path = tmp_path_factory.mktemp("copy") / "source.db"
    template, dsn = postgres.database(), postgres.database()
    ledger = await PostgresLedger.open(template, allow_unsafe=True)
    await ledger.migrate()
    await ledger.aclose()
    known = await copied.tables(template)
    await copied.fill(str(path), known)
    yield Moved(path, dsn, known, copy_killed_and_resumed(f"sqlite:///{path}", dsn))
    postgres.drop(template)
    postgres.drop(dsn)


async def copy(source: str, target: str, *, resume: bool = False, even_if_used: bool = False) -> Any:
    return await copy_ledger(
        source, target, resume=resume, even_if_used=even_if_used, progress=lambda _phase, _done, _total: None
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_copy_that_was_killed_goes_on_where_it_was(moved: Moved) -> None:
    assert moved.killed.returncode == -9
    assert moved.refused.returncode == 1
    assert "--resume" in moved.refused.stderr
    assert moved.resumed.returncode == 0, moved.resumed.stderr
    told = json.loads(moved.resumed.stdout)
    by_name = {one["table"]: one for one in told["tables"]}
    assert {by_name[name]["rows"] for name in copied.LARGE} == {copied.MANY}
    # Rows are written in pages: what the killed run had committed was not written again.
    assert 0 < told["written"] < told["rows"]
    assert await tables.number(moved.dsn, "SELECT count(*) AS n FROM records") == copied.MANY


@pytest.mark.asyncio(loop_scope="module")
async def test_every_table_is_carried_and_back_again_it_is_the_same(moved: Moved, tmp_path: Path) -> None:
    back = tmp_path / "back.db"
    _, refused, resumed = copy_killed_and_resumed(moved.dsn, f"sqlite:///{back}")
    assert refused.returncode == 1
    assert resumed.returncode == 0, resumed.stderr
    before = copied.everything(str(moved.path), moved.known)
    assert copied.everything(str(back), moved.known) == before
    assert {one["table"] for one in json.loads(resumed.stdout)["tables"]} == set(before)
    assert all(before.values()), [name for name, rows in before.items() if not rows]
    tokens = await tables.read(f"sqlite:///{back}", "SELECT last FROM claim_tokens")
    assert tokens[0]["last"] == copied.TOKENS
    numbers = await tables.read(f"sqlite:///{back}", "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
    assert numbers[0]["seq"] == copied.REMOVED


@pytest.mark.asyncio(loop_scope="module")
async def test_numbers_go_on_where_they_were(moved: Moved) -> None:
    token = await tables.number(moved.dsn, "SELECT nextval('claim_tokens') AS n")
    assert token > copied.TOKENS
    following = "SELECT nextval(pg_get_serial_sequence('{}', '{}')) AS n"
    assert await tables.number(moved.dsn, following.format("outbox", "outbox_id")) == copied.REMOVED + 1
    assert await tables.number(moved.dsn, following.format("admin_actions", "action_id")) == copied.FEW + 1


@pytest.mark.asyncio(loop_scope="module")
async def test_what_differs_is_seen(moved: Moved, postgres: Postgres) -> None:
    database = moved.dsn.rpartition("/")[2]
    changed = "UPDATE records SET payload_json = payload_json || ' ' WHERE producer LIKE '%''17'"
    postgres.execute(changed, database=database)
    try:
        with pytest.raises(CopyRefused, match="table records differs"):
            await copy(f"sqlite:///{moved.path}", moved.dsn, resume=True)
    finally:
        mended = "UPDATE records SET payload_json = rtrim(payload_json, ' ') WHERE producer LIKE '%''17'"
        postgres.execute(mended, database=database)
    assert await copy(f"sqlite:///{moved.path}", moved.dsn, resume=True)


@pytest.mark.asyncio(loop_scope="module")
async def test_ledgers_in_use_are_left_alone(moved: Moved, postgres_dsn: str, tmp_path: Path) -> None:
    idle = await SqliteLedger.open(str(moved.path))
    try:
        with pytest.raises(LedgerUnavailable, match="stop every process"):
            await copy(f"sqlite:///{moved.path}", postgres_dsn)
    finally:
        await idle.aclose()
    serving = await PostgresLedger.open(moved.dsn, allow_unsafe=True)
    try:
        await serving.counts()
        with pytest.raises(CopyRefused, match=r"source is in use.*--even-if-used"):
            await copy(moved.dsn, f"sqlite:///{tmp_path}/no.db")
        assert await copy(moved.dsn, f"sqlite:///{tmp_path}/yes.db", even_if_used=True)
    finally:
        await serving.aclose()


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_ledger_is_refused_and_not_made(postgres_dsn: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no ledger"):
        await copy(f"sqlite:///{tmp_path}/nowhere.db", postgres_dsn)
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(CopyRefused, match="carillon migrate"):
        await copy(postgres_dsn, f"sqlite:///{tmp_path}/target.db")
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like one" * 40)
    with pytest.raises(ConfigurationError, match="not a SQLite ledger"):
        await copy(f"sqlite:///{tmp_path}/text.db", postgres_dsn)
    with pytest.raises(CopyRefused, match="pg_dump"):
        await copy(postgres_dsn, postgres_dsn)
    with pytest.raises(ConfigurationError, match="must begin with"):
        await copy("mysql://somewhere", f"sqlite:///{tmp_path}/target.db")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_nobody_can_write_may_be_open(moved: Moved, postgres: Postgres, tmp_path: Path) -> None:
    database = moved.dsn.rpartition("/")[2]
    serving = await PostgresLedger.open(moved.dsn, allow_unsafe=True)
    try:
        await serving.counts()
        postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        assert await copy(moved.dsn, f"sqlite:///{tmp_path}/copy.db")
    finally:
        postgres.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
        await serving.aclose()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_that_cannot_be_written_is_read_unless_its_log_is_needed(
    moved: Moved, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests may run as root, who may write everything.
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    log = moved.path.with_name(f"{moved.path.name}-wal")
    log.write_bytes(b"pages that are not in the file yet")
    with pytest.raises(ConfigurationError, match="not empty"):
        await copy(f"sqlite:///{moved.path}", postgres_dsn)
    log.unlink()
    assert await copy(f"sqlite:///{moved.path}", postgres_dsn)
    assert not log.exists()


def test_a_digest_sees_order_and_content_but_not_spacing() -> None:
    table = Table(name="t", columns=(Column("a", "text"), Column("b", "json")), key=("a",))

    def digest(*rows: tuple[str, str]) -> str:
        made = Digest(table)
        made.add(rows)
        return made.text()

    assert digest(("x", '{"k":1e2,"l":0.5}')) == digest(("x", '{"l": 0.5, "k": 100}'))
    assert digest(("x", '{"k":1}')) != digest(("x", '{"k":2}'))
    assert digest(("x", "1"), ("y", "1")) != digest(("y", "1"), ("x", "1"))
