"""A large ledger from a small one: what has ended in it is copied many times over, spread over a week."""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from tests.support.ledger_postgres import connected

TABLES = ("records", "routes", "dead_letters", "attempts")
WEEK_MS = 7 * 86_400_000
PEOPLE = 20_000
_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
Row = dict[str, Any]


async def multiply(url: str, many: int) -> int:
    """Copy what has ended in the ledger at this address until it has this many notifications; how many it has then."""
    return await _in_postgres(url, many) if url.startswith("postgres") else _in_sqlite(url, many)


def _in_sqlite(url: str, many: int) -> int:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        db.row_factory = sqlite3.Row
        found = {}
        for table in TABLES:
            names = [row["name"] for row in db.execute(f"PRAGMA table_xinfo({table})") if not row["hidden"]]
            rows = db.execute(f"SELECT {', '.join(names)} FROM {table}")  # noqa: S608 - our own tables
            found[table] = [dict(row) for row in rows]
        for table, copies in _copied(found, many):
            named = ", ".join(f":{name}" for name in found[table][0])
            into = f"INSERT INTO {table} ({', '.join(found[table][0])}) VALUES ({named})"  # noqa: S608 - our own tables
            db.executemany(into, copies)
        db.commit()
        return int(db.execute("SELECT count(*) FROM records").fetchone()[0])


async def _in_postgres(url: str, many: int) -> int:
    # As a replica does: no trigger and no foreign key looks at rows that are right already.
    async with connected(url, session_replication_role="replica") as connection:
        found = {}
        for table in TABLES:
            names = [row["column_name"] for row in await connection.fetch(_COLUMNS, table)]
            rows = await connection.fetch(f"SELECT {', '.join(names)} FROM {table}")  # noqa: S608 - our own tables
            found[table] = [dict(row) for row in rows]
        for table, copies in _copied(found, many):
            names = list(found[table][0])
            records = (tuple(copy.values()) for copy in copies)
            await connection.copy_records_to_table(table, records=records, columns=names)
        await connection.execute("ANALYZE")
        return int(await connection.fetchval("SELECT count(*) FROM records"))


def _copied(found: dict[str, list[Row]], many: int) -> Iterator[tuple[str, Iterator[Row]]]:
    """What has ended; a copy of what waits would be in no queue."""
    waiting = {row["notification_id"] for row in found["routes"] if row["next_attempt_at"] is not None}
    ended = len(found["records"]) - len({row["notification_id"] for row in found["records"]} & waiting)
    times = (many - len(found["records"])) // ended
    for table, rows in found.items():
        if rows:
            yield table, _copies([row for row in rows if row["notification_id"] not in waiting], times)


def _copies(rows: Sequence[Row], times: int) -> Iterator[Row]:
    dice = random.Random(7)
    for number in range(1, times + 1):
        older = WEEK_MS * number // times
        for row in rows:
            copy = {name: _earlier(value, older) if name.endswith("_at") else value for name, value in row.items()}
            # The first eight digits are the time: newer ones stay greater, as the ledger's own ids do.
            first, _, rest = row["notification_id"].partition("-")
            copy["notification_id"] = f"{int(first, 16) - number:08x}-{rest}"
            for name in ("finished_by", "attempt_id"):
                if row.get(name) is not None:
                    copy[name] = row[name] + number * 1_000_000
            if row.get("idempotency_key") is not None:
                copy["idempotency_key"] = f"{row['idempotency_key']}-{number}"
            if "user_id" in row:
                copy["user_id"] = f"user-{dice.randint(1, PEOPLE)}"
            yield copy


def _earlier(value: Any, older: int) -> Any:
    if isinstance(value, datetime):
        return value - timedelta(milliseconds=older)
    return value - older if isinstance(value, int) else value
