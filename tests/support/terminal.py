"""A command in a terminal of its own: what it draws, and keys pressed."""

import os
import pty
import re
import signal
import subprocess
import threading
from types import TracebackType
from typing import Self

from tests.support.process import carillon_command
from tests.support.waiting import wait_until

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """120 columns wide; `seen` is everything that was drawn, without colours and movements."""

    def __init__(self, *args: str, env: dict[str, str]) -> None:
        here, there = pty.openpty()
        self._here = here
        self._drawn = b""
        environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50", **env}
        # Tests that run in the background inherit an ignored SIGINT; a user's terminal does not ignore it.
        self._child = subprocess.Popen(
            ["env", "--default-signal=INT", *carillon_command(), *args],
            env=environment,
            stdin=there,
            stdout=there,
            stderr=there,
            close_fds=True,
        )
        os.close(there)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._reader.join(5)
        os.close(self._here)

    @property
    def seen(self) -> str:
        return _ESCAPES.sub("", self._drawn.decode("utf-8", "replace"))

    def wait_for(self, words: str, seconds: float = 60) -> None:
        wait_until(lambda: words in self.seen or self._child.poll() is not None, timeout=seconds, what=words)
        assert words in self.seen, self.seen

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self._child.send_signal(signal.SIGINT)
        return self._child.wait(60)

    def press(self, key: str) -> int:
        """Press a key that ends the program; the exit code."""
        os.write(self._here, key.encode())
        return self._child.wait(60)

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._here, 65536)
            except OSError:
                return
            if not read:
                return
            self._drawn += read
