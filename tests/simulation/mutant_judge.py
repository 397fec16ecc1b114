"""A plugin of pytest that judges mutants: one collection, one PostgreSQL, and for each a fork until a test fails.

First all tests run without a change, which shows what each takes and which statements it uses: no other test can miss
a mutant of them.

    python -m pytest -p tests.simulation.mutant_judge --mutants FILE tests/contract/test_ledger_*.py

reads mutants from FILE and writes a line of JSON to FILE.out for each: its key, and the test that missed the condition.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from carillon.ledger import statements
from tests.simulation.mutant_texts import NEAREST, Mutant, mutated

PATIENCE_SECONDS, PATIENCE = 30.0, 10.0
"""A test that takes so long, and so many times as long as without the change, never answers: missed, too."""
NEAR = "near"
"""Says of a mutant that it has survived the nearest tests only: there is no verdict yet."""
NO_SQL = "no SQL"
"""Says of a mutant that no engine runs it: it proves nothing, and is not counted."""
_NO_SQL = ("PostgresSyntaxError", "UndefinedColumnError", "DatatypeMismatchError", "sqlite3.OperationalError: near")
_LEAVE_OUT = ("clause", "control", "planned", "_plan", "hot_statements", "index")
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


# Before anything else of Carillon is imported, so that everybody gets this one; hence modules looked up below.
assert "carillon.ledger.opening" not in sys.modules
statements.load = lambda dialect, parts=None: _changed(dialect, parts, _current)  # type: ignore[assignment]


class Judged(msgspec.Struct):
    """What came of one mutant: the test that missed it, or nothing."""

    key: str
    by: str | None
    said: str = ""


class _Given(msgspec.Struct):
    """What is to be judged, and of it the keys of those that have met the nearest tests already."""

    todo: list[Mutant]
    met: set[str]


class _Failures:
    """Remembers whether a test failed, and what it said."""

    def __init__(self) -> None:
        self.by: str | None = None
        self.said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.by is None:
            said = str(getattr(report.longrepr, "reprcrash", report.longrepr))
            self.by = NO_SQL if any(word in said for word in _NO_SQL) else report.nodeid
            self.said = " ".join(said.partition(": ")[2].split())[:160]

    def passes(self, item: pytest.Item, after: pytest.Item | None) -> bool:
        self.by, self.said = None, ""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return self.by is None


class _Usual(msgspec.Struct, frozen=True):
    """What a test does without any change."""

    test: str
    passes: bool
    seconds: float
    uses: frozenset[str]
    """The statements that it has asked for."""
    changes: frozenset[str]
    """The statements whose text it changes itself: it says nothing about another change."""


class _Missed(msgspec.Struct, frozen=True):
    """The end of a fork: who missed the mutant, or nobody, and what was said."""

    by: str | None
    said: str
    ended: bool = False
    """The fork has ended with it."""


class _Running(msgspec.Struct):
    """A fork that judges a mutant, and the test that it is at."""

    pid: int
    mutant: Mutant
    far: bool
    test: str = ""
    since: float = msgspec.field(default_factory=time.monotonic)


class Judge:
    """Runs the tests of each mutant in forks that keep their databases, those first that missed its neighbours.

    Who survives the nearest tests meets the others when all mutants have met the nearest. A test counts only if it
    passes without any change, and fails twice with it.
    """

    def __init__(self, config: pytest.Config) -> None:
        file = Path(config.option.mutants)
        given = msgspec.json.decode(file.read_bytes(), type=_Given)
        self._todo = [mutant for mutant in given.todo if mutant.key not in given.met][::-1]
        self._survive = [mutant for mutant in given.todo if mutant.key in given.met]
        """Who has met the nearest tests."""
        self._engines = {mutant.engine for mutant in given.todo}
        self._out = file.with_suffix(".out")
        self._judges = config.option.judges
        self._running: dict[Connection, _Running] = {}
        self._idle: list[tuple[Connection, int]] = []
        self._usual: dict[str, _Usual] = {}
        self._missed: dict[str, list[str]] = {}
        """By statement: the tests that missed one of its conditions, the newest first."""
        for pair in config.option.killers:
            statement, _, test = pair.partition(" ")
            self._missed.setdefault(statement, []).append(test)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        here: Any = sys.modules["tests.conftest"]
        with here.Postgres() as server:
            here.Postgres = lambda: nullcontext(server)
            # Every fork copies this one: to migrate a database of its own takes longer than most of its tests.
            here.Databases.template = here.Databases(server).prepared()
            self._look(session)
            while self._todo or self._survive or self._running:
                while (self._todo or self._survive) and len(self._running) < self._judges:
                    self._begin(session)
                self._hear()
            for pipe, pid in self._idle:
                pipe.close()
                os.waitpid(pid, 0)
        return True

    def _begin(self, session: pytest.Session) -> None:
        far = not self._todo
        mutant = self._survive.pop(0) if far else self._todo.pop()
        pipe, pid = self._idle.pop() if self._idle else _fork(partial(_serve, session))
        pipe.send((mutant, self._chosen(session.items, mutant, far=far)))
        self._running[pipe] = _Running(pid, mutant, far)

    def _look(self, session: pytest.Session) -> None:
        """Run all tests without any change, in as many forks as there are judges."""
        files: dict[str, list[pytest.Item]] = {}
        for item in filter(self._asked, session.items):
            files.setdefault(item.path.name, []).append(item)
        shares = [list(files.values())[at :: self._judges] for at in range(self._judges)]
        pipes = [_fork(partial(_watch, session, [item for file in share for item in file])) for share in shares]
        for pipe, pid in pipes:
            while isinstance(one := _received(pipe), _Usual):
                self._usual[one.test] = one
            os.waitpid(pid, 0)
        fails = [one.test for one in self._usual.values() if not one.passes]
        sys.stderr.write("".join(f"fails without any change: {test}\n" for test in fails))

    def _asked(self, item: pytest.Item) -> bool:
        if any(word in item.name.partition("[")[0] for word in _LEAVE_OUT):
            return False
        return any(_OTHER[engine] not in item.nodeid for engine in self._engines)

    def _hear(self) -> None:
        for pipe in wait(list(self._running), 1.0):
            assert isinstance(pipe, Connection)
            one = self._running[pipe]
            said = _received(pipe)
            if isinstance(said, str):
                one.test, one.since = said, time.monotonic()
                continue
            assert isinstance(said, _Missed)
            del self._running[pipe]
            if said.ended:
                os.waitpid(one.pid, 0)
            else:
                self._idle.append((pipe, one.pid))
            self._judge(one, said)
        for pipe, one in list(self._running.items()):
            if self._hangs(one):
                del self._running[pipe]
                os.kill(one.pid, signal.SIGKILL)
                os.waitpid(one.pid, 0)
                self._judge(one, _Missed(one.test, "no end"))

    def _hangs(self, one: _Running) -> bool:
        known = self._usual.get(one.test)
        return known is not None and time.monotonic() - one.since > PATIENCE_SECONDS + PATIENCE * known.seconds

    def _judge(self, one: _Running, missed: _Missed) -> None:
        mutant = one.mutant
        if _TIMEOUT in missed.said:
            # The machine was too busy for the test: nothing is known of the mutant.
            return
        if missed.by is None and not one.far:
            self._survive.append(mutant)
            missed = _Missed(None, NEAR)
        elif missed.by is not None and missed.by != NO_SQL:
            known = self._missed.setdefault(mutant.statement, [])
            self._missed[mutant.statement] = [missed.by, *(one for one in known if one != missed.by)]
        with self._out.open("ab") as file:
            file.write(msgspec.json.encode(Judged(mutant.key, missed.by, missed.said)) + b"\n")

    def _chosen(self, items: list[pytest.Item], mutant: Mutant, *, far: bool) -> list[str]:
        """The tests that use its statement: who missed its neighbours, and the nearest or the others."""
        first = self._missed.get(mutant.statement, [])
        near = {"controls", "guards", "guards_ends", "bystanders", *NEAREST[mutant.statement]}
        name = f"{mutant.engine} {mutant.statement}"

        def place(item: pytest.Item) -> tuple[float, float]:
            rank = first.index(item.nodeid) if item.nodeid in first else len(first)
            return rank, self._usual[item.nodeid].seconds

        def fits(item: pytest.Item) -> bool:
            known = self._usual.get(item.nodeid)
            if known is None or not known.passes or _OTHER[mutant.engine] in item.nodeid:
                return False
            return name in known.uses - known.changes and far is not (_named(item) in near or item.nodeid in first)

        return [item.nodeid for item in sorted(filter(fits, items), key=place)]


def _named(item: pytest.Item) -> str:
    """Its file as `NEAREST` names it."""
    return item.path.stem.removeprefix("test_").removeprefix("ledger_")


_OTHER = {"postgres": "sqlite", "sqlite": "postgres"}


def _received(pipe: Connection) -> str | _Usual | _Missed:
    """What a fork says: the test that it begins or has watched, and at its end who missed the mutant."""
    try:
        found: str | _Usual | _Missed = pipe.recv()
    except EOFError:
        return _Missed("the process", "ended in the middle of a test", ended=True)
    return found


def _fork(work: Callable[[Connection], None]) -> tuple[Connection, int]:
    """Let a child do the work, which ends with it."""
    ours, theirs = Pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nothing, number)
        try:
            work(theirs)
        finally:
            os._exit(0)
    theirs.close()
    return ours, pid


class _Noted(dict[str, str]):
    """Statements that note which of them are asked for."""

    def __init__(self, dialect: str, texts: Mapping[str, str], noted: set[str]) -> None:
        super().__init__(texts)
        self._dialect, self._noted = dialect, noted

    def __getitem__(self, name: str) -> str:
        self._noted.add(f"{self._dialect} {name}")
        return super().__getitem__(name)


def _note(dialect: str, name: str, at: int, noted: set[str]) -> None:
    """Let every new ledger of one engine note which statements it asks for."""
    ledger: Any = getattr(sys.modules[f"carillon.ledger.{dialect}.ledger"], name)
    init = ledger.__init__

    def noting(self: object, *given: Any, **named: Any) -> None:
        init(self, *given[:at], _Noted(dialect, given[at], noted), *given[at + 1 :], **named)

    ledger.__init__ = noting


def _note_changes() -> set[str]:
    """Note which statements tests change."""
    changed: set[str] = set()
    engine: Any = sys.modules["tests.support.ledger_engines"].Engine
    statements_of = engine.statements

    def noting(self: Any, changes: Mapping[str, tuple[str, str]] | None = None) -> dict[str, str]:
        changed.update(f"{self.dialect} {name}" for name in changes or ())
        return dict(statements_of(self, changes))

    engine.statements = noting
    return changed


def _watch(session: pytest.Session, chosen: list[pytest.Item], pipe: Connection) -> None:
    """In the fork: run tests without a change, and say of each what it takes and uses."""
    noted: set[str] = set()
    changed = _note_changes()
    _note("sqlite", "SqliteLedger", 1, noted)
    _note("postgres", "PostgresLedger", 2, noted)
    failures = _Failures()
    session.config.pluginmanager.register(failures, "failures")
    for item, after in zip(chosen, [*chosen[1:], None], strict=True):
        noted.clear()
        changed.clear()
        began = time.monotonic()
        passes = failures.passes(item, after)
        seconds = time.monotonic() - began
        pipe.send(_Usual(item.nodeid, passes, seconds, frozenset(noted), frozenset(changed)))
    session._setupstate.teardown_exact(None)  # noqa: SLF001 - pytest does the same behind the last test


def _serve(session: pytest.Session, pipe: Connection) -> None:
    """In the fork: judge one mutant after the other."""
    global _current  # noqa: PLW0603 - one mutant at a time
    items = {item.nodeid: item for item in session.items}
    failures = _Failures()
    session.config.pluginmanager.register(failures, "failures")
    while True:
        try:
            _current, names = pipe.recv()
        except EOFError:
            break
        try:
            end = _tried(session, [items[name] for name in names], failures, pipe)
        except BaseException as problem:  # noqa: BLE001 - a fixture that fails at its end has missed it, too
            pipe.send(_Missed("the end of a test", repr(problem)[:200], ended=True))
            return
        pipe.send(end)
    _current = None
    session._setupstate.teardown_exact(None)  # noqa: SLF001 - pytest does the same behind the last test


def _tried(session: pytest.Session, chosen: list[pytest.Item], failures: _Failures, pipe: Connection) -> _Missed:
    """Run tests until one fails twice, and say which."""
    if chosen:
        # What the mutant before this one has left, but for what both need: the servers and the databases.
        session._setupstate.teardown_exact(chosen[0])  # noqa: SLF001 - as below
    # Some other test behind the last one: its own fixtures end, and those of the session stay.
    last = next(item for item in session.items if item is not chosen[-1]) if chosen else None
    for item, after in zip(chosen, [*chosen[1:], last], strict=False):
        pipe.send(item.nodeid)
        # Once proves little on a busy machine.
        if not failures.passes(item, after):
            session._setupstate.teardown_exact(item)  # noqa: SLF001 - the test comes again
            if not failures.passes(item, after):
                return _Missed(failures.by, failures.said)
    return _Missed(None, "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", required=True, help="a file with mutants")
    parser.addoption("--judges", type=int, default=1, help="mutants at a time")
    parser.addoption("--killers", nargs="*", default=[], help="who missed another condition: `statement test`")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Judge(config), "judge of mutants")
