"""A ledger under load, restored elsewhere by dump or PITR: what is in it is delivered, what was open is repeated."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from tests.fleet import scale
from tests.support import tables
from tests.support.servers import Postgres, find_binary
from tests.support.stand import ROOT, Rules, Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

BEFORE, AFTER = 150, 60


def dumped(dsn: str, file: Path) -> None:
    """What an operator runs: one consistent snapshot, while everybody goes on writing."""
    subprocess.run([find_binary("pg_dump"), "-Fc", "-f", str(file), dsn], check=True, timeout=60)


def restored(file: Path, dsn: str) -> None:
    subprocess.run([find_binary("pg_restore"), "--no-owner", "-d", dsn, str(file)], check=True, timeout=60)


async def delivered_elsewhere(folder: Path, first: Stand, elsewhere: str) -> dict[str, int]:
    """Let a process work on the copy, and hold what it has and what it repeats."""
    statuses = {row["status"]: row["n"] for row in await tables.read(elsewhere, tables.STATUSES)}
    open_then = sum(number for status, number in statuses.items() if status != "published")
    assert sum(statuses.values()) == BEFORE, "everything that was accepted before that moment, and nothing later"
    assert open_then > 0
    # The same vendor, so that a repeat is seen.
    async with Stand(folder / "second", elsewhere, Rules()) as second:
        await second.start()
        await second.until_terminal(BEFORE)
    sent = Counter(str(entry["id"]) for entry in first.vendor.entries)
    repeats = {name: number - 1 for name, number in sent.items() if number > 1}
    assert len(sent) == BEFORE + AFTER, "every repeat carries the id of its first send"
    assert set(repeats.values()) <= {1}
    assert sum(repeats.values()) == open_then
    assert await tables.read(elsewhere, tables.SETTLED_TWICE) == []
    return {"accepted": BEFORE + AFTER, "restored": BEFORE, "lost_with_the_rest": AFTER, "repeats": open_then}


@pytest.mark.req("P-589")
async def test_a_dump_of_a_live_ledger_is_restored_elsewhere(
    tmp_path: Path, durable_dsn: str, durable_postgres: Postgres, figures: Callable[..., None]
) -> None:
    file = tmp_path / "ledger.dump"
    elsewhere = await asyncio.to_thread(durable_postgres.database)
    async with Stand(tmp_path / "first", durable_dsn, Rules()) as first:
        # Slow enough for some to be sent, some to be in a worker's hands and some to wait when the dump is made.
        first.vendor.default = Reply(delay=0.3)
        program = await first.start()
        await first.send(first.webhooks(f"m{number}" for number in range(BEFORE)))
        await first.vendor.until(BEFORE // 3)
        await asyncio.to_thread(dumped, durable_dsn, file)
        await first.send(first.webhooks(f"late{number}" for number in range(AFTER)))
        await first.until_terminal(BEFORE + AFTER)
        program.terminate()
        assert await asyncio.to_thread(program.wait, 60) == 0
        await asyncio.to_thread(restored, file, elsewhere)
        figures(**await delivered_elsewhere(tmp_path, first, elsewhere))
    await asyncio.to_thread(durable_postgres.drop, elsewhere)


async def archived(connection: asyncpg.Connection) -> None:
    """Everything written so far is in the archive."""
    segment = await connection.fetchval("SELECT pg_walfile_name(pg_switch_wal())")

    async def there() -> bool:
        last = await connection.fetchval("SELECT last_archived_wal FROM pg_stat_archiver")
        return last is not None and str(last) >= str(segment)

    await until(there, timeout=60, what=f"{segment} in the archive")


def copied(server: Postgres, other: Postgres, recovery: dict[str, str]) -> None:
    """What an operator runs: a base backup of the live server, from which the other one will recover."""
    base = [find_binary("pg_basebackup"), "-d", server.dsn(), "-D", str(other.data), "-c", "fast", "-X", "none"]
    subprocess.run(other.as_owner(base), check=True, timeout=120, cwd=other.folder)
    subprocess.run(other.as_owner(["touch", str(other.data / "recovery.signal")]), check=True, cwd=other.folder)
    other.settings |= recovery


@pytest.mark.req("P-802")
async def test_a_live_ledger_is_restored_elsewhere_to_a_moment(tmp_path: Path, figures: Callable[..., None]) -> None:
    """Base backup, archived log and a moment between two requests."""
    server, other = Postgres(durable=True), Postgres(durable=True)
    archive = server.folder / "archive"
    await asyncio.to_thread(subprocess.run, server.as_owner(["mkdir", str(archive)]), check=True, cwd=server.folder)
    server.settings |= {"archive_mode": "on", "archive_command": f"cp %p {archive}/%f"}
    with server:
        dsn = await asyncio.to_thread(server.database)
        async with Stand(tmp_path / "first", dsn, Rules()) as first:
            first.vendor.default = Reply(delay=0.3)
            program = await first.start()
            await first.send(first.webhooks(f"m{number}" for number in range(BEFORE // 2)))
            recovery = {"restore_command": f"cp {archive}/%f %p", "recovery_target_name": "noon"}
            recovery["recovery_target_action"] = "promote"
            await asyncio.to_thread(copied, server, other, recovery)
            await first.send(first.webhooks(f"n{number}" for number in range(BEFORE - BEFORE // 2)))
            connection = await asyncpg.connect(dsn)
            await connection.execute("SELECT pg_create_restore_point('noon')")
            await first.send(first.webhooks(f"late{number}" for number in range(AFTER)))
            await first.until_terminal(BEFORE + AFTER)
            program.terminate()
            assert await asyncio.to_thread(program.wait, 60) == 0
            await archived(connection)
            await connection.close()
            with other:
                elsewhere = other.dsn(dsn.rpartition("/")[2])
                figures(**await delivered_elsewhere(tmp_path, first, elsewhere))


PAGE = (ROOT / "docs" / "explanation" / "scale.md").read_text(encoding="utf-8")


@pytest.mark.req("P-803")
@pytest.mark.parametrize("step", scale.PLAN, ids=lambda step: f"{step.load:,}")
def test_the_played_plan_is_what_the_page_says(step: scale.Step) -> None:
    assert scale.row(step) in PAGE


@pytest.mark.req("P-803")
def test_the_page_says_what_happens_without_splits() -> None:
    told = [f"{scale.unsplit(step):,.0%}".replace("%", " %") for step in scale.PLAN[2:4]]
    assert f"({told[0]} at 20,000 a second, {told[1]} at 200,000)" in PAGE
