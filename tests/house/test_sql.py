"""SQL lives in named files, says the same in both dialects, and is never pieced together."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from carillon.ledger.statements import load, numbered
from tests.support.sources import ROOT, place, syntax_trees

ROOMS = [ROOT / "src" / "carillon" / "ledger", *sorted((ROOT / "src" / "carillon" / "blueprints").iterdir())]
_STATEMENT = re.compile(r"\b(SELECT\s|INSERT\s+INTO\s|UPDATE\s|DELETE\s+FROM\s)")


def statements(files: Iterable[Path]) -> tuple[set[str], set[str], list[str]]:
    """All names, the names marked as having no twin, and what is wrong with the marks."""
    names: set[str] = set()
    alone: set[str] = set()
    wrong: list[str] = []
    for path in files:
        current = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            key, _, value = line.removeprefix("--").strip().partition(":")
            if not line.startswith("--"):
                continue
            if key == "name":
                current = value.split()[0] if value.split() else ""
                if not current or current in names:
                    wrong.append(f"{place(path, number)}: a statement needs a name of its own")
                names.add(current)
            elif key == "only":
                alone.add(current)
                if not value.strip():
                    wrong.append(f"{place(path, number)}: say why {current} has no twin")
    return names, alone, wrong


def numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name[:4]) for name in names)


def test_migrations_are_numbered_one_by_one() -> None:
    """Two with one number would both be run by a new ledger, and neither by an old one that has had the other."""
    folder = ROOT / "src" / "carillon" / "ledger" / "migrations"
    names = {kind: {path.name for path in (folder / kind).glob("*.sql")} for kind in ("postgres", "sqlite")}
    assert names["postgres"] == names["sqlite"]
    assert numbers(names["postgres"]) == list(range(1, len(names["postgres"]) + 1))
    assert numbers(["0001_a.sql", "0002_b.sql", "0002_c.sql"]) != [1, 2, 3]


def dialect(name: str) -> list[Path]:
    return sorted(path for room in ROOMS for path in room.glob(f"{name}/*.sql"))


def test_every_statement_has_its_twin() -> None:
    postgres, postgres_only, postgres_wrong = statements(dialect("postgres"))
    sqlite, sqlite_only, sqlite_wrong = statements(dialect("sqlite"))
    assert not postgres_wrong + sqlite_wrong
    assert not postgres - sqlite - postgres_only, "missing in sqlite"
    assert not sqlite - postgres - sqlite_only, "missing in postgres"
    assert not (postgres_only | sqlite_only) & postgres & sqlite, "marked as only, yet both have it"


def unlike(postgres: Mapping[str, str], sqlite: Mapping[str, str]) -> list[str]:
    """Statements with names for their values in PostgreSQL whose twin in SQLite has other names."""
    found = []
    for name, text in postgres.items():
        names = set(numbered(text).names)
        if names and re.search(r"\$\d", text):
            found.append(f"{name}: names and numbers together")
        other = set(numbered(sqlite.get(name, text)).names) - {"now"}
        if names and other != names:
            found.append(f"{name}: {sorted(other ^ names)}")
    return found


def test_both_dialects_name_their_values_alike() -> None:
    assert not unlike(load("postgres"), load("sqlite"))


def test_an_unlike_name_is_seen() -> None:
    assert unlike({"a": "SELECT :x"}, {"a": "SELECT :y + :now"}) == ["a: ['x', 'y']"]
    assert unlike({"a": "SELECT :x, $1"}, {"a": "SELECT :x"}) == ["a: names and numbers together"]


def pieced_together(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values) if any(_is_sql(value) for value in values):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr="format" | "format_map")) if _is_sql(value):
                yield node.lineno
            case ast.BinOp(left=left, op=ast.Mod() | ast.Add(), right=right) if _is_sql(left) or _is_sql(right):
                yield node.lineno


def _is_sql(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_STATEMENT.search(node.value))


def test_no_sql_is_pieced_together() -> None:
    assert not [f"{name}:{line}" for name, tree in syntax_trees(("src",)) for line in pieced_together(tree)]


@pytest.mark.parametrize(
    "source",
    ["f'SELECT {x} FROM t'", "'DELETE FROM {}'.format(x)", "'UPDATE %s SET a = 1' % x", "'INSERT INTO t ' + x"],
)
def test_pieced_sql_is_seen(source: str) -> None:
    assert list(pieced_together(ast.parse(source))) == [1]


def looked_up_again(text: str) -> list[str]:
    """`IN (SELECT … LIMIT … FOR UPDATE)`: PostgreSQL may run the look once for every row, and each finds other rows."""
    found = []
    for start in re.finditer(r"\bIN\s*\(\s*SELECT\b", text):
        depth, end = 0, start.start()
        for end in range(text.index("(", start.start()), len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        look = text[start.start() : end]
        if "LIMIT" in look and "FOR UPDATE" in look:
            found.append(" ".join(look.split()))
    return found


def test_a_limited_look_that_locks_is_made_once() -> None:
    assert not {name: found for name, text in load("postgres").items() if (found := looked_up_again(text))}


def test_a_look_that_may_be_repeated_is_seen() -> None:
    assert looked_up_again("DELETE FROM a WHERE b IN (SELECT b FROM (a) LIMIT 2 FOR UPDATE SKIP LOCKED)")
    assert not looked_up_again("DELETE FROM a WHERE b = ANY (ARRAY(SELECT b FROM a LIMIT 2 FOR UPDATE SKIP LOCKED))")
    assert not looked_up_again("SELECT b IN (SELECT b FROM a) FROM a LIMIT 2 FOR UPDATE")
