"""`carillon top`: what a running Carillon does now, on one screen."""

import os
import select
import sys
import termios
import time
import tty
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from carillon.cli.options import AsJson, print_json
from carillon.cli.plots import bar, sparkline
from carillon.cli.remote import HERE, NOT_FOUND, Remote, RemoteFailed, Token, TokenFile, Url, token_of
from carillon.cli.words import EVENTS, VERDICTS, counted

STEP_SECONDS, STEPS = 10, 60
ALL = 1000
"""The height of a screen that is printed once: everything fits."""
_BAR = 20
_FINE = 10
_BESIDE = 30
"""Columns beside a line of the flow."""
_WIDE, _NARROW, _GAP = 130, 60, 3
"""From this width on there are two columns; below the second, no room for the keys."""
_FEWEST, _HEADED = 2, 1
_ROOMY = 29
"""From this height on, an empty line stands between the parts."""
_MOST_NOTES = 4
"""How much of what needs attention a roomy screen names; another one names the worst."""
_MOODS = {"bad": ("✖", "red"), "wait": ("▲", "yellow")}
_COMMANDS = {"dead-letters": "dead-letters list", "endpoint": "endpoints list", "pause": "pause"}
_STATES = {"closed": "green", "half_open": "yellow", "open": "red"}


def top(
    context: typer.Context,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two polls.")] = 2.0,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once; the default if stdout is not a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch throughput, latency, lanes, providers and the newest errors until q or Ctrl-C."""
    remote = Remote(url, token_of(context, token, token_file))
    console = Console(emoji=False)
    if once or (not as_json and not console.is_terminal):
        seen = look(remote)
        if as_json:
            print_json(seen)
        else:
            console.print(screen(seen, remote.url, console.width))
        return
    try:
        if as_json:
            while True:
                print_json(look(remote))
                time.sleep(every)
        _watch(remote, console, every)
    except KeyboardInterrupt:
        return


def look(remote: Remote) -> dict[str, Any]:
    """The figures of the console's overview, in one document."""
    try:
        surface = remote.get("/api/v1/console/surface")
    except RemoteFailed as error:
        if error.status == NOT_FOUND:
            sentence = f"{remote.url} shows no console: its blueprint has none, or http.console is off"
            raise RemoteFailed(sentence) from None
        raise
    seen: dict[str, Any] = {"at": _now()}
    pages, absent = surface["pages"], surface.get("absent", {})
    if "overview" in pages:
        seen["overview"] = remote.get("/api/v1/console/overview")
        seen["providers"] = _listed(remote, "providers")
    if "queues" in pages:
        seen["queues"] = remote.get("/ops/queues")["queues"]
    if len(seen) == 1 and "queues" in absent:
        raise RemoteFailed(f"{remote.url} does not show its queues: {absent['queues']}")
    if len(seen) == 1:
        raise RemoteFailed("this command needs the token of an administrator without a tenant")
    return seen


def _listed(remote: Remote, name: str) -> list[dict[str, Any]]:
    """A list for operators; empty where the listener serves health and the console alone."""
    try:
        return list(remote.get(f"/api/v1/admin/{name}")["items"])
    except RemoteFailed as error:
        if error.status == NOT_FOUND:
            return []
        raise


def screen(seen: dict[str, Any], url: str, width: int, height: int = ALL, trouble: str = "") -> RenderableType:
    """The whole screen, most urgent first; troubles get the lines that are left of `height`. `trouble`: it is old."""
    if "overview" not in seen:
        return Group(_title(seen, url, width), *_queues(seen["queues"]))
    overview, wide = seen["overview"], width >= _WIDE
    column = (width - _GAP) // 2 if wide else width
    gap: list[RenderableType] = [Text("")] if height >= _ROOMY else []
    verdict = _verdict(seen, trouble)
    above = [_title(seen, url, width), *verdict[: _MOST_NOTES if gap else 1], *gap]
    left = [*_flow(overview["steps"], seen["at"], column), *gap, *_waiting(overview), *gap]
    right = [*_providers(seen["providers"], column), *gap]
    queues = _queues(seen["queues"]) if "queues" in seen else []
    used = len(above) + (max(len(left), 0) if wide else len(left) + len(right)) + len(queues)
    room = max(_FEWEST, height - used - _HEADED if not wide else height - len(above) - len(right) - _HEADED)
    troubles = _troubles(overview["recent"], room)
    if not wide:
        return Group(*above, *left, *right, *troubles, *queues)
    beside = Table.grid(padding=(0, _GAP, 0, 0))
    beside.add_column(width=column)
    beside.add_column(width=column)
    beside.add_row(Group(*left), Group(*right, *troubles))
    return Group(*above, beside, *queues)


def _watch(remote: Remote, console: Console, every: float) -> None:
    seen, trouble, paused = look(remote), "", False

    def shown() -> RenderableType:
        # The last column of a terminal may wrap, the last line may scroll.
        drawn = screen(seen, remote.url, console.width - 1, console.height - 1 - bool(trouble or paused), trouble)
        note = trouble or ("paused; p goes on" if paused else "")
        style = "bold white on red" if trouble else "reverse"
        return Group(Text(f" {note} ", style=style, no_wrap=True, overflow="ellipsis"), drawn) if note else drawn

    with keys() as key, Live(shown(), console=console, screen=True, auto_refresh=False) as live:
        while (pressed := key(every)) != "q":
            paused = paused ^ (pressed == "p")
            if not paused:
                try:
                    seen, trouble = look(remote), ""
                except RemoteFailed as error:
                    # The server may restart: keep the last figures, and say above them that they are old.
                    trouble = str(error)
            live.update(shown(), refresh=True)


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Read keys as they are pressed: a function that waits so many seconds for one; `""` if there was none."""
    if not sys.stdin.isatty():
        yield _slept
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _slept(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _pressed(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""


def _title(seen: dict[str, Any], url: str, width: int) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    keys = "" if width < _NARROW else "  q ends, p pauses"
    name = Text.assemble(("carillon ", "bold"), (url, "dim"))
    line.add_row(name, Text(f"{seen['at'][11:19]} UTC{keys}", style="dim"))
    return line


def _verdict(seen: dict[str, Any], trouble: str) -> list[RenderableType]:
    """Sentences, the worst first: what is wrong, or that nothing is."""
    if trouble:
        # The verdict of an hour ago must not stand there in green.
        return [Text(f"✖ what stands below is from {seen['at'][11:19]} UTC", "bold red", no_wrap=True)]
    # An older server says nothing about it.
    found = seen["overview"].get("attention")
    if found is None:
        return []
    if not found["notes"]:
        return [Text(f"● Nothing needs attention. {found['text']}", "bold green", no_wrap=True, overflow="ellipsis")]
    return [_note(one) for one in found["notes"]]


def _note(note: dict[str, Any]) -> Text:
    """With a mark, for those who see no colours."""
    mark, colour = _MOODS[note["mood"]]
    text = Text(f"{mark} {note['text']}", f"bold {colour}", no_wrap=True, overflow="ellipsis")
    command = _COMMANDS.get(note["about"])
    return text.append(f"  carillon {command}", "dim") if command else text


def _flow(steps: list[dict[str, Any]], at: str, width: int) -> list[RenderableType]:
    shown = max(6, min(STEPS, width - _BESIDE))
    known = {step["at"]: step for step in steps}
    # Use the later of both clocks, so that the newest step shows although this machine's clock is slow.
    now = max([datetime.fromisoformat(at).timestamp() // STEP_SECONDS * STEP_SECONDS, *known])
    line = [known.get(now - back * STEP_SECONDS, {}) for back in range(shown - 1, -1, -1)]
    found: list[RenderableType] = [_heading(f"flow, last {shown * STEP_SECONDS // 60} min", "a second", width)]
    for name, style in (("accepted", "cyan"), ("delivered", "green"), ("retried", "yellow"), ("failed", "red")):
        counts = [step.get(name, 0) for step in line]
        rate = sum(counts[-6:]) / (6 * STEP_SECONDS)
        found.append(_line(name, sparkline(counts, shown), style if any(counts) else "dim", f"{rate:,.1f}", width))
    newest: dict[str, Any] = next((step for step in reversed(line) if step.get("p50Ms") is not None), {})
    p99 = [step.get("p99Ms") or 0 for step in line]
    both = f"{_number(newest.get('p50Ms'))} / {_number(newest.get('p99Ms'))}"
    return [*found, _line("p50/p99 ms", sparkline(p99, shown), "magenta" if any(p99) else "dim", both, width)]


def _line(name: str, plot: str, style: str, value: str, width: int) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    text.append(f"{name:11} ")
    text.append(plot, style)
    return text.append(value.rjust(max(1, width - text.cell_len)))


def _heading(title: str, beside: str = "", width: int = 0) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    text.append(title.upper(), "bold dim")
    return text.append(beside.rjust(max(1, width - len(title))), "dim") if beside else text


def _waiting(overview: dict[str, Any]) -> list[RenderableType]:
    dead = overview["deadLetters"]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{overview['due']:,} due  {overview['leased']:,} under way  ")
    text.append(f"{overview.get('scheduled', 0):,} scheduled  ", "dim" if not overview.get("scheduled") else "")
    text.append(f"{overview['routes'].get('published', 0):,} delivered  ", "green")
    text.append(counted(dead, "dead letter"), "bold red" if dead else "dim")
    found: list[RenderableType] = [_heading("lanes"), text]
    most = max((lane["due"] for lane in overview["lanes"]), default=0)
    for lane in overview["lanes"]:
        age = lane["oldestDueSeconds"]
        row = Text(no_wrap=True, overflow="ellipsis")
        row.append(f"{lane['name']:11} {lane['due']:>8,} due ")
        row.append(f"{bar(lane['due'], most, _BAR):{_BAR}} ", "cyan")
        row.append(f"{lane['leased']:,} under way" + ("" if age is None else f", oldest {age:,.0f} s"), "dim")
        found.append(row)
    return found


def _providers(providers: list[dict[str, Any]], width: int) -> list[RenderableType]:
    found: list[RenderableType] = [_heading("providers")]
    names = max((len(one["provider"]) for one in providers), default=0)
    for one in providers:
        row = Text(no_wrap=True, overflow="ellipsis")
        row.append(f"{one['channel']:8} {one['provider']:{min(names, width // 4)}} ")
        row.append(f"{one['state'].replace('_', ' '):9} ", _STATES.get(one["state"], "dim"))
        row.append(
            f"{one['attempts']:>9,} {'call ' if one['attempts'] == 1 else 'calls'} ", "" if one["attempts"] else "dim"
        )
        # An older server does not say how many it refused.
        failed = one["failures"] + one.get("refusals", 0)
        row.append(f"{failed:>7,} failed  ", "red" if failed else "dim")
        row.append(Text(one["lastError"] or "", style="dim"))
        found.append(row)
    return found


def _queues(queues: list[dict[str, Any]]) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim")
    table.add_column("QUEUE", overflow="fold")
    for heading in ("MAIN", "PROCESSING", "DELAYED", "FAILED", "OLDEST"):
        table.add_column(heading, justify="right")
    for one in queues:
        age = one["oldest_seconds"]
        failed = Text(f"{one['failed']:,}", style="bold red" if one["failed"] else "dim")
        numbers = (f"{one[name]:,}" for name in ("main", "processing", "delayed"))
        table.add_row(one["queue"], *numbers, failed, "" if age is None else f"{age:,.0f} s")
    return [table]


def _troubles(recent: list[dict[str, Any]], room: int) -> list[RenderableType]:
    if not recent:
        return []
    lines = [Text(_short(one), no_wrap=True, overflow="ellipsis") for one in recent[:room]]
    return [_heading("newest troubles"), *lines]


def _short(told: dict[str, Any]) -> str:
    """One event in the width of a screen: what failed and why first, then the id to look for."""
    times = f" {told['times']:,} times" if told.get("times", 1) > 1 else ""
    if told["type"] != "route_attempted":
        return told_line(told) + times
    when = datetime.fromtimestamp(told["at"], UTC).strftime("%H:%M:%S")
    why = told.get("error") or told.get("classification") or ""
    about = f"{told['provider']} {told['outcome']}, {VERDICTS.get(told['verdict'], told['verdict'])}{times}: {why}"
    return f"{when}  {about}  {told['notification_id']} {told['route_id']} #{told['attempt']}"


def told_line(told: dict[str, Any]) -> str:
    """One event of the console in one line."""
    when = datetime.fromtimestamp(told["at"], UTC).strftime("%H:%M:%S")
    known = {"number", "at", "type", "began", "times"}
    if told["type"] == "route_attempted":
        about = f"{told['notification_id']} {told['route_id']} #{told['attempt']} {told['provider']} {told['outcome']}"
        said = VERDICTS.get(told["verdict"], told["verdict"])
        return f"{when}  {about}, {said}: {told.get('error') or told.get('classification') or ''}"
    if told["type"] == "breaker_changed":
        of = " ".join(str(told[name]) for name in ("provider", "endpoint") if told.get(name))
        probes = f", after {counted(told['probes'], 'failed probe')}" if told.get("probes") else ""
        return f"{when}  breaker of {of}: {told['before']} → {told['after']}{probes}".replace("half_open", "half open")
    if told["type"] in EVENTS:
        return f"{when}  {EVENTS[told['type']].format_map(defaultdict(str, told))}"
    rest = " ".join(f"{name}={value}" for name, value in told.items() if name not in known and value is not None)
    return f"{when}  {told['type']} {rest}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < _FINE else f"{value:,.0f}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
