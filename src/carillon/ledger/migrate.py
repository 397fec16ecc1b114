"""Migrations: numbered files that bring a database to the current schema, forward only."""

import asyncio
import re
import sqlite3
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import asyncpg
import msgspec

from carillon.domain.errors import ConfigurationError, LedgerNewer, LedgerUnavailable

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_ONLINE = re.compile(r"^-- online$", re.MULTILINE)
_LOCK_SECONDS = 0.1
_LOCK_TRIES = 600
"""How often an online migration tries to get a lock that it does not wait long for."""


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


def _missing(dialect: str, applied: Iterable[int], allowed: int) -> list[Migration]:
    done = set(applied)
    refuse_newer(dialect, done, allowed)
    return [step for step in migrations(dialect) if step.version not in done]


async def migrate_postgres(
    connection: "asyncpg.Connection[Any]", sql: Mapping[str, str], schemas: tuple[str, ...], allowed: int = 0
) -> list[str]:
    """Apply the missing migrations; returns the names of those applied here."""
    # A statement that waits for this lock would hold a snapshot, for which an index that is made online waits.
    while not await connection.fetchval(sql["migrate_lock"]):  # noqa: ASYNC110 - another process holds it
        await asyncio.sleep(_LOCK_SECONDS)
    try:
        for schema in schemas[:1]:
            await _ensure_schema(connection, sql, schema)
        await connection.execute(sql["migrations_table"])
        applied = [row["version"] for row in await connection.fetch(sql["migrations_applied"])]
        steps = _missing("postgres", applied, allowed)
        for step in steps:
            if step.online:
                await _run_online(connection, step)
                await connection.execute(sql["migrations_note"], step.version)
                continue
            async with connection.transaction():
                await connection.execute(step.text)
                await connection.execute(sql["migrations_note"], step.version)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError) as error:
        raise ConfigurationError(f"the database role may not apply the missing migrations: {error}") from error
    finally:
        if not connection.is_closed():
            await connection.execute(sql["migrate_unlock"])
    return [step.name for step in steps]


async def _run_online(connection: "asyncpg.Connection[Any]", step: Migration) -> None:
    for statement in step.statements():
        for _ in range(_LOCK_TRIES):
            try:
                await connection.execute(statement)
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(_LOCK_SECONDS)
            else:
                break
        else:
            raise LedgerUnavailable(f"{step.name} did not get its lock: a long transaction holds the table; try again")


async def _ensure_schema(connection: "asyncpg.Connection[Any]", sql: Mapping[str, str], schema: str) -> None:
    if not await connection.fetchval(sql["schema_exists"], schema):
        await connection.execute(await connection.fetchval(sql["schema_creation"], schema))


def migrate_sqlite(connection: sqlite3.Connection, sql: Mapping[str, str], allowed: int = 0) -> list[str]:
    """Apply the missing migrations in one transaction that locks the whole file; returns their names."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute(sql["migrations_table"])
        applied = [row[0] for row in connection.execute(sql["migrations_applied"])]
        steps = _missing("sqlite", applied, allowed)
        for step in steps:
            for statement in _statements(step.text):
                connection.execute(statement)
            connection.execute(sql["migrations_note"], (step.version,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [step.name for step in steps]


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
