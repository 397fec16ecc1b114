"""A ledger with something in every table, and what stands in one, read past the program."""

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import Any

from carillon.ledger.copy_values import Kind, Table
from carillon.ledger.copying import BOOKKEEPING, TICKET
from carillon.ledger.postgres.copy import PostgresEnd
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.ledger.statements import load

MANY, FEW = 4500, 7
LARGE = ("records", "routes", "attempts")
REMOVED = 900
"""A number of the outbox that was given and whose row is gone."""
TOKENS = 77_777


async def tables(dsn: str) -> dict[str, Table]:
    end = await PostgresEnd.open(dsn, load("postgres"))
    try:
        return await end.tables()
    finally:
        await end.aclose()


async def fill(path: str, known: dict[str, Table]) -> None:
    """Rows in every table; first letters are such that a language would sort them otherwise."""
    ledger = await SqliteLedger.open(path)
    await ledger.migrate()
    await ledger.aclose()
    with closing(sqlite3.connect(path)) as file, file:
        names = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ours = [known[name] for name in names if name in known and name not in BOOKKEEPING]
        for table in ours:
            number = 1 if table.name == "history_cursor" else MANY if table.name in LARGE else FEW
            places = ", ".join("?" * len(table.columns))
            file.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names
            file.executemany(
                f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({places})",  # noqa: S608 - as above
                [[value(column.name, column.kind, row) for column in table.columns] for row in range(1, number + 1)],
            )
        file.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'outbox'", (REMOVED,))
        file.execute("UPDATE claim_tokens SET last = ?", (TOKENS,))


def value(name: str, kind: Kind, row: int) -> Any:  # noqa: PLR0911 - one a kind
    match kind:
        case "time":
            return 1_790_000_000_123 + row if row % 3 or name != "occurred_at" else None
        case "flag":
            return 1
        case "json":
            return json.dumps({"b": [row, 1e2, 0.5, "é"], "a": None}, ensure_ascii=row % 2 == 0)
        case "amount":
            return f"{row}.5"
        case "real":
            return row / 3
        case "number":
            return row
        case "text" if name == "status":
            return "pending"
        case "text":
            return f"{'ZaéÄ_'[row % 5]}{name}\n'{row}"


def everything(path: str, known: dict[str, Table]) -> dict[str, list[str]]:
    """Every row of every table of a SQLite file, in no order but its own."""
    with closing(sqlite3.connect(path)) as file:
        found = {}
        for table in known.values():
            names = [name for name in table.names if name != TICKET]
            try:
                rows = file.execute(f"SELECT {', '.join(names)} FROM {table.name}").fetchall()  # noqa: S608 - as above
            except sqlite3.OperationalError:
                continue  # a view of PostgreSQL's
            kinds = table.kinds(names)
            found[table.name] = sorted(repr([_meant(kind, one) for kind, one in zip(kinds, row)]) for row in rows)  # noqa: B905 - of one length
        return {
            name: rows for name, rows in found.items() if name not in ("schema_migrations", "schema_parts", "leases")
        }


def _meant(kind: Kind, found: Any) -> Any:
    if found is None:
        return None
    if kind == "json":
        return sorted(json.loads(found).items())
    return Decimal(found).normalize() if kind == "amount" else found
