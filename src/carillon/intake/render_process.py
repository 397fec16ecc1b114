"""Renders long messages in a process of its own: it takes no turns with requests, and what ends it ends it alone."""

import atexit
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

from carillon.domain.errors import BadIntent, BadTemplate, Place
from carillon.domain.notifications import Message, Template
from carillon.intake.jinja.formats import Person
from carillon.intake.render import OnMissing, render_message

LONGEST_SECONDS = 60.0
"""Work is counted and ends long before; a process that takes longer is stuck."""
_NICER = 5
_TRIES = 2
_LENGTH = struct.Struct(">I")
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONTZPATH", "SYSTEMROOT", "TZDIR")
"""What a Python needs of its environment; passwords and keys of ours are not for templates."""

Job = tuple[Template, Mapping[str, Any], OnMissing, Person | None]
Refusal = tuple[str, str, str, str | None, Place | None]
"""Of which kind, its code, its text, its field and its place."""


class RenderProcess:
    """Starts the process when it is first needed; only one thread at a time may ask."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._child is None else self._child.pid

    def render(self, job: Job, beside: Callable[[], Message]) -> Message:
        """The answers of `render_message`; `beside` renders in this process, where no other one can be started."""
        try:
            asked = pickle.dumps(job)
        except (pickle.PicklingError, TypeError, AttributeError):
            return beside()
        for _ in range(_TRIES):
            child = self._running()
            if child is None:
                return beside()
            answer = self._ask(child, asked)
            if answer is not None:
                return _told(answer)
            # Somebody may have ended it, or the machine was short of memory: what ends it twice is the template.
            self.close()
        raise BadIntent("TEMPLATE_RENDER_ERROR", "the template engine cannot take this template", field="templateKey")

    def close(self) -> None:
        """End the process; the next render starts another one."""
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # What was written to a process that is gone cannot be written any more.
                with suppress(OSError):
                    pipe.close()

    def _running(self) -> "subprocess.Popen[bytes] | None":
        # After a fork the process is the parent's.
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self.close()
            environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
            environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
            command = [sys.executable, "-c", f"from {__name__} import main; main()"]
            try:
                self._child = subprocess.Popen(  # noqa: S603 - our own command line
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environ,
                )
            except OSError:
                return None
            self._owner = os.getpid()
        return self._child

    def _ask(self, child: "subprocess.Popen[bytes]", asked: bytes) -> "Message | Refusal | None":
        """None if the process ended before it answered."""
        watch = threading.Timer(LONGEST_SECONDS, child.kill)
        watch.daemon = True
        watch.start()
        try:
            assert child.stdin is not None and child.stdout is not None  # noqa: PT018, S101 - both are pipes
            _write(child.stdin, asked)
            told = _read(child.stdout)
            return None if told is None else pickle.loads(told)  # noqa: S301 - from our own process
        except OSError:
            return None
        finally:
            watch.cancel()


def _told(answer: "Message | Refusal") -> Message:
    if isinstance(answer, Message):
        return answer
    kind, code, message, field, place = answer
    raise BadTemplate(message) if kind == BadTemplate.__name__ else _refused(code, message, field, place)


def _refused(code: str, message: str, field: str | None, place: Place | None) -> BadIntent:
    error = BadIntent(code, message, field=field)
    # The text has its place already.
    error.place = place
    return error


def _write(pipe: IO[bytes], text: bytes) -> None:
    pipe.write(_LENGTH.pack(len(text)) + text)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    text = pipe.read(length)
    return text if len(text) == length else None


def _answer(job: Job) -> "Message | Refusal":
    try:
        return render_message(*job)
    except BadIntent as error:
        return (BadIntent.__name__, error.code, str(error), error.field, error.place)
    except BadTemplate as error:
        return (BadTemplate.__name__, "", str(error), None, None)


def main() -> None:
    """The process: renders what it is asked until nobody can ask any more."""
    # Ctrl+C is for the program, which lets its requests finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICER)
    while (asked := _read(sys.stdin.buffer)) is not None:
        _write(sys.stdout.buffer, pickle.dumps(_answer(pickle.loads(asked))))  # noqa: S301 - from our own process
