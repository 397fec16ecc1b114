"""Runs tests in forks of the process that collected them.

One collection serves all workers: with a process of its own for each worker, six of them spend a minute of processor
time on importing and collecting the same tests. A worker gets whole files, the longest first, and asks for the next
file when it begins the last test of the file before: so pytest always knows the next test, and ends the fixtures of a
module but not those of the session in between.
"""

import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

from tests.support import forkserver, order

_END_SECONDS = 20.0
"""How long interrupted workers may take to stop their servers."""
_COSTLY, _FEW = "rabbitmq", 2
_PARAMETER = re.compile(rf"[\[-]{_COSTLY}[-\]]")
"""A fixture whose start costs five seconds of processor time, and how many workers may have it."""


_EACH_CORE, _FEWEST, _MOST = 4, 4, 16


def number(said: str) -> int:
    """How many workers `--workers` means.

    Most tests wait: six workers left half of two quiet cores idle, so `auto` is four for each core. That follows from
    the figures and was not measured on quiet cores. Each worker has servers of its own, hence the bound.
    """
    if said != "auto":
        return int(said)
    return max(_FEWEST, min(_MOST, _EACH_CORE * len(os.sched_getaffinity(0))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=number,
        default=0,
        metavar="N",
        help="run the tests in N forks; 0: in this process; auto: four for each core",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(order.Stopwatch(config), "stopwatch")
    register(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if needs_costly(item):
            item.add_marker("slow")
    # Now pytest leaves out what was not asked for.
    yield
    stopwatch = config.pluginmanager.getplugin("stopwatch")
    order.sort(items, stopwatch.known())


def register(config: pytest.Config) -> None:
    """Let workers run the tests, if more than one process is wanted."""
    if config.option.workers > 0 and not config.option.collectonly and not config.option.usepdb:
        config.pluginmanager.register(Workers(config), "workers")


class Workers:
    """Hands files to forks and tells pytest what they report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._queue: deque[list[int]] = deque()
        self._running: dict[Connection, _Worker] = {}
        self._forked = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed and not self._config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self._queue.extend(_files(session.items))
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            # Files run side by side: a line for each change of file would be a line for each test.
            reporter.showfspath = self._config.option.verbose > 0
        forkserver.share()
        for _ in range(min(self._config.option.workers, len(self._queue))):
            self._fork(session)
        try:
            while self._running:
                for ready in wait(list(self._running)):
                    self._hear(session, self._running[ready])  # type: ignore[index]
        except BaseException:
            self._end_all()
            raise
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, session: pytest.Session) -> None:
        self._forked += 1
        ours, theirs = Pipe()
        # What is buffered would be written once by every process.
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for other in self._running:
                other.close()
            ours.close()
            _become_worker(session, theirs, self._forked)
        theirs.close()
        self._running[ours] = _Worker(pid, ours)

    def _hear(self, session: pytest.Session, worker: "_Worker") -> None:
        """Take one message: a test's start, report or finish, a request for the next file, or the worker's end."""
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._died(session, worker)
            return
        hook = self._config.hook
        if kind == "start":
            worker.runs = content
            item = session.items[content]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            hook.pytest_runtest_logreport(
                report=hook.pytest_report_from_serializable(config=self._config, data=content)
            )
        elif kind == "finish":
            worker.runs = None
            worker.holds.remove(content)
            item = session.items[content]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "next":
            stops = session.shouldfail or session.shouldstop
            tests = [] if stops else self._next(session, worker)
            worker.holds.extend(tests)
            worker.pipe.send(tests)
        else:
            del self._running[worker.pipe]
            os.waitpid(worker.pid, 0)
            if content:
                self._config.hook.pytest_runtest_logreport(report=_report("", ("tests", None, ""), content))

    def _next(self, session: pytest.Session, worker: "_Worker") -> list[int]:
        """The next file; the files that need the costly fixture go to the few workers that have it already."""
        costly = [any(needs_costly(session.items[at]) for at in tests) for tests in self._queue]
        has = sum(each.has_costly for each in self._running.values())
        wants = worker.has_costly or has < _FEW
        chosen = next((at for at, is_costly in enumerate(costly) if is_costly == wants), 0)
        if not self._queue or (costly[chosen] and not wants):
            return []
        worker.has_costly = worker.has_costly or costly[chosen]
        tests = self._queue[chosen]
        del self._queue[chosen]
        return tests

    def _died(self, session: pytest.Session, worker: "_Worker") -> None:
        """Blame the test that ran; a new worker takes the tests that the dead one held."""
        del self._running[worker.pipe]
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if worker.runs is not None:
            item = session.items[worker.runs]
            hook = self._config.hook
            hook.pytest_runtest_logreport(
                report=_report(item.nodeid, item.location, f"the worker ended with {code} while it ran {item.nodeid}")
            )
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            worker.holds.remove(worker.runs)
        if worker.holds:
            self._queue.appendleft(worker.holds)
        if self._queue and not (session.shouldfail or session.shouldstop):
            self._fork(session)

    def _end_all(self) -> None:
        """Ctrl-C reaches every process of the terminal; what does not end by itself is killed."""
        for worker in self._running.values():
            os.kill(worker.pid, signal.SIGINT)
        while self._running and (ready := wait(list(self._running), _END_SECONDS)):
            for pipe in ready:
                try:
                    pipe.recv()  # type: ignore[union-attr, call-arg]
                except (EOFError, OSError):
                    del self._running[pipe]  # type: ignore[arg-type]
        for worker in self._running.values():
            os.kill(worker.pid, signal.SIGKILL)


@dataclass(slots=True)
class _Worker:
    pid: int
    pipe: Connection
    runs: int | None = None
    holds: list[int] = field(default_factory=list)
    has_costly: bool = False


def _files(items: list[pytest.Item]) -> Iterator[list[int]]:
    """The places of each file's tests in the list of all."""
    for _, places in groupby(range(len(items)), key=lambda at: order.file_of(items[at].nodeid)):
        yield list(places)


def needs_costly(item: pytest.Item) -> bool:
    """Whether a test asks for the costly fixture; one that asks for it while it runs has its name as a parameter."""
    return _COSTLY in getattr(item, "fixturenames", []) or _PARAMETER.search(item.nodeid) is not None


def _report(nodeid: str, location: tuple[str, int | None, str], text: str) -> pytest.TestReport:
    return pytest.TestReport(nodeid, location, {}, "failed", text, "call")


def _become_worker(session: pytest.Session, pipe: Connection, number: int) -> None:
    """Run files until there are none, and leave; what the parent shows and remembers, a worker does not."""
    error = ""
    try:
        _settle_in(session.config, number)
        session.config.pluginmanager.register(_Reports(session.config, pipe), "worker reports")
        _run(session, pipe)
    except KeyboardInterrupt:
        pass
    except BaseException as problem:  # noqa: BLE001 - the parent says it
        error = f"worker {number}: {problem!r}"
    try:
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - pytest does the same behind the last test
    except BaseException as problem:  # noqa: BLE001
        error = error or f"worker {number}, at its end: {problem!r}"
    finally:
        try:
            pipe.send(("end", error))
        finally:
            os._exit(0)


def _run(session: pytest.Session, pipe: Connection) -> None:
    places = _places(pipe)
    at = next(places, None)
    while at is not None:
        pipe.send(("start", at))
        following = next(places, None)
        item = session.items[at]
        after = None if following is None else session.items[following]
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        pipe.send(("finish", at))
        at = following


def _places(pipe: Connection) -> Iterator[int]:
    while True:
        pipe.send(("next", None))
        file = pipe.recv()
        if not file:
            return
        yield from file


def _settle_in(config: pytest.Config, number: int) -> None:
    """Take what a process must have for itself: captured output, temporary folders, random numbers."""
    for name in ("terminalreporter", "stopwatch", "workers"):
        config.pluginmanager.unregister(name=name)
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # Forks share the files behind descriptors, and with them the place at which they read and write.
        capture.stop_global_capturing()
        capture.start_global_capturing()
    factory: Any = vars(config)["_tmp_path_factory"]
    base = factory.getbasetemp() / f"worker-{number}"
    base.mkdir(mode=0o700)
    factory._basetemp = base  # noqa: SLF001 - there is no public way to give a fork its own
    forkserver.reseed()


class _Reports:
    """Sends what a test reports to the parent."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(("report", data))
