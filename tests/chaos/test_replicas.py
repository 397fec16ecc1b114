"""Five replicas that start at once on an empty database all become ready."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.support import tables
from tests.support.stand import Rules, Stand

REPLICAS = 5


@pytest.mark.req("G-13")
async def test_five_replicas_start_at_once_on_an_empty_database(durable_dsn: str, tmp_path: Path) -> None:
    async with Stand(tmp_path / "stand", durable_dsn, Rules()) as stand:
        replicas = [stand.launch("outbound,upkeep") for _ in range(REPLICAS)]
        ready = await asyncio.gather(*(replica.until("ready", timeout=60) for replica in replicas))
        async with aiohttp.ClientSession() as session:
            for line in ready:
                async with session.get(f"{line['addresses'][0]}/readyz") as answer:
                    assert answer.status == 200
        versions = [row["version"] for row in await tables.read(durable_dsn, "SELECT version FROM schema_migrations")]
        assert versions
        assert len(set(versions)) == len(versions)
        assert await tables.number(durable_dsn, tables.OPEN) == 0
