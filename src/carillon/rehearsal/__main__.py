"""The child process that plays one rehearsal for the console: it reads stdin once, and writes a line for each event."""

import errno
import logging
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError
from carillon.rehearsal import rehearse
from carillon.upkeep.rehearsals.child import LESS, RehearsalBounds
from carillon.upkeep.rehearsals.plan import RehearsalQuestion, plan_of

NICE = 10
TELL_SECONDS = 0.25


class _Asked(msgspec.Struct, frozen=True):
    settings: Settings
    question: RehearsalQuestion
    bounds: RehearsalBounds


def main() -> None:
    """Play what stdin asks for. A server that has died leaves a closed pipe: the next word to it ends this process."""
    logging.disable(logging.CRITICAL)
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=_Asked)
    _bound(asked.bounds)
    try:
        figures = rehearse(asked.settings, plan_of(asked.question, asked.settings.channels), _Told())
    except (CarillonError, MemoryError, OSError) as error:
        full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
        _tell("problem", f"the rehearsal needs more than {asked.bounds.megabytes} MB; {LESS}" if full else str(error))
    else:
        _tell("result", figures)


def _bound(bounds: RehearsalBounds) -> None:
    """Use what the server leaves over, and be the first to go where memory is short."""
    os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _lower(resource.RLIMIT_DATA, bounds.megabytes * 1024 * 1024)
    _lower(resource.RLIMIT_CPU, bounds.cpu_seconds)
    _lower(resource.RLIMIT_FSIZE, bounds.file_megabytes * 1024 * 1024)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(kind: int, wanted: int) -> None:
    _, most = resource.getrlimit(kind)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (limit, limit))


class _Told:
    """Reports the progress a few times a second."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, now: float, of: float) -> None:
        at = time.monotonic()
        if at >= self._next:
            self._next = at + TELL_SECONDS
            _tell("progress", {"seconds": min(now, of), "of": of})


def _tell(event: str, data: Any) -> None:  # noqa: ANN401 - whatever the event has
    sys.stdout.buffer.write(event.encode() + b" " + msgspec.json.encode(data) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
