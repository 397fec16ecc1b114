"""Every table of a database at one moment: how many rows, and a sum over what they hold."""

import asyncio
import time

import asyncpg

Snapshot = dict[str, tuple[int, str]]
OWN = frozenset(
    {
        "attempts",
        "breakers",
        "leases",
        "presence",
        "processes",
        "replicas",
        "schema_migrations",
        "stream_pruning",
        "stream_readers",
    }
)
"""Tables that a process writes by itself, without a caller."""
STILL_SECONDS, LONGEST_SECONDS = 1.0, 30.0


async def look(url: str) -> Snapshot:
    """All tables but those of the process itself."""
    connection = await asyncpg.connect(url, timeout=40)
    try:
        names = await connection.fetch("SELECT schemaname, relname FROM pg_stat_user_tables ORDER BY 1, 2")
        found: Snapshot = {}
        for schema, name in names:
            if name in OWN:
                continue
            statement = (
                "SELECT count(*) AS n, coalesce(md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))), '') AS s"
            )
            (row,) = await connection.fetch(f'{statement} FROM "{schema}"."{name}" t')
            found[f"{schema}.{name}"] = (row["n"], row["s"])
        return found
    finally:
        await connection.close()


async def still(url: str) -> Snapshot:
    """The tables once nothing changes them any more; those that never rest are left out."""
    ends = time.monotonic() + LONGEST_SECONDS
    before = await look(url)
    while True:
        await asyncio.sleep(STILL_SECONDS)
        now = await look(url)
        if now == before or time.monotonic() > ends:
            return {name: held for name, held in now.items() if held == before.get(name)}
        before = now


def changed(before: Snapshot, after: Snapshot) -> dict[str, int]:
    """By table, how many rows came; 0 where rows were changed."""
    both = before.keys() & after.keys()
    return {name: after[name][0] - before[name][0] for name in sorted(both) if after[name] != before[name]}
