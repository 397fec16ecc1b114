"""One private server process that never outlives the tests that started it."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.support.waiting import wait_until


class Daemon:
    """Owns a folder and at most one process; subclasses say how to start it and when it is up."""

    stop_signal = signal.SIGTERM

    def __init__(self, name: str, *, run_as: str | None = None) -> None:
        self.run_as = run_as
        # Short, because PostgreSQL's socket path may not exceed 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix=f"cn-{name}-"))
        if run_as is not None:
            shutil.chown(self.folder, run_as, run_as)
        self.log = self.folder / "log"
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError(f"{type(self).__name__} is not running; start it first")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_up(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.as_owner(self.command()), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            wait_until(self._up_or_dead, timeout=90, what=f"{type(self).__name__} answering")
        except TimeoutError:
            self.kill()
            raise
        if not self.running:
            raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def _up_or_dead(self) -> bool:
        return not self.running or self.is_up()

    def stop(self) -> None:
        if self._child is not None and self.running:
            self._child.send_signal(signal.SIGCONT)
            self._child.send_signal(self.stop_signal)
            try:
                self._child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL the process and everything it started."""
        if self._child is None or not self.running:
            return
        # Stopped first, so that it cannot start another child between the look and the kill.
        self._child.send_signal(signal.SIGSTOP)
        family = [self._child.pid, *children_of(self._child.pid)]
        for pid in family:
            send(pid, signal.SIGKILL)
        self._child.wait(timeout=60)
        wait_until(lambda: not any(map(is_alive, family)), timeout=60, what="the killed processes gone")

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP everything: connections stay open and nothing answers."""
        for pid in [self.pid, *children_of(self.pid)]:
            send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in [self.pid, *children_of(self.pid)]:
            send(pid, signal.SIGCONT)

    def close(self) -> None:
        if self.running:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def as_owner(self, command: list[str]) -> list[str]:
        prefix = ["setpriv"]
        if self.run_as is not None:
            prefix += [f"--reuid={self.run_as}", f"--regid={self.run_as}", "--init-groups"]
        # A test run that is itself SIGKILLed runs no exit handlers; the kernel then ends the server.
        return [*prefix, "--pdeathsig=QUIT", *command]


def send(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def children_of(parent: int) -> list[int]:
    return [pid for pid, (_, ppid) in _processes().items() if ppid == parent]


def is_alive(pid: int) -> bool:
    # A zombie holds no memory and no socket, and where nobody reaps orphans it never goes away.
    return _processes().get(pid, ("Z", 0))[0] != "Z"


def _processes() -> dict[int, tuple[str, int]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            # The command may contain spaces and brackets, so read behind its last bracket.
            state, ppid = stat.rpartition(")")[2].split()[:2]
            found[int(entry.name)] = (state, int(ppid))
    return found
