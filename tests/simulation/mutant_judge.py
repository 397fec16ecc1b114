"""A plugin of pytest that judges mutants: one collection, one PostgreSQL, and for each a fork until a test fails.

    python -m pytest -p tests.simulation.mutant_judge --mutants FILE tests/contract/test_ledger_*.py

reads mutants from FILE and writes a line of JSON to FILE.out for each: its key, and the test that missed the condition.
"""

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

PATIENCE = 4.0
"""A mutant whose tests take so many times as long as those of the statements as they are never answers: missed, too."""
BASELINE_SECONDS = 3600.0
"""For the first run, which changes nothing: it says how fast the machine is today."""
NO_SQL = "no SQL"
"""Says of a mutant that no engine runs it: it proves nothing, and is not counted."""
_NO_SQL = ("PostgresSyntaxError", "UndefinedColumnError", "DatatypeMismatchError", "sqlite3.OperationalError: near")
_LEAVE_OUT = ("clause", "plan", "control", "statement", "sql", "index", "reads", "cost")
"""Words in the names of tests that look at the text of a statement or at its plan instead of what it does."""
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


class Judge:
    """Runs the tests of each mutant in a fork."""

    def __init__(self, config: pytest.Config) -> None:
        file = Path(config.option.mutants)
        self._todo = msgspec.json.decode(file.read_bytes(), type=list[Mutant])[::-1]
        self._out = file.with_suffix(".out")
        self._cores = config.option.judges
        self._most_seconds = BASELINE_SECONDS
        self._baselines = config.option.baselines
        self._running: dict[Connection, tuple[int, Mutant, float]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        here: Any = sys.modules["tests.conftest"]
        with here.Postgres() as server:
            here.Postgres = lambda: nullcontext(server)
            while self._todo or self._running:
                # The baselines alone: their time bounds that of all others.
                while self._todo and len(self._running) < (1 if self._baselines else self._cores):
                    self._fork(session, self._todo.pop())
                self._hear()
        return True

    def _fork(self, session: pytest.Session, mutant: Mutant) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _judge(session, mutant, theirs)
        theirs.close()
        self._running[ours] = pid, mutant, time.monotonic()

    def _hear(self) -> None:
        for pipe in wait(list(self._running), 1.0):
            assert isinstance(pipe, Connection)
            pid, mutant, began = self._running.pop(pipe)
            try:
                by, said = pipe.recv()
            except EOFError:
                by, said = "the process", "ended in the middle of a test"
            os.waitpid(pid, 0)
            self._know_pace(time.monotonic() - began)
            self._write(Judged(mutant.key, by, said))
        for pipe, (pid, mutant, began) in list(self._running.items()):
            if time.monotonic() - began > self._most_seconds:
                del self._running[pipe]
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self._write(Judged(mutant.key, "the clock", f"no end within {self._most_seconds:.0f} s"))

    def _know_pace(self, seconds: float) -> None:
        if self._baselines:
            self._baselines -= 1
            known = 0.0 if self._most_seconds == BASELINE_SECONDS else self._most_seconds
            self._most_seconds = max(known, PATIENCE * seconds)

    def _write(self, judged: Judged) -> None:
        with self._out.open("ab") as file:
            file.write(msgspec.json.encode(judged) + b"\n")


def _judge(session: pytest.Session, mutant: Mutant, pipe: Connection) -> None:
    """In the fork: run tests until one fails, say which, and leave."""
    global _current  # noqa: PLW0603 - one mutant for each process
    _current = mutant
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    first = _FirstFailure()
    try:
        session.config.pluginmanager.register(first, "first failure")
        chosen = _chosen(session.items, mutant)
        for at, item in enumerate(chosen):
            after = chosen[at + 1] if at + 1 < len(chosen) else None
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


def _chosen(items: list[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
    """The tests of its engine, those that are nearest to its statement first."""
    near = [f"test_ledger_{name}.py" for name in NEAREST[mutant.statement]]
    other = "sqlite" if mutant.engine == "postgres" else "postgres"

    def place(item: pytest.Item) -> int:
        name = item.path.name
        return near.index(name) if name in near else len(near)

    def fits(item: pytest.Item) -> bool:
        return other not in item.nodeid and not any(word in item.name for word in _LEAVE_OUT)

    return sorted(filter(fits, items), key=place)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", required=True, help="a file with mutants")
    parser.addoption("--judges", type=int, default=1, help="mutants at a time")
    parser.addoption("--baselines", type=int, default=0, help="how many of the first ones change nothing")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Judge(config), "judge of mutants")
