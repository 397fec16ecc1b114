"""Runs one rehearsal in a child process, so that hours of virtual time take nothing from the process that serves."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from carillon.upkeep.rehearsals.plan import RehearsalQuestion

PACKAGE = __name__.partition(".")[0]
# The program is started and not imported: it stands above everything that is served.
COMMAND: Final = (sys.executable, "-m", f"{PACKAGE}.rehearsal")
LONGEST_LINE = 64 * 1024 * 1024
"""A rehearsal whose messages wait for a day after a minute of load has many slices."""
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
"""The variables that the child gets: those by which Python finds its modules, and none that holds a secret."""
LESS = "ask for a shorter time, or play fewer notifications"


class RehearsalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal may use; the child sets its own limits before it begins."""

    seconds: float = 180.0
    """Wall time: the machine may be busy with its real work."""
    cpu_seconds: int = 120
    megabytes: int = 1024
    file_megabytes: int = 1024


class RehearsalLine(msgspec.Struct, frozen=True):
    """One event of the child: progress, result or problem, and its data as JSON."""

    event: str
    data: bytes


class RehearsalChild:
    """One child process, from its question to its result."""

    def __init__(self, process: asyncio.subprocess.Process, bounds: RehearsalBounds) -> None:
        self._process = process
        self._bounds = bounds

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[RehearsalLine]:
        """Every event; the last one is a result or a problem, whatever happens to the child."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        event, until = "", asyncio.get_running_loop().time() + self._bounds.seconds
        while True:
            try:
                async with asyncio.timeout_at(until):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                yield _problem(f"it took longer than {self._bounds.seconds:g} s; {LESS}")
                return
            if not line:
                break
            event, _, data = line.rstrip(b"\n").decode().partition(" ")
            yield RehearsalLine(event, data.encode())
        if event not in {"result", "problem"}:
            yield _problem(self._why(await self._process.wait()))

    def _why(self, code: int) -> str:
        if code in {-signal.SIGXCPU, -signal.SIGKILL}:
            bounds = self._bounds
            return f"it used up its {bounds.cpu_seconds} s of processor time or {bounds.megabytes} MB of memory; {LESS}"
        return f"its process ended with {code}"

    async def end(self) -> None:
        """Kill the child if it still runs, and wait for its end."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _problem(words: str) -> RehearsalLine:
    return RehearsalLine("problem", msgspec.json.encode(f"The rehearsal did not end: {words}."))


@asynccontextmanager
async def playing(
    settings: bytes, question: RehearsalQuestion, bounds: RehearsalBounds, command: Sequence[str] = COMMAND
) -> AsyncIterator[RehearsalChild]:
    """A child that plays the question with these settings, which are JSON; it is gone when the context ends."""
    asked = {"settings": msgspec.Raw(settings), "question": question, "bounds": bounds}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in KEPT if name in os.environ},
        limit=LONGEST_LINE,
    )
    child = RehearsalChild(process, bounds)
    try:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        # The settings hold secrets: a pipe shows them to nobody, unlike arguments and files.
        process.stdin.write(msgspec.json.encode(asked))
        with suppress(ConnectionError):
            await process.stdin.drain()
        process.stdin.close()
        yield child
    finally:
        await child.end()
