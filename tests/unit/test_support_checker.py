"""The checker finds each kind of broken promise."""

import asyncio
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.checker import check, read_store

SCHEMA = (
    "CREATE TABLE records (notification_id text, producer text, idempotency_key text)",
    "CREATE TABLE routes (notification_id text, route_id text, status text)",
)


def write(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def fill(path: Path, records: dict[str, str], routes: list[tuple[str, str, str]]) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in SCHEMA:
            connection.execute(statement)
        connection.executemany("INSERT INTO records VALUES (?, 'p', ?)", records.items())
        connection.executemany("INSERT INTO routes VALUES (?, ?, ?)", routes)
    return f"sqlite:///{path}"


async def test_a_kept_promise_is_sound(tmp_path: Path) -> None:
    journal = write(tmp_path / "j", [{"key": "k1", "notification_id": "n1", "status": 202}] * 2)
    ledger = write(tmp_path / "l", [{"id": "n1", "status": 503}, {"id": "n1", "status": 200}])
    dsn = fill(tmp_path / "db", {"n1": "k1"}, [("n1", "push", "published"), ("n1", "email", "dead_letter")])
    report = await check(journal, ledger, dsn)
    assert report.sound, str(report)
    assert (report.accepted, report.routes, report.sends, report.duplicates) == (1, 2, 1, {})


async def test_each_broken_promise_is_named(tmp_path: Path) -> None:
    posted = [("k1", "n1"), ("k2", "gone"), ("k3", "n3"), ("k3", "n4"), ("k5", None)]
    journal = write(tmp_path / "j", [{"key": key, "notification_id": name, "status": 200} for key, name in posted])
    with journal.open("a") as torn:
        torn.write('{"key": "k9", "notifi')
    ledger = write(tmp_path / "l", [{"id": "n1"}, {"id": "n1"}, {"id": "stray"}])
    routes = [("n1", "push", "published"), ("n3", "push", "pending"), ("n4", "push", "published")]
    report = await check(journal, ledger, fill(tmp_path / "db", {"n1": "k1", "n3": "k3", "n4": "k3"}, routes))
    assert not report.sound
    assert report.lost == ["gone", "k5"]
    assert report.split == ["k3"]
    assert report.unfinished == ["n3/push"]
    assert report.never_sent == ["n4"]
    assert report.duplicates == {"n1": 1, "stray": 1}
    assert "never_sent 1" in str(report)


async def test_a_changed_terminal_is_named(tmp_path: Path, postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        for statement in (*SCHEMA, "INSERT INTO records VALUES ('n1', 'p', 'k1')"):
            await connection.execute(statement)
        await connection.execute("INSERT INTO routes VALUES ('n1', 'push', 'published'), ('n1', 'sms', 'pending')")
        earlier = await read_store(postgres_dsn)
        await connection.execute("UPDATE routes SET status = 'dead_letter'")
    finally:
        await connection.close()
    nothing = await asyncio.to_thread(write, tmp_path / "empty", [])
    report = await check(nothing, nothing, postgres_dsn, earlier=earlier)
    assert report.terminal_changed == ["n1/push: published -> dead_letter"]
