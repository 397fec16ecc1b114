"""Migrations: numbered files that bring a database to the current schema, forward only; each part has its own."""

import asyncio
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from typing import Any

import asyncpg
import msgspec

from carillon.domain.errors import ConfigurationError, LedgerNewer, LedgerUnavailable
from carillon.ledger.adoption import Chunk, ChunkPlan, Existing, is_sql, planned, repeated_rows, table_of

PARTS = frozenset({"api", "audit", "billing", "history", "queues", "streams"})
"""The parts of the program that bring tables of their own; a line `-- part: NAME` begins the statements of one."""
ENGINE = ""
"""The part that every ledger has; the statements before the first such line belong to it."""

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_PART = re.compile(r"^-- part: (\w*)$", re.MULTILINE)
_ONLINE = re.compile(r"^-- online$", re.MULTILINE)
_BESIDE_OTHERS = re.compile(r"\bCONCURRENTLY\b")
_LOCK_SECONDS = 0.1
_LOCK_TRIES = 1200
"""How often a migration tries to get a lock that it does not wait long for: everybody else waits behind it."""


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step."""

    version: int
    name: str
    text: str

    @property
    def online(self) -> bool:
        """Whether it runs statement by statement outside a transaction, while other processes work."""
        return _ONLINE.search(self.text) is not None

    def statements(self) -> list[str]:
        """What PostgreSQL gets at a time: each statement of an online step, all of another one."""
        return [each for each in self.text.split(";\n") if each.strip()] if self.online else [self.text]

    def chunks(self) -> list[Chunk]:
        """The statements by part, in the order of the file; every step has some, perhaps empty ones, of the engine."""
        first, *rest = _PART.split(self.text)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return [Chunk(ENGINE, first), *(Chunk(part, text) for part, text in pairs)]


class Applied(msgspec.Struct, frozen=True):
    """What a ledger has: the numbers of the engine's steps, and the steps of other parts."""

    versions: frozenset[int]
    parts: frozenset[tuple[str, int]]
    """Part and number."""

    def has(self, part: str, version: int) -> bool:
        """Whether the step's statements of this part were run."""
        return version in self.versions if part == ENGINE else (part, version) in self.parts


def migrations(dialect: str) -> list[Migration]:
    """All steps of one dialect, in order."""
    found = []
    for entry in files("carillon.ledger").joinpath("migrations", dialect).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text(encoding="utf-8")))
    return sorted(found)


def refuse_newer(dialect: str, applied: Iterable[int], allowed: int = 0) -> None:
    """Raise LedgerNewer for an unknown migration that is not allowed; called at the start only."""
    known = {step.version for step in migrations(dialect)}
    newest = max(set(applied) - known, default=0)
    if newest > allowed:
        raise LedgerNewer(
            f"a newer release has brought the ledger to migration {newest}, and this release knows {max(known)}: "
            "upgrade this program, or restore the backup of the ledger from before the upgrade; "
            f"to go back without losing newer data, see the changelog and set ledger.allow_migration = {newest}"
        )


def inherited(dialect: str, versions: Collection[int]) -> list[tuple[str, int]]:
    """What a ledger of an earlier release has of each part: everything, because every step was run as a whole."""
    return [
        (chunk.part, step.version)
        for step in migrations(dialect)
        if step.version in versions
        for chunk in step.chunks()
        if chunk.part != ENGINE
    ]


Missing = list[tuple[Migration, str, list[Chunk]]]
"""Step, part, and what of the step belongs to the part."""


def missing(dialect: str, applied: Applied, wanted: Collection[str]) -> Missing:
    """What has to be run, in order; a part that comes later than the engine's newer steps runs after them."""
    found: Missing = []
    for step in migrations(dialect):
        chunks = step.chunks()
        for part in dict.fromkeys(chunk.part for chunk in chunks):
            if (part == ENGINE or part in wanted) and not applied.has(part, step.version):
                found.append((step, part, [chunk for chunk in chunks if chunk.part == part]))
    return found


async def applied_postgres(connection: "asyncpg.Connection[Any]", sql: Mapping[str, str]) -> Applied:
    """What the ledger has; changes nothing."""
    if not await connection.fetchval(sql["migrations_begun"]):
        return Applied(frozenset(), frozenset())
    versions = frozenset(row["version"] for row in await connection.fetch(sql["migrations_applied"]))
    if not await connection.fetchval(sql["parts_begun"]):
        return Applied(versions, frozenset(inherited("postgres", versions)))
    rows = await connection.fetch(sql["parts_applied"])
    return Applied(versions, frozenset((row["part"], row["version"]) for row in rows))


async def plan_postgres(
    connection: "asyncpg.Connection[Any]", sql: Mapping[str, str], steps: Missing
) -> dict[Chunk, ChunkPlan]:
    """How each chunk meets the tables that are there; raises ConfigurationError in one line."""
    rows = await connection.fetch(sql["table_columns"])
    plans = _planned("postgres", [dict(row) for row in rows], steps)
    for plan in plans.values():
        for columns, question in plan.repeated:
            found = await connection.fetchrow(question)
            if found is not None:
                raise repeated_rows(plan, columns, found.values())
    return plans


def _planned(dialect: str, rows: Iterable[Mapping[str, Any]], steps: Missing) -> dict[Chunk, ChunkPlan]:
    there: Existing = {}
    for row in rows:
        there.setdefault(row["table_name"], []).append(table_of(row))
    return {chunk: planned(dialect, chunk, there) for _, _, chunks in steps for chunk in chunks}


async def migrate_postgres(
    connection: "asyncpg.Connection[Any]",
    sql: Mapping[str, str],
    schemas: tuple[str, ...],
    allowed: int = 0,
    parts: Collection[str] = PARTS,
) -> list[str]:
    """Apply the missing migrations of these parts; returns the names of those applied here."""
    # A statement that waits for this lock would hold a snapshot, for which an index that is made online waits.
    while not await connection.fetchval(sql["migrate_lock"]):  # noqa: ASYNC110 - another process holds it
        await asyncio.sleep(_LOCK_SECONDS)
    try:
        applied = await applied_postgres(connection, sql)
        refuse_newer("postgres", applied.versions, allowed)
        steps = missing("postgres", applied, parts)
        plans = await plan_postgres(connection, sql, steps)
        if applied.versions:
            await _upgrade(connection, sql, applied, steps, plans)
        else:
            # All or nothing: a new ledger that fails half-way leaves the database as it was.
            async with connection.transaction():
                for schema in schemas[:1]:
                    await _ensure_schema(connection, sql, schema)
                await connection.execute(sql["migrations_table"])
                await connection.execute(sql["parts_table"])
                for step, part, chunks in steps:
                    await _run(connection, chunks, plans)
                    await _note(connection, sql, step, part)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError) as error:
        raise ConfigurationError(f"the database role may not apply the missing migrations: {error}") from error
    finally:
        if not connection.is_closed():
            await connection.execute(sql["migrate_unlock"])
    return list(dict.fromkeys(step.name for step, _, _ in steps))


async def _upgrade(
    connection: "asyncpg.Connection[Any]",
    sql: Mapping[str, str],
    applied: Applied,
    steps: Missing,
    plans: Mapping[Chunk, ChunkPlan],
) -> None:
    """Each step in a transaction of its own: one that fails leaves the ledger as the step before it did."""
    async with connection.transaction():
        if not await connection.fetchval(sql["parts_begun"]):
            await connection.execute(sql["parts_table"])
            await connection.executemany(sql["parts_note"], sorted(applied.parts))
    for step, part, chunks in steps:
        if step.online:
            await _run_online(connection, step, chunks)
            await _note(connection, sql, step, part)
        else:
            await _run_beside_others(connection, sql, (step, part, chunks), plans)


async def _run_beside_others(
    connection: "asyncpg.Connection[Any]",
    sql: Mapping[str, str],
    wanted: tuple[Migration, str, list[Chunk]],
    plans: Mapping[Chunk, ChunkPlan],
) -> None:
    step, part, chunks = wanted
    for _ in range(_LOCK_TRIES):
        try:
            async with connection.transaction():
                await connection.execute(sql["migrate_patience"])
                await _run(connection, chunks, plans)
                await _note(connection, sql, step, part)
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(_LOCK_SECONDS)
        else:
            return
    raise _locked_out(step)


def _locked_out(step: Migration) -> LedgerUnavailable:
    return LedgerUnavailable(f"{step.name} did not get its lock: a long transaction holds the table; try again")


async def _run(connection: "asyncpg.Connection[Any]", chunks: list[Chunk], plans: Mapping[Chunk, ChunkPlan]) -> None:
    for chunk in chunks:
        plan = plans[chunk]
        try:
            for statement in plan.statements:
                await connection.execute(_BESIDE_OTHERS.sub("", statement))
        except asyncpg.PostgresError as error:
            if plan.adopts is None or isinstance(
                error, asyncpg.InsufficientPrivilegeError | asyncpg.LockNotAvailableError
            ):
                raise
            raise _not_adopted(plan.adopts, error) from error


def _not_adopted(table: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"the table {table} is there and cannot be adopted: {' '.join(str(error).split())}")


async def _note(connection: "asyncpg.Connection[Any]", sql: Mapping[str, str], step: Migration, part: str) -> None:
    if part == ENGINE:
        await connection.execute(sql["migrations_note"], step.version)
    else:
        await connection.execute(sql["parts_note"], part, step.version)


async def _run_online(connection: "asyncpg.Connection[Any]", step: Migration, chunks: list[Chunk]) -> None:
    for statement in (each for chunk in chunks for each in chunk.text.split(";\n") if is_sql(each)):
        for _ in range(_LOCK_TRIES):
            try:
                await connection.execute(statement)
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(_LOCK_SECONDS)
            else:
                break
        else:
            raise _locked_out(step)


async def _ensure_schema(connection: "asyncpg.Connection[Any]", sql: Mapping[str, str], schema: str) -> None:
    if not await connection.fetchval(sql["schema_exists"], schema):
        await connection.execute(await connection.fetchval(sql["schema_creation"], schema))


def applied_sqlite(connection: sqlite3.Connection, sql: Mapping[str, str]) -> Applied:
    """What the ledger has; changes nothing."""
    if not connection.execute(sql["migrations_begun"]).fetchone()[0]:
        return Applied(frozenset(), frozenset())
    versions = frozenset(row[0] for row in connection.execute(sql["migrations_applied"]))
    if not connection.execute(sql["parts_begun"]).fetchone()[0]:
        return Applied(versions, frozenset(inherited("sqlite", versions)))
    return Applied(versions, frozenset((row[0], row[1]) for row in connection.execute(sql["parts_applied"])))


def plan_sqlite(connection: sqlite3.Connection, sql: Mapping[str, str], steps: Missing) -> dict[Chunk, ChunkPlan]:
    """How each chunk meets the tables that are there; raises ConfigurationError in one line."""
    asked = connection.execute(sql["table_columns"])
    names = [each[0] for each in asked.description]
    plans = _planned("sqlite", [dict(zip(names, row, strict=True)) for row in asked.fetchall()], steps)
    for plan in plans.values():
        for columns, question in plan.repeated:
            found = connection.execute(question).fetchone()
            if found is not None:
                raise repeated_rows(plan, columns, found)
    return plans


def migrate_sqlite(
    connection: sqlite3.Connection, sql: Mapping[str, str], allowed: int = 0, parts: Collection[str] = PARTS
) -> list[str]:
    """Apply the missing migrations in one transaction that locks the whole file; returns their names."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        applied = applied_sqlite(connection, sql)
        refuse_newer("sqlite", applied.versions, allowed)
        steps = missing("sqlite", applied, parts)
        plans = plan_sqlite(connection, sql, steps)
        connection.execute(sql["migrations_table"])
        if not connection.execute(sql["parts_begun"]).fetchone()[0]:
            connection.execute(sql["parts_table"])
            connection.executemany(sql["parts_note"], sorted(applied.parts))
        for step, part, chunks in steps:
            for chunk in chunks:
                _run_sqlite(connection, plans[chunk])
            if part == ENGINE:
                connection.execute(sql["migrations_note"], (step.version,))
            else:
                connection.execute(sql["parts_note"], (part, step.version))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return list(dict.fromkeys(step.name for step, _, _ in steps))


def _run_sqlite(connection: sqlite3.Connection, plan: ChunkPlan) -> None:
    try:
        for text in plan.statements:
            for statement in _statements(text):
                connection.execute(statement)
    except sqlite3.Error as error:
        if plan.adopts is None:
            raise
        raise _not_adopted(plan.adopts, error) from error


def _statements(text: str) -> Iterable[str]:
    # The driver's executescript commits first, which would release the lock between two migrations.
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
