"""A plugin of pytest that judges mutants: one collection, one PostgreSQL, and for each a fork until a test fails.

    python -m pytest -p tests.simulation.mutant_judge --mutants FILE tests/contract/test_ledger_*.py

reads mutants from FILE and writes a line of JSON to FILE.out for each: its key, and the test that missed the condition.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from carillon.ledger import statements
from tests.simulation.mutant_texts import NEAREST, Mutant, mutated
from tests.support.databases import Databases

PATIENCE_SECONDS, PATIENCE = 60.0, 4.0
"""A test that takes so long, and so many times as long as without the change, never answers: missed, too."""
CONTROL_SECONDS = 900.0
NO_SQL = "no SQL"
"""Says of a mutant that no engine runs it: it proves nothing, and is not counted."""
_NO_SQL = ("PostgresSyntaxError", "UndefinedColumnError", "DatatypeMismatchError", "sqlite3.OperationalError: near")
_LEAVE_OUT = ("clause", "plan", "control", "statement", "sql", "index", "reads", "cost")
"""Words in the names of tests that look at the text of a statement or at its plan instead of what it does."""
_TIMEOUT = "Timeout (>"
"""What pytest's own limit says."""
_unchanged = statements.load.__wrapped__
_current: Mutant | None = None


@cache
def _changed(dialect: str, parts: frozenset[str] | None, mutant: Mutant | None) -> Mapping[str, str]:
    found: dict[str, str] = dict(_unchanged(dialect, parts))
    if mutant is not None and mutant.engine == dialect and mutant.statement in found:
        found[mutant.statement] = mutated(mutant, found[mutant.statement])
    return MappingProxyType(found)


# Before anything else of Carillon is imported, so that everybody gets this one.
statements.load = lambda dialect, parts=None: _changed(dialect, parts, _current)  # type: ignore[assignment]


class Judged(msgspec.Struct):
    """What came of one mutant: the test that missed it, or nothing."""

    key: str
    by: str | None
    said: str = ""


class _FirstFailure:
    """Remembers the first test that fails."""

    def __init__(self) -> None:
        self.by: str | None = None
        self.said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.by is None:
            said = str(getattr(report.longrepr, "reprcrash", report.longrepr))
            self.by = NO_SQL if any(word in said for word in _NO_SQL) else report.nodeid
            self.said = " ".join(said.partition(": ")[2].split())[:160]


class _Running(msgspec.Struct):
    """A fork that judges a mutant, and the test that it is at."""

    pid: int
    mutant: Mutant
    test: str = ""
    since: float = msgspec.field(default_factory=time.monotonic)


class Judge:
    """Runs the tests of each mutant in a fork, those first that missed its neighbours.

    A test that fails counts only if it passes without any change: that is looked up once for each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        file = Path(config.option.mutants)
        self._todo = msgspec.json.decode(file.read_bytes(), type=list[Mutant])[::-1]
        self._out = file.with_suffix(".out")
        self._cores = config.option.judges
        self._near = config.option.near
        self._running: dict[Connection, _Running] = {}
        self._control: dict[str, float] = {}
        """By test: how long it takes without any change; infinite if it fails then, and says nothing about anybody."""
        self._missed: dict[str, list[str]] = {}
        """By statement: the tests that missed one of its conditions, the newest first."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        here: Any = sys.modules["tests.conftest"]
        with here.Postgres() as server:
            here.Postgres = lambda: nullcontext(server)
            # Every fork copies this one: to migrate a database of its own takes longer than most of its tests.
            Databases.template = Databases(server).prepared()
            while self._todo or self._running:
                while self._todo and len(self._running) < self._cores:
                    mutant = self._todo.pop()
                    pipe, pid = _fork(session, mutant, self._chosen(session.items, mutant))
                    self._running[pipe] = _Running(pid, mutant)
                self._hear(session)
        return True

    def _hear(self, session: pytest.Session) -> None:
        for pipe in wait(list(self._running), 1.0):
            assert isinstance(pipe, Connection)
            one = self._running[pipe]
            said = _received(pipe)
            if isinstance(said, str):
                one.test, one.since = said, time.monotonic()
                continue
            del self._running[pipe]
            os.waitpid(one.pid, 0)
            self._judge(session, one.mutant, *said)
        for pipe, one in list(self._running.items()):
            if self._hangs(session, one):
                del self._running[pipe]
                os.kill(one.pid, signal.SIGKILL)
                os.waitpid(one.pid, 0)
                self._judge(session, one.mutant, one.test, "no end")

    def _hangs(self, session: pytest.Session, one: _Running) -> bool:
        seconds = time.monotonic() - one.since
        if not one.test or seconds < PATIENCE_SECONDS:
            return False
        return seconds > PATIENCE_SECONDS + PATIENCE * self._seconds(session, one.test)

    def _judge(self, session: pytest.Session, mutant: Mutant, by: str | None, said: str) -> None:
        if _TIMEOUT in said:
            # The machine was too busy for the test: nothing is known of the mutant.
            return
        if by is not None and by != NO_SQL:
            if math.isinf(self._seconds(session, by)):
                # It fails without any change, too: ask the others.
                self._todo.append(mutant)
                return
            known = self._missed.setdefault(mutant.statement, [])
            self._missed[mutant.statement] = [by, *(one for one in known if one != by)]
        with self._out.open("ab") as file:
            file.write(msgspec.json.encode(Judged(mutant.key, by, said)) + b"\n")

    def _seconds(self, session: pytest.Session, test: str) -> float:
        """How long the test takes without any change."""
        if test not in self._control:
            began = time.monotonic()
            pipe, pid = _fork(session, None, [item for item in session.items if item.nodeid == test])
            said: str | tuple[str | None, str] = ""
            while isinstance(said, str) and pipe.poll(CONTROL_SECONDS):
                said = _received(pipe)
            if isinstance(said, str):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            passed = not isinstance(said, str) and said[0] is None
            self._control[test] = time.monotonic() - began if passed else math.inf
        return self._control[test]

    def _chosen(self, items: list[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
        """The tests of its engine: who missed its neighbours first, then those that are nearest to its statement."""
        first = self._missed.get(mutant.statement, [])
        near = [f"test_ledger_{name}.py" for name in NEAREST[mutant.statement]]
        other = "sqlite" if mutant.engine == "postgres" else "postgres"

        def place(item: pytest.Item) -> int:
            if item.nodeid in first:
                return first.index(item.nodeid) - len(first)
            return near.index(item.path.name) if item.path.name in near else len(near)

        def fits(item: pytest.Item) -> bool:
            known = self._control.get(item.nodeid, 0.0)
            if math.isinf(known) or other in item.nodeid or any(word in item.name for word in _LEAVE_OUT):
                return False
            return not self._near or place(item) < len(near)

        return sorted(filter(fits, items), key=place)


def _received(pipe: Connection) -> str | tuple[str | None, str]:
    """The test that a fork begins, or at its end who missed the mutant and what was said."""
    try:
        found: str | tuple[str | None, str] = pipe.recv()
    except EOFError:
        return "the process", "ended in the middle of a test"
    return found


def _fork(session: pytest.Session, mutant: Mutant | None, chosen: list[pytest.Item]) -> tuple[Connection, int]:
    ours, theirs = Pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run(session, mutant, chosen, theirs)
    theirs.close()
    return ours, pid


def _run(session: pytest.Session, mutant: Mutant | None, chosen: list[pytest.Item], pipe: Connection) -> None:
    """In the fork: run tests until one fails, say which, and leave."""
    global _current  # noqa: PLW0603 - one mutant for each process
    _current = mutant
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    first = _FirstFailure()
    try:
        session.config.pluginmanager.register(first, "first failure")
        for at, item in enumerate(chosen):
            after = chosen[at + 1] if at + 1 < len(chosen) else None
            pipe.send(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if first.by is not None:
                break
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - pytest does the same behind the last test
    except BaseException as problem:  # noqa: BLE001 - a fixture that fails at its end has missed it, too
        first.by = first.by or "the end of a test"
        first.said = first.said or repr(problem)[:200]
    finally:
        pipe.send((first.by, first.said))
        os._exit(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", required=True, help="a file with mutants")
    parser.addoption("--judges", type=int, default=1, help="mutants at a time")
    parser.addoption("--near", action="store_true", help="ask only the tests nearest to a statement")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Judge(config), "judge of mutants")
