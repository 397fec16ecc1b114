"""Starts carillon as a fork of a process that has imported it already, which saves most of what a start costs.

The child is the carillon command in every other respect: it has its own environment, folder, pipes, random numbers and
exit code. Where a variable of the environment means something to the interpreter or to a library, `can_fork` says no.
Modules of the tests that run carillon, mutants above all, are forked from a second server: it has imported each package
that carillon needs and nothing of carillon, because mutants change code before other modules import it.

A server belongs to the process that runs tests. All processes of a run fork theirs from one root, which imports at the
first request: importing everything takes seconds, and eight workers would do it eight times.
"""

import atexit
import contextlib
import faulthandler
import gc
import io
import json
import os
import pkgutil
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from carillon.domain.errors import CarillonError

ROOT = Path(__file__).parents[2]
# The interpreter, the C library or a package reads variables with these beginnings before carillon runs.
_READ_EARLY = ("_CARILLON", "PYTHON", "LD_", "LC_", "LANG", "TZ", "SSL_", "OPENSSL", "OTEL_", "MALLOC", "COVERAGE")
_PLAIN = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
_ELSEWHERE = {"carillon.client", "carillon.embedded", "carillon.pytest_plugin", "carillon.testing"}
_LONGEST_REQUEST = 1 << 17


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork of the server behaves as a start with that environment."""
    early = {name: value for name, value in environment.items() if name.startswith(_READ_EARLY)}
    return all(value in (_PLAIN.get(name), os.environ.get(name)) for name, value in early.items())


def reseed(generators: Sequence[random.Random] | None = None) -> None:
    """Give this fork random numbers of its own, in every generator that was made before the fork."""
    random.seed()
    for generator in _generators() if generators is None else generators:
        generator.seed()


def _generators() -> list[random.Random]:
    modules = [module for name, module in sys.modules.items() if name.startswith("carillon")]
    return [value for module in modules for value in vars(module).values() if isinstance(value, random.Random)]


class Forked:
    """A forked child, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status.detach()
        self._lock = threading.Lock()
        # Open as long as somebody may ask: one thread may wait while another one has fetched the code already.
        weakref.finalize(self, os.close, self._status)

    def fileno(self) -> int:
        """Readable once the child has ended."""
        return self._status

    def poll(self) -> int | None:
        return self._code() if self.has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self.has_ended(timeout):
            raise subprocess.TimeoutExpired(f"carillon (pid {self.pid})", timeout or 0.0)
        return self._code()

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def has_ended(self, timeout: float | None = 0) -> bool:
        """Whether it has; what Linux knows of the process is there until `poll` or `wait` has told its code."""
        if self.returncode is not None:
            return True
        watch = select.poll()
        watch.register(self._status, select.POLLIN)
        return bool(watch.poll(None if timeout is None else timeout * 1000))

    def _code(self) -> int:
        with self._lock:
            if self.returncode is None:
                # Without a word the server itself was killed, and its children's codes with it.
                said = os.read(self._status, 16)
                self.returncode = int(said) if said else -signal.SIGKILL
                with contextlib.suppress(OSError):
                    os.write(self._status, b"heard")
            return self.returncode


class Root:
    """The process from which servers of one kind are forked; it ends with those that may ask it."""

    def __init__(self, kind: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.support.forkserver", str(theirs.fileno()), kind]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        atexit.register(self._close)  # Workers leave without their exit handlers.

    def server(self) -> socket.socket:
        """The connection to a new server; several processes may ask, because nobody waits for an answer here."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self._control, [b"server"], [theirs.fileno()])
        theirs.close()
        return ours

    def _close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


class ForkServer:
    """The imported process, one for each process that runs tests; it ends with its caller."""

    def __init__(self, root: Root) -> None:
        self._control = root.server()
        self._lock = threading.Lock()
        atexit.register(self._control.close)

    def start(self, words: Sequence[str], env: Mapping[str, str], cwd: Path | None, files: Sequence[int]) -> Forked:
        """Run `carillon` with these words; files are what becomes its standard input, output and errors."""
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = str(cwd or Path.cwd())
        request = json.dumps({"words": [*words], "env": {**env}, "cwd": folder}).encode()
        with self._lock:
            socket.send_fds(self._control, [request], [*files, theirs.fileno()])
            said = self._control.recv(16)
        theirs.close()
        if not said:
            raise RuntimeError("the fork server has ended")
        return Forked(int(said), status)

    def close(self) -> None:
        self._control.close()


_COMMAND, _MODULE = "command", "module"
_roots: dict[str, Root] = {}
_servers: dict[str, ForkServer] = {}
_starting = threading.Lock()


def share() -> None:
    """Start the roots, which wait for a request before they import: processes forked from here on use the same ones."""
    with _starting:
        for kind in (_COMMAND, _MODULE):
            root(kind)


def root(kind: str) -> Root:
    """The root of this run; a process that none was shared with starts its own."""
    if kind not in _roots:
        _roots[kind] = Root(kind)
    return _roots[kind]


def fork(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    files: Sequence[int],
    *,
    module: str | None = None,
) -> Forked:
    """Run the carillon command with these words, or a module of the tests as `python -m` does."""
    kind = _COMMAND if module is None else _MODULE
    with _starting:
        if kind not in _servers:
            _servers[kind] = ForkServer(root(kind))
    return _servers[kind].start(words if module is None else [module, *words], env, cwd, files)


class Server:
    """Forks a child for each request, tells its code when it ends, and reaps it when the caller has heard the code."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._running: dict[int, tuple[int, socket.socket]] = {}
        self._ended: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> list[str]:
        """Until the caller is gone; returns only in a child, with its words."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._running:
                    self._tell(key.fd)
                elif key.fd in self._ended:
                    self._reap(key.fd)
                elif (words := self._fork()) is not None:
                    return words

    def _fork(self) -> list[str] | None:
        request, files, _, _ = socket.recv_fds(self._control, _LONGEST_REQUEST, 4)
        if not request:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            self._close()
            return _become(json.loads(request), files)
        status = socket.socket(fileno=files.pop())
        for number in files:
            os.close(number)
        watch = os.pidfd_open(pid)
        self._running[watch] = (pid, status)
        self._selector.register(watch, selectors.EVENT_READ)
        self._control.send(str(pid).encode())
        return None

    def _tell(self, watch: int) -> None:
        self._selector.unregister(watch)
        pid, status = self._running.pop(watch)
        os.close(watch)
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if found is not None:
            code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            with contextlib.suppress(OSError):
                status.send(str(code).encode())
        self._ended[status.fileno()] = (pid, status)
        self._selector.register(status, selectors.EVENT_READ)

    def _reap(self, number: int) -> None:
        self._selector.unregister(number)
        pid, status = self._ended.pop(number)
        status.close()
        os.waitpid(pid, 0)

    def _close(self) -> None:
        self._selector.close()
        for watch in self._running:
            os.close(watch)
        for _, status in [*self._running.values(), *self._ended.values()]:
            status.close()
        self._control.close()


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """Make this fork what a new process with that environment is."""
    os.close(files.pop())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - descriptors, not paths
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=sys.stdout.isatty(), write_through=True)  # type: ignore[union-attr]
    faulthandler.enable()
    # The script's folder comes first in a real start, and the tests are there only where the environment says so.
    sys.path[:] = [each for each in sys.path if each not in ("", str(ROOT))]
    sys.path[1:1] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    return list(request["words"])


def _run_command(words: list[str], generators: Sequence[random.Random]) -> None:
    reseed(generators)
    faultpoint = import_module("carillon.faultpoint")
    vars(faultpoint)["_POINTS"] = vars(faultpoint)["_armed"]()
    sys.argv = [str(Path(sys.executable).with_name("carillon")), *words]
    import_module("carillon.cli").main()


def _leave(end: SystemExit) -> None:
    """End as the interpreter does, without taking apart what was imported before the fork.

    That would copy most of its memory: 0.08 s for each command. What the command itself left is looked through once
    more, so that an unclosed file or a coroutine that nobody awaited is still told.
    """
    code = 0 if end.code is None else end.code
    if not isinstance(code, int):
        raise end
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads, as the interpreter does
    atexit._run_exitfuncs()  # noqa: SLF001 - and this is what it calls then
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        # The reader is gone: the interpreter has words and a code of its own for that.
        raise end from None
    os._exit(code & 0xFF)


def _run_module(words: list[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "carillon"]:
        del sys.modules[name]
    random.seed()
    sys.path.insert(0, str(Path.cwd()))
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _import_carillon() -> None:
    cli = import_module("carillon.cli")
    import_module("carillon.cli.serve")
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(CarillonError):
        # Reads the words and the settings, and with them what is imported only then; there is no such role.
        cli.app(["serve", "--roles", "none"], standalone_mode=False)
    with contextlib.redirect_stdout(io.StringIO()):
        # And what the other commands import: each would take a quarter of a second to import it anew.
        cli.app(["--help"], standalone_mode=False)
    # A program imports its blueprint, providers and doors when it has read its settings: half a second for listo.
    _import_all("carillon")


def _import_all(package: str) -> None:
    """The modules of a package, but not those that run in a program of the user's own."""
    for found in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if found.name in _ELSEWHERE or found.name.endswith(".__main__"):
            continue
        with contextlib.suppress(ImportError):
            import_module(found.name)
            if found.ispkg:
                _import_all(found.name)


def _import_packages() -> None:
    """Import what carillon imports, without carillon: a child that imports all of it tells the names."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _import_carillon()
        with open(tell, "w") as names:  # noqa: PTH123 - a descriptor, not a path
            names.write("\n".join(sys.modules))
        os._exit(0)
    os.close(tell)
    with open(told) as names:  # noqa: PTH123 - a descriptor, not a path
        found = names.read().split()
    os.waitpid(pid, 0)
    for name in found:
        if name.partition(".")[0] not in {"carillon", "tests", "__main__"}:
            with contextlib.suppress(ImportError):
                import_module(name)


def _serve_root(control: socket.socket, kind: str) -> socket.socket:
    """Fork a server for each request, until nobody can ask any more; returns only in a server, with its connection."""
    has_imported = False
    while True:
        request, files, _, _ = socket.recv_fds(control, 16, 1)
        if not request:
            os._exit(0)
        if not has_imported:
            _import_carillon() if kind == _COMMAND else _import_packages()
            # What was imported is never garbage, and a collection would copy all of its pages into each child. A child
            # does not thaw them: the collections at its end alone would take a quarter of a second.
            gc.collect()
            gc.freeze()
            has_imported = True
        if os.fork() == 0:
            control.close()
            return socket.socket(fileno=files[0])
        os.close(files[0])


def main() -> None:
    control, kind = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    caller = _serve_root(control, kind)
    generators = _generators()
    words = Server(caller).serve()
    try:
        _run_command(words, generators) if kind == _COMMAND else _run_module(words)
    except SystemExit as end:
        _leave(end)
    _leave(SystemExit(0))


if __name__ == "__main__":
    main()
