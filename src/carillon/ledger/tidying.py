"""Removes the empty tables of parts that a ledger does not need; earlier releases made the tables of every part."""

import re
from collections.abc import Collection, Mapping
from importlib.resources import files

import asyncpg
import msgspec

from carillon.domain.errors import CarillonError
from carillon.ledger.migrate import PARTS
from carillon.ledger.postgres.copy import PostgresEnd
from carillon.ledger.postgres.pools import Address
from carillon.ledger.statements import load

_DROPPED = re.compile(r"^DROP TABLE (\w+);$", re.MULTILINE)


class TidyRefused(CarillonError):
    """Nothing was removed; the message says what to do."""


class ForeignPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that the ledger has and the settings do not need."""

    part: str
    tables: dict[str, int]
    """Each with the number of its rows."""
    removed: bool

    @property
    def empty(self) -> bool:
        return not any(self.tables.values())


async def tidy(url: str, needed: Collection[str], *, dry_run: bool, even_if_used: bool) -> list[ForeignPart]:
    """Remove every foreign part whose tables are all empty, in one transaction; a dry run only looks."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise TidyRefused("only a ledger in PostgreSQL shares its schema with others and is tidied")
    sql = load("postgres")
    end = await PostgresEnd.open(url, sql)
    try:
        used = None if dry_run or even_if_used else await end.used_by()
        if used is not None:
            raise TidyRefused(f"the ledger is in use: {used}; stop these processes, or pass --even-if-used")
    finally:
        await end.aclose()
    connection = await Address.parse(url).connect("tidy", command_timeout=None)
    try:
        async with connection.transaction():
            return await _tidied(connection, sql, needed, dry_run=dry_run)
    except asyncpg.UndefinedTableError as error:
        raise TidyRefused(f"start this release once on the ledger, so that it notes its parts: {error}") from None
    finally:
        await connection.close()


async def _tidied(
    connection: "asyncpg.Connection[asyncpg.Record]", sql: Mapping[str, str], needed: Collection[str], *, dry_run: bool
) -> list[ForeignPart]:
    there = {row["part"] for row in await connection.fetch(sql["parts_applied"])}
    found = []
    for part in sorted(PARTS & there - set(needed)):
        text = (files("carillon.ledger") / "migrations" / "postgres" / "dropped" / f"{part}.sql").read_text("utf-8")
        names = _DROPPED.findall(text)
        if not dry_run:
            # Race: somebody writes the first row while the tables are counted. Nobody can from here on.
            await connection.execute(await connection.fetchval(sql["tidy_lock"], names))
        counts = [await connection.fetchval(sql["copy_count"], name) for name in names]
        counted = {name: await connection.fetchval(count) for name, count in zip(names, counts, strict=True)}
        one = ForeignPart(part=part, tables=counted, removed=not dry_run and not any(counted.values()))
        if one.removed:
            await connection.execute(text)
            await connection.execute(sql["parts_forget"], part)
        found.append(one)
    return found
