"""A dump of a ledger under load, restored elsewhere: what is in it is delivered, and only what was open is repeated."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import tables
from tests.support.servers import Postgres, find_binary
from tests.support.stand import Rules, Stand
from tests.support.vendor import Reply

BEFORE, AFTER = 150, 60


def dumped(dsn: str, file: Path) -> None:
    """What an operator runs: one consistent snapshot, while everybody goes on writing."""
    subprocess.run([find_binary("pg_dump"), "-Fc", "-f", str(file), dsn], check=True, timeout=60)


def restored(file: Path, dsn: str) -> None:
    subprocess.run([find_binary("pg_restore"), "--no-owner", "-d", dsn, str(file)], check=True, timeout=60)


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
        statuses = {row["status"]: row["n"] for row in await tables.read(elsewhere, tables.STATUSES)}
        open_then = sum(number for status, number in statuses.items() if status != "published")
        assert sum(statuses.values()) == BEFORE, "everything that was accepted before the dump, and nothing later"
        assert open_then > 0
        # The same vendor, so that a repeat is seen.
        async with Stand(tmp_path / "second", elsewhere, Rules()) as second:
            await second.start()
            await second.until_terminal(BEFORE)
        sent = Counter(str(entry["id"]) for entry in first.vendor.entries)
        repeats = {name: number - 1 for name, number in sent.items() if number > 1}
        assert len(sent) == BEFORE + AFTER, "every repeat carries the id of its first send"
        assert set(repeats.values()) <= {1}
        assert sum(repeats.values()) == open_then
        assert await tables.read(elsewhere, tables.SETTLED_TWICE) == []
        figures(accepted=BEFORE + AFTER, in_the_dump=BEFORE, lost_with_the_rest=AFTER, repeats=sum(repeats.values()))
    await asyncio.to_thread(durable_postgres.drop, elsewhere)
