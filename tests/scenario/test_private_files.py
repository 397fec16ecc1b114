"""Files that hold people's data are their owner's alone, whichever command makes them and whatever the umask."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import carillon
from carillon.compose.blueprints import examine
from carillon.config.reading import load
from carillon.ledger.opening import open_ledger
from tests.scenario.test_cli import carillon as command
from tests.support.client import Client
from tests.support.process import Program

OWNER_ONLY = 0o600


@pytest.fixture(autouse=True)
def careless_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def findings(url: str) -> list[str]:
    settings = load("local", None, {"DATABASE_URL": url})
    return [one.words for one in asyncio.run(examine(settings)) if one.verdict == "warn" and one.part == "Ledger"]


def test_a_running_process(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    environment = {
        "DATABASE_URL": f"sqlite:///{folder}/carillon.db",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_PROVIDERS__SANDBOX__LEDGER_PATH": str(folder / "accepted.jsonl"),
    }
    with Program("serve", env=environment, cwd=tmp_path) as program:
        client = Client.of(program)
        client.settled(client.send().body["notificationId"])
        found = modes(folder)
        assert {"carillon.db", "carillon.db-wal", "carillon.db-shm", "accepted.jsonl"} <= found.keys()
        assert set(found.values()) == {OWNER_ONLY}, found
    assert findings(environment["DATABASE_URL"]) == []


async def test_embedded_in_a_program(tmp_path: Path) -> None:
    async with carillon.open(str(tmp_path / "inner.db")):
        found = modes(tmp_path)
        assert found["inner.db"] == found["inner.db-wal"] == found["inner.db-shm"] == OWNER_ONLY


@pytest.mark.parametrize("words", [("migrate",), ("doctor",), ("dead-letters", "list")])
def test_commands_that_open_a_ledger(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    command(*words, env={"DATABASE_URL": f"sqlite:///{folder}/carillon.db"}, cwd=tmp_path)
    assert set(modes(folder).values()) <= {OWNER_ONLY}


def test_a_copy(tmp_path: Path, ledger_dsn: str) -> None:
    copied = command("ledger", "copy", ledger_dsn, f"sqlite:///{tmp_path}/two.db", cwd=tmp_path)
    assert copied.returncode == 0, copied.stdout + copied.stderr
    assert modes(tmp_path)["two.db"] == OWNER_ONLY


async def test_a_file_that_was_there_keeps_its_mode_and_the_doctor_tells(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA user_version = 0")
    path.touch()
    path.chmod(0o644)
    ledger = await open_ledger(f"sqlite:///{path}")
    await ledger.aclose()
    assert modes(tmp_path)["old.db"] == 0o644
    [said] = await asyncio.to_thread(findings, f"sqlite:///{path}")
    assert f"chmod 600 {path}" in said
    assert "0644" in said


async def test_a_second_ledger_in_the_process_costs_the_first_no_lock(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops a process's locks on it: an existing file is not opened to be made."""
    url = f"sqlite:///{tmp_path}/shared.db"
    first = await open_ledger(url)
    await first.migrate()
    with closing(sqlite3.connect(tmp_path / "shared.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        second = await open_ledger(url)
        other = await asyncio.create_subprocess_exec(
            *("python3", "-c", _WRITES, str(tmp_path / "shared.db")), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await other.communicate()
        assert said.strip() == b"database is locked"
        await second.aclose()
    await first.aclose()


_WRITES = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
    print("took the lock")
except sqlite3.OperationalError as error:
    print(error)
"""
