"""Copying a whole ledger from SQLite to PostgreSQL, or back, and comparing both ends afterwards."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import msgspec

from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.faultpoint import faultpoint
from carillon.ledger.copy_values import Digest, Table
from carillon.ledger.migrate import migrations
from carillon.ledger.opening import file_of
from carillon.ledger.postgres.copy import PostgresEnd
from carillon.ledger.sqlite.copy import SqliteEnd
from carillon.ledger.statements import load

End: TypeAlias = PostgresEnd | SqliteEnd
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step, the rows done, and the total number of rows."""

PARENTS_FIRST = ("records", "routes", "dead_letters", "digests")
BOOKKEEPING = frozenset({"schema_migrations", "schema_parts", "claim_tokens", "due", "leases"})
"""Not copied. Routes are copied without tickets: what stood in `due` or in a lease is due in the target."""
TICKET = "ticket"


class CopyRefused(CarillonError):
    """The copy did not begin, or the ends differ; the message says what to do."""


class Copied(msgspec.Struct, frozen=True):
    """One copied table, with the same rows at both ends."""

    table: str
    rows: int
    written: int
    """Rows written by this run; fewer than `rows` after an interrupted run."""
    digest: str


async def copy_ledger(
    source_url: str, target_url: str, *, resume: bool, even_if_used: bool, progress: Progress
) -> list[Copied]:
    """Copy every table, then read both ends and compare; raises CopyRefused if they differ."""
    if source_url.startswith("sqlite:") == target_url.startswith("sqlite:"):
        raise CopyRefused("source and target are the same kind of database: use pg_dump, or .backup of SQLite")
    async with AsyncExitStack() as stack:
        source = await _open(source_url)
        stack.push_async_callback(source.aclose)
        if await source.versions() != [step.version for step in migrations("sqlite")]:
            raise CopyRefused("the source has the tables of another release: run `carillon migrate` on it first")
        target = await _open(target_url, prepared=True)
        stack.push_async_callback(target.aclose)
        if not even_if_used:
            await _refuse_used(source, target)
        tables = await _tables(source, target)
        await _refuse_filled(target, tables, resume=resume)
        total = sum([await source.count(table) for table in tables])
        written = await _copy(source, target, tables, total, progress)
        return await _compare(source, target, tables, written=written, total=total, progress=progress)


async def _open(url: str, *, prepared: bool = False) -> End:
    if url.startswith("sqlite:///"):
        return (SqliteEnd.prepared if prepared else SqliteEnd.open)(file_of(url), load("sqlite"))
    if url.startswith(("postgresql://", "postgres://")):
        return await (PostgresEnd.prepared if prepared else PostgresEnd.open)(url, load("postgres"))
    raise ConfigurationError("a database URL must begin with postgresql:// or sqlite:///")


async def _refuse_used(source: End, target: End) -> None:
    for end, word in ((source, "source"), (target, "target")):
        by = await end.used_by()
        if by is not None:
            raise CopyRefused(
                f"the {word} is in use: {by}; stop that process, or pass --even-if-used if it is another program"
            )


async def _tables(source: End, target: End) -> list[Table]:
    postgres, sqlite = (source, target) if isinstance(source, PostgresEnd) else (target, source)
    if not isinstance(postgres, PostgresEnd) or not isinstance(sqlite, SqliteEnd):
        raise TypeError("a copy needs one PostgreSQL end and one SQLite end")
    known = await postgres.tables()
    ours = {name: columns for name, columns in (await sqlite.columns()).items() if name not in BOOKKEEPING}
    if isinstance(source, PostgresEnd):
        # A ledger has the tables of the parts that it needs; the target is prepared for all of them.
        ours = {name: columns for name, columns in ours.items() if name in known}
    for name, columns in ours.items():
        if name not in known or set(known[name].names) != columns:
            raise CopyRefused(f"table {name} is not the same at both ends: run `carillon migrate` on both")
    order = [name for name in PARENTS_FIRST if name in ours]
    return [_without_tickets(known[name]) for name in (*order, *sorted(set(ours) - set(order)))]


def _without_tickets(table: Table) -> Table:
    return msgspec.structs.replace(table, columns=tuple(each for each in table.columns if each.name != TICKET))


async def _refuse_filled(target: End, tables: list[Table], *, resume: bool) -> None:
    if resume:
        return
    filled = [table.name for table in tables if await target.count(table)]
    if filled:
        raise CopyRefused(
            f"the target is not empty ({', '.join(filled)}): name an empty one, or pass --resume to go on with a copy"
        )


async def _copy(source: End, target: End, tables: list[Table], total: int, progress: Progress) -> dict[str, int]:
    written: dict[str, int] = {}
    done = 0
    for table in tables:
        after = await target.last(table)
        done += await target.count(table)
        written[table.name] = 0
        async for rows in source.read(table, after):
            await target.write(table, rows)
            faultpoint("after_copied_page")
            written[table.name] += len(rows)
            done += len(rows)
            progress("copying", done, total)
    await _carry_marks(source, target, tables)
    return written


async def _carry_marks(source: End, target: End, tables: list[Table]) -> None:
    theirs, here = await source.marks(), await target.marks()
    for table in tables:
        if len(table.key) == 1 and table.kinds(table.key) == ["number"]:
            key = await target.last(table)
            theirs[table.name] = max(theirs.get(table.name, 0), key[0] if key else 0)
    for name, last in theirs.items():
        if last > here.get(name, 0):
            await target.mark(name, last)


async def _compare(
    source: End, target: End, tables: list[Table], *, written: dict[str, int], total: int, progress: Progress
) -> list[Copied]:
    found = []
    done = 0
    for table in tables:
        one, other = Digest(table), Digest(table)
        for end, digest in ((source, one), (target, other)):
            async for rows in end.read(table, None):
                digest.add(rows)
                done += len(rows)
                progress("checking", done, 2 * total)
        if (one.rows, one.text()) != (other.rows, other.text()):
            raise CopyRefused(
                f"table {table.name} differs ({one.rows} rows in the source, {other.rows} in the target): the source "
                "changed during the copy, or the target had other rows; begin again with an empty target"
            )
        found.append(Copied(table.name, one.rows, written[table.name], one.text()))
    return found
