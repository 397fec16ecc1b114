"""The real carillon command as a child process, watched through its JSON log lines."""

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self

from tests.support.forkserver import Forked, can_fork, fork

Line = dict[str, Any]

# Nothing else of the caller's environment may leak into the program under test.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "SSL_CERT_FILE")

_HUNG_SECONDS = 30.0


def carillon_command() -> list[str]:
    # The installed script, beside the interpreter that runs the tests, is what users start.
    script = Path(sys.executable).with_name("carillon")
    return [str(script)] if script.exists() else [sys.executable, "-m", "carillon.cli"]


class Program:
    """A started child, forked where that is the same; `command` replaces carillon, as mutants do."""

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        command: list[str] | None = None,
        most_lines: int | None = None,
    ) -> None:
        """`most_lines` is for processes that live so long that their log would fill the memory of who watches them."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self.lines: list[Line] = []
        self.noise: list[str] = []
        self.is_ready = False
        """Whether it has ever said so; asked often, so nobody has to read the log for it."""
        self._most_lines = most_lines
        self._news = threading.Condition()
        self._open_pipes = 2
        given = {**inherited, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **(env or {})}
        self._child, pipes = _started([*args], given, cwd, command)
        atexit.register(self.close)
        self._readers = [threading.Thread(target=self._read, args=(pipe,), daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    @property
    def has_ended(self) -> bool:
        """As `returncode`, but the process is left as it is: what Linux knows of one is gone once it is reaped."""
        if isinstance(self._child, Forked):
            return self._child.has_ended()
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def mark(self) -> int:
        """The present end of the log, for `since`."""
        with self._news:
            return len(self.lines)

    def events(self, event: str) -> list[Line]:
        with self._news:
            return [line for line in self.lines if line.get("event") == event]

    def wait_ready(self, timeout: float = 60) -> Line:
        return self.wait_for("ready", timeout=timeout)

    def wait_for(
        self,
        event: str,
        predicate: Callable[[Line], bool] | None = None,
        timeout: float = 40,
        *,
        since: int = 0,
    ) -> Line:
        """The first line with this event that satisfies the predicate; fails at once when the program has ended."""

        def found() -> Line | None:
            matching = (line for line in self.lines[since:] if line.get("event") == event)
            return next((line for line in matching if predicate is None or predicate(line)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._open_pipes == 0, timeout)
            line = found()
            ended = self._open_pipes == 0
        if line is None:
            why = f"the program ended with {self._child.wait()}" if ended else f"not within {timeout} s"
            raise TimeoutError(f"no {event!r}: {why}\n{self.tail()}")
        return line

    async def until(
        self,
        event: str,
        predicate: Callable[[Line], bool] | None = None,
        timeout: float = 40,  # noqa: ASYNC109 - mirrors wait_for
        *,
        since: int = 0,
    ) -> Line:
        """wait_for without stopping the event loop that stubs of the same test may run in."""
        return await asyncio.to_thread(self.wait_for, event, predicate, timeout, since=since)

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self._child.kill()
        self.wait()

    def stop(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = 60) -> int:
        """The exit code, once everything it printed has been read."""
        try:
            code = self._child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            if timeout >= _HUNG_SECONDS:
                error.add_note(self._last_words())
            raise
        for reader in self._readers:
            reader.join(timeout)
        return code

    def _last_words(self) -> str:
        """Of a process that should have ended long ago: its fault handler writes down what every thread is doing."""
        self._child.send_signal(signal.SIGABRT)
        self._child.wait()
        for reader in self._readers:
            reader.join(_HUNG_SECONDS)
        return self.tail(100)

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self.wait()
        atexit.unregister(self.close)

    def tail(self, number: int = 30) -> str:
        with self._news:
            return "\n".join([*(json.dumps(line) for line in self.lines[-number:]), *self.noise[-number:]])

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for text in pipe:
                with self._news:
                    self._keep(text.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._open_pipes -= 1
            self._news.notify_all()

    def _keep(self, text: str) -> None:
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict):
            self.lines.append(line)
            self.is_ready = self.is_ready or line.get("event") == "ready"
        elif text:
            self.noise.append(text)
        if self._most_lines is not None:
            for kept in (self.lines, self.noise):
                # Half at once: each cut moves everything that stays.
                if len(kept) > self._most_lines:
                    del kept[: self._most_lines // 2]


def run_carillon(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
    check: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` of the carillon command with its output captured, forked where that is the same."""
    given = dict(os.environ if env is None else env)
    command = [*carillon_command(), *words]
    if not can_fork(given):
        return subprocess.run(
            command,
            env=given,
            cwd=cwd,
            timeout=timeout,
            check=check,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    with Path(os.devnull).open("rb") as nothing, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        child = fork(words, given, cwd, [nothing.fileno(), output.fileno(), errors.fileno()])
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
        for file in (output, errors):
            file.seek(0)
        done = subprocess.CompletedProcess(command, code, output.read(), errors.read())
    if check:
        done.check_returncode()
    return done


def _started(
    words: list[str], env: Mapping[str, str], cwd: Path | None, command: list[str] | None
) -> tuple[Forked | subprocess.Popen[bytes], list[IO[str]]]:
    """The child, and where its output and its errors are read."""
    ours, theirs = zip(*(os.pipe() for _ in range(2)), strict=True)
    with Path(os.devnull).open("rb") as nothing:
        child: Forked | subprocess.Popen[bytes]
        if command is None and can_fork(env):
            child = fork(words, env, cwd, [nothing.fileno(), *theirs])
        elif command is not None and _is_of_the_tests(command) and can_fork(env):
            files = [nothing.fileno(), *theirs]
            child = fork([*command[3:], *words], env, cwd, files, module=command[2])
        else:
            command = [*(command or carillon_command()), *words]
            child = subprocess.Popen(command, env=env, cwd=cwd, stdin=nothing, stdout=theirs[0], stderr=theirs[1])
    for number in theirs:
        os.close(number)
    return child, [open(number, errors="replace") for number in ours]  # noqa: PTH123 - descriptors, not paths


def _is_of_the_tests(command: Sequence[str]) -> bool:
    """Whether it runs a module of the tests, and with it carillon."""
    return tuple(command[:2]) == (sys.executable, "-m") and command[2].startswith("tests.support.")


def add_last_words(error: BaseException | None, programs: Sequence[Program]) -> None:
    """Adds the last output of the newest processes to the report of a failed test."""
    if error is not None:
        error.add_note("\n\n".join(f"pid {each.pid}:\n{each.tail(8)}" for each in programs[-3:]))
