"""A route that stands in no queue: the program finds it, puts it back, sends it, and says so; so does the doctor."""

import asyncio
import os
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.waiting import wait_until


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/carillon.db"
    return str(request.getfixturevalue("postgres_dsn"))


def lose_tickets(database: str) -> None:
    """As a restore of single tables does."""
    if database.startswith("sqlite"):
        with sqlite3.connect(database.removeprefix("sqlite:///")) as file:
            file.execute("DELETE FROM due")
        return

    async def empty() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute("DELETE FROM due")
        await connection.close()

    asyncio.run(empty())


@pytest.mark.req("P-520")
def test_a_route_that_stands_in_no_queue_is_sent_after_all(database: str, tmp_path: Path) -> None:
    env = {"DATABASE_URL": database, "CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    with Program("serve", "--roles", "doors", env=env, cwd=tmp_path) as doors:
        accepted = [Client.of(doors).send().body["notificationId"] for _ in range(2)]
    assert "stand in no queue" not in run_carillon(["doctor"], env={**os.environ, **env}, cwd=tmp_path).stdout
    lose_tickets(database)
    assert (
        "waiting routes that stand in no queue: 2;"
        in run_carillon(["doctor"], env={**os.environ, **env}, cwd=tmp_path).stdout
    )
    # A lease of a second: a look every two.
    config = tmp_path / "soon.toml"
    calls = "".join(f'[policy.retry."*/{kind}"]\ntimeout_seconds = 0.5\n' for kind in ("*", "webhook"))
    config.write_text(f'extends = "local"\n[ledger]\nlease_seconds = 1.0\n{calls}')
    with Program("serve", "--config", str(config), env=env, cwd=tmp_path) as program:
        assert program.wait_for("tickets_lost")["routes"] == 2
        client = Client.of(program)
        for one in accepted:
            assert client.settled(one)["status"] == "delivered"
        wait_until(lambda: len(program.events("tickets_lost")) == 1, timeout=10, what="it is said once")
