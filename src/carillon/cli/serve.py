"""`carillon serve`: one process, or several under a small supervisor."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Annotated

import typer
import uvloop

from carillon.cli.options import Blueprint, Config
from carillon.compose import Program, Role
from carillon.config import load, secrets
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.upkeep import logs

CHILD = "CARILLON_CHILD"
_PR_SET_PDEATHSIG = 1
RESTART_WAIT, LONGEST_RESTART_WAIT = 0.5, 5.0

CURL = (
    "curl -s {address}/api/v1/notifications/send -H 'Content-Type: application/json' -d "
    """'{{"templateKey":"welcome","channel":"push","recipient":"demo-device","""
    """"data":{{"name":"Ada","link":"https://example.org/start"}}}}'"""
)

Roles = Annotated[
    str | None, typer.Option(help="What this process does, of doors,outbound,upkeep; everything by default.")
]
Processes = Annotated[int, typer.Option(min=1, max=64, help="How many processes share the work and the port.")]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="json, pretty, or auto: pretty on a terminal.")]


def serve(
    blueprint: Blueprint = None,
    config: Config = None,
    roles: Roles = None,
    processes: Processes = 1,
    log_format: LogFormat = None,
) -> None:
    """Accept, deliver and look after notifications until SIGTERM or Ctrl-C."""
    settings = load(blueprint, config, _environment(log_format))
    chosen = _roles(roles)
    index, _, parent = os.environ.get(CHILD, "").partition("/")
    if processes > 1 and not index:
        if settings.http.port == 0:
            raise ConfigurationError("http.port: several processes need one port to share, 0 gives each its own")
        sys.exit(_supervise(processes))
    if index:
        _die_with_parent(int(parent))
    if index not in ("", "0"):
        # Retention is one process's work, whatever the number of processes.
        chosen = chosen - {Role.UPKEEP}
    log = settings.log
    logs.configure(log.format, log.level, settings.service, settings.blueprint, secrets=secrets(settings))
    try:
        uvloop.run(_run(Program(settings, chosen, share_port=bool(index))))
    except CarillonError as error:
        # Logging has begun: from here on a reason to end is a line like any other.
        logs.failed_to_start(str(error))
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


def _environment(log_format: str | None) -> dict[str, str]:
    return {**os.environ, **({"CARILLON_LOG__FORMAT": log_format} if log_format else {})}


def _roles(words: str | None) -> frozenset[Role]:
    if words is None:
        return frozenset(Role)
    try:
        return frozenset(Role(word.strip()) for word in words.split(",") if word.strip())
    except ValueError:
        raise ConfigurationError(f"--roles {words}: choose among {', '.join(Role)}") from None


async def _run(program: Program) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    await program.run(stop, _ready)


def _ready(address: str) -> None:
    see = f"{address}/api/v1/notifications"
    logs.ready([address], send=CURL.format(address=address), see=f"curl -s '{see}'", docs=f"{address}/docs")


def _supervise(processes: int) -> int:
    """Start the children, start again what dies, and end them all on a signal."""
    stopping = False

    def stop(_signum: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    children: dict[int, subprocess.Popen[bytes]] = {index: _start(index) for index in range(processes)}
    wait = RESTART_WAIT
    while not stopping:
        time.sleep(0.1)
        for index, child in list(children.items()):
            code = child.poll()
            if code is None or stopping:
                continue
            if code == 2:  # noqa: PLR2004 - the code of a configuration error: starting again cannot mend it
                _end(children)
                return code
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_RESTART_WAIT)
            children[index] = _start(index)
    return _end(children)


def _start(index: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "carillon.cli", *sys.argv[1:]]
    return subprocess.Popen(command, env={**os.environ, CHILD: f"{index}/{os.getpid()}"})  # noqa: S603 - our own command line


def _die_with_parent(parent: int) -> None:
    """A supervisor that was killed must not leave children behind that nobody ends; Linux tells them."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        # It died before Linux was asked to tell.
        sys.exit(1)


def _end(children: dict[int, subprocess.Popen[bytes]]) -> int:
    for child in children.values():
        if child.poll() is None:
            child.terminate()
    return max(abs(child.wait()) for child in children.values())
