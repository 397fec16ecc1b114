"""Migrations are numbered once each, and a part touches only its own tables and the engine's."""

import re
import sqlite3

import pytest

from carillon.ledger.migrate import ENGINE, PARTS, Migration, migrate_sqlite, migrations
from carillon.ledger.statements import load, parse
from tests.support.sources import ROOT

DIALECTS = ("postgres", "sqlite")
_TABLE = re.compile(r'^CREATE TABLE (?:IF NOT EXISTS )?"?(\w+)', re.MULTILINE)
_RENAMED = re.compile(r"^ALTER TABLE (\w+) RENAME TO (\w+)", re.MULTILINE)
_TOUCHED = re.compile(r"^(?:ALTER TABLE|UPDATE|INSERT INTO|DROP TABLE|DELETE FROM) (\w+)|\bON (\w+) \(", re.MULTILINE)


def strangers(steps: list[Migration]) -> list[str]:
    """Tables that statements of one part touch although another part brings them."""
    owners: dict[str, str] = {}
    found = []
    for step in steps:
        for chunk in step.chunks():
            owners |= dict.fromkeys(_TABLE.findall(chunk.text), chunk.part)
            owners |= {after: chunk.part for before, after in _RENAMED.findall(chunk.text) if before in owners}
            for names in _TOUCHED.findall(chunk.text):
                table = names[0] or names[1]
                if owners.get(table, ENGINE) not in (ENGINE, chunk.part):
                    found.append(f"{step.name}: {table} is of the part {owners[table]}, so mark it with `-- part:`")
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_number_is_there_once(dialect: str) -> None:
    steps = migrations(dialect)
    assert [step.version for step in steps] == list(range(1, len(steps) + 1)), [step.name for step in steps]


def test_both_dialects_have_the_same_steps_and_parts() -> None:
    postgres, sqlite = (
        [(step.name, sorted({chunk.part for chunk in step.chunks()})) for step in migrations(dialect)]
        for dialect in DIALECTS
    )
    assert postgres == sqlite
    assert {part for _, parts in postgres for part in parts} <= PARTS | {ENGINE}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_part_touches_its_own_tables_and_the_engines(dialect: str) -> None:
    assert strangers(migrations(dialect)) == []


def test_control_a_stranger_is_seen() -> None:
    text = "-- part: api\nCREATE TABLE templates (\n    a text\n);\n"
    later = "ALTER TABLE templates ADD COLUMN b text;\n"
    assert strangers([Migration(1, "1.sql", text), Migration(2, "2.sql", later)]) == [
        "2.sql: templates is of the part api, so mark it with `-- part:`"
    ]


ALWAYS = (
    "prune_candidates",
    "prune",
    "prune_attempts",
    "prune_malformed",
    "counts",
    "dead_letters",
    "records",
    "routes",
)
"""What every process asks beside the statements of intake and claims."""


def test_a_ledger_of_the_engine_alone_can_be_claimed_from_and_pruned() -> None:
    folder = ROOT / "src" / "carillon" / "ledger" / "sqlite"
    names = [name for file in ("claim.sql", "ledger.sql") for name in parse((folder / file).read_text())]
    statements = load("sqlite", frozenset())
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate_sqlite(connection, statements, parts=())
    wrong = {}
    for name in (*names, *ALWAYS):
        try:
            connection.execute(f"EXPLAIN {statements[name]}", _Nothing())
        except sqlite3.OperationalError as error:
            wrong[name] = str(error)
    assert not wrong, "wrap what needs a part between `-- if PART`, `-- else` and `-- end`"


class _Nothing(dict[str, None]):
    def __missing__(self, name: str) -> None:
        return None
