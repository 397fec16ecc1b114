"""`carillon serve`: one process, or several under a small supervisor."""

import asyncio
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer
import uvloop

from carillon.cli.options import Blueprints, Configs
from carillon.cli.remote import addresses_in
from carillon.compose import Program, Role
from carillon.compose.access import console_served, is_open
from carillon.compose.blueprints import services_of
from carillon.compose.from_settings import chains, remarks
from carillon.compose.listener import server_settings
from carillon.compose.live import stream_settings
from carillon.config.reading import ignored, load, secrets
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.ledger.opening import address_file
from carillon.system import collect_no_more, collect_rarely
from carillon.upkeep.logs import lines as logs
from carillon.version import __version__
from carillon.web.settings import reserve

CHILD = "CARILLON_CHILD"
_PR_SET_PDEATHSIG = 1
_LISTENS_SECONDS = 0.5
RESTART_WAIT, LONGEST_RESTART_WAIT = 0.5, 5.0

SEND_PATH = "/api/v1/notifications/send"
CURL = "curl -s {address}{path} -H 'Content-Type: application/json' -d '{body}'"

Roles = Annotated[
    str | None,
    typer.Option(
        help="What this process does: doors,outbound,upkeep; in billing also payment,subscription; all by default."
    ),
]
Processes = Annotated[int, typer.Option(min=1, max=64, help="How many processes share the work and the port.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="On a terminal, show the fields of each line and whole tracebacks.")
]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="json, pretty, or auto: pretty on a terminal.")]


def serve(
    blueprint: Blueprints = None,
    config: Configs = None,
    roles: Roles = None,
    processes: Processes = 1,
    log_format: LogFormat = None,
    *,
    verbose: Verbose = False,
) -> None:
    """Accept, deliver and look after notifications until SIGTERM or Ctrl-C."""
    several = _settings(blueprint, config, _environment(log_format))
    first = several[0]
    named, services = chosen(roles, several)
    index, _, parent = os.environ.get(CHILD, "").partition("/")
    if processes > 1 and not index:
        if any(settings.http.port == 0 for settings in several):
            raise ConfigurationError("http.port: several processes need one port to share; with 0 each gets its own")
        _refuse_taken(several)
        sys.exit(_supervise(processes))
    if index:
        _die_with_parent(int(parent))
    if index not in ("", "0"):
        # One process alone runs the upkeep, whatever the number of processes.
        named = named - {Role.UPKEEP}
    known = [secret for settings in several for secret in secrets(settings)]
    logs.configure(first.log.format, first.log.level, first.service, first.blueprint, secrets=known, verbose=verbose)
    for settings in several:
        _warn(settings)
    try:
        programs = [
            Program(each, named, services=services & set(services_of(each)), share_port=bool(index)) for each in several
        ]
        uvloop.run(_run(programs, several))
    except CarillonError as error:
        # Logging has begun: from here on an error is a log line.
        logs.failed_to_start(str(error))
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
    collect_no_more()


def _refuse_taken(several: Sequence[Settings]) -> None:
    for settings in several:
        # The processes share the port, and so would another program that listens there already.
        reserve(server_settings(settings, share_port=False)).close()


def _settings(blueprint: str | None, config: list[Path] | None, environ: Mapping[str, str]) -> list[Settings]:
    """The settings of each blueprint or file; each further one listens one port higher unless its file names a port."""
    names = [name.strip() for name in (blueprint or "").split(",") if name.strip()]
    if config and len(names) > 1:
        raise ConfigurationError("--config: with several files each names its blueprint by `extends`")
    if config:
        found = [load(names[0] if names else None, file, environ) for file in config]
    else:
        found = [load(name, None, environ) for name in names] or [load(None, None, environ)]
    return found if config else [_higher(settings, step) for step, settings in enumerate(found)]


def _higher(settings: Settings, step: int) -> Settings:
    http = settings.http
    if step == 0 or http.port == 0 or http.surface == "probes":
        return settings
    return msgspec.structs.replace(settings, http=msgspec.structs.replace(http, port=http.port + step))


def _warn(settings: Settings) -> None:
    """Warnings about settings that work."""
    logs.speak_for(settings.service, settings.blueprint)
    warning = logs.LEVELS["warning"]
    for variable, why in ignored(settings.blueprint):
        logs.active().emit(warning, "setting_ignored", f"{variable} has no effect: {why}", {"setting": variable})
    for provider, said in _remarks(settings):
        where = f"providers.{provider}"
        logs.active().emit(warning, "remark", f"{where}: {said}", {"setting": where})
    if is_open(settings) and settings.blueprint != "local":
        sentence = "Callers do not authenticate: every program on this machine may send and read everything"
        logs.active().emit(warning, "open_door", sentence, {"setting": "auth.secret (JWT_SECRET_KEY)"})
    if settings.auth.people_reach_tenant and settings.auth.asked():
        sentence = "Every token and key of a tenant sees, cancels and sends all notifications of that tenant"
        logs.active().emit(warning, "people_reach_tenant", sentence, {"setting": "auth.people_reach_tenant"})


def _remarks(settings: Settings) -> list[tuple[str, str]]:
    try:
        return remarks(settings)
    except ConfigurationError:
        # The start itself reports the error.
        return []


def _environment(log_format: str | None) -> dict[str, str]:
    return {**os.environ, **({"CARILLON_LOG__FORMAT": log_format} if log_format else {})}


def chosen(words: str | None, several: Sequence[Settings]) -> tuple[frozenset[Role], frozenset[str]]:
    """The roles and services of `--roles`; all roles if it names none, and all services likewise."""
    services = {name for settings in several for name in services_of(settings)}
    known = [*sorted(services), *Role]
    named = {word.strip() for word in (words or "").split(",") if word.strip()}
    if not named <= set(known):
        raise ConfigurationError(f"--roles {words}: choose among {', '.join(known)}")
    roles = frozenset(role for role in Role if role in named)
    return roles or frozenset(Role), frozenset(named & services)


async def _run(programs: Sequence[Program], several: Sequence[Settings]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    reasons: list[CarillonError] = []
    try:
        async with asyncio.TaskGroup() as group:
            for program, settings in zip(programs, several, strict=True):
                group.create_task(_run_one(program, settings, stop))
    except* CarillonError as errors:
        reasons.extend(_leaves(errors))
    if reasons:
        # A program that cannot start or go on ends them all, because half a process would look healthy. The error is
        # not raised inside the task group: Python before 3.11.4 wraps it into a group, which hides the reason.
        raise reasons[0]


async def _run_one(program: Program, settings: Settings, stop: asyncio.Event) -> None:
    logs.speak_for(settings.service, settings.blueprint)
    own: list[str] = []

    def ready(address: str) -> None:
        own.append(address)
        _ready(settings, address)

    await program.run(stop, ready)
    _forget_address(settings, own)


def _leaves(group: BaseExceptionGroup[CarillonError]) -> Iterator[CarillonError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _leave_address(settings: Settings, address: str) -> None:
    """Leave the address beside the ledger's file, where commands in the same folder find it."""
    file = address_file(settings.ledger.url)
    if file is not None:
        _write_addresses(file, [address, *_others(file, [address])])


def _forget_address(settings: Settings, own: Sequence[str]) -> None:
    """Take the own address away; other processes on the same ledger keep theirs."""
    file = address_file(settings.ledger.url)
    if file is not None:
        _write_addresses(file, _others(file, own))


def _others(file: Path, own: Sequence[str]) -> list[str]:
    """The addresses of other processes that still listen: one that was killed has left its address behind."""
    return [address for address in addresses_in(file) if address not in own and _listens(address)]


def _listens(address: str) -> bool:
    parts = urlsplit(address)
    with suppress(OSError, ValueError):
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_LISTENS_SECONDS).close()
        return True
    return False


def _write_addresses(file: Path, addresses: Sequence[str]) -> None:
    with suppress(OSError):
        if not addresses:
            file.unlink(missing_ok=True)
            return
        file.touch(mode=0o600)
        file.write_text("".join(f"{address}\n" for address in addresses), encoding="utf-8")


def _ready(settings: Settings, address: str) -> None:
    """Print what runs, where to look and what to try."""
    _leave_address(settings, address)
    pages = {"console": f"{address}/console"} if console_served(settings) else {}
    if settings.http.surface != "full":
        logs.ready([address], _welcome(settings, address, pages, {}), **pages)
        return
    collect_rarely()
    first = settings.first_steps
    send = CURL.format(address=address, path=first.path, body=first.body)
    tries = {"try": _command(first.path, first.body) or send, "see": f"curl -sN '{address}{first.see}'"}
    pages = {"docs": f"{address}/docs", **pages} if settings.http.docs else pages
    streams = stream_settings(settings)
    pages = {**pages, "inbox": f"{address}/inbox"} if streams is not None and streams.demo else pages
    welcome = _welcome(settings, address, pages, tries)
    logs.ready([address], welcome, send=send, see=tries["see"], **pages)


def _welcome(settings: Settings, address: str, pages: Mapping[str, str], tries: Mapping[str, str]) -> list[str]:
    """Five lines for a person at a terminal."""
    sandboxed = sorted(channel for channel, chain in chains(settings).items() if chain == ("sandbox",))
    where = f"; {', '.join(sandboxed)} go to the sandbox" if len(sandboxed) > 1 else ""
    lines = [f"Carillon {__version__} is ready on {address}"]
    lines.append(f"  runs   {settings.blueprint} on {_ledger_shown(settings.ledger.url)}{where}")
    if pages:
        first, *others = (pages[name] for name in ("console", "inbox", "docs") if name in pages)
        also = ", ".join(page.removeprefix(address) for page in others)
        lines.append(f"  look   {first}{f'  (also {also})' if also else ''}")
    if tries:
        lines.append(f"  try    {tries['try']}")
    watch = f"{_own_name()} top" if "console" in pages else f"{_own_name()} doctor"
    lines.append(f"  watch  {watch}, in another terminal in this folder; Ctrl-C ends this one")
    return lines


def _ledger_shown(url: str) -> str:
    """The ledger without credentials."""
    if url.startswith("sqlite:"):
        return url.partition("///")[2]
    parts = urlsplit(url)
    return f"PostgreSQL at {parts.hostname or 'this machine'}{parts.path}"


def _command(path: str, body: str) -> str | None:
    """The first request as a command; None if it is not one of those that `carillon send` makes."""
    if path != SEND_PATH:
        return None
    said = msgspec.json.decode(body)
    words = [_own_name(), "send", said["templateKey"], "--channel", said["channel"], "--to", said["recipient"]]
    words += [word for name, value in said.get("data", {}).items() for word in ("-d", f"{name}={value}")]
    return shlex.join(words)


def _own_name() -> str:
    """How this command is called from this folder: an environment need not be activated."""
    given = Path(sys.argv[0])
    with suppress(ValueError):
        return str(given.absolute().relative_to(Path.cwd()))
    return "carillon"


def _supervise(processes: int) -> int:
    """Start the children, restart those that die, and end all on a signal."""
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
    """Ask Linux to signal this child when its supervisor dies, so that no child outlives it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        # The supervisor died before that.
        sys.exit(1)


def _end(children: dict[int, subprocess.Popen[bytes]]) -> int:
    for child in children.values():
        if child.poll() is None:
            child.terminate()
    return max(abs(child.wait()) for child in children.values())
