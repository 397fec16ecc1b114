"""`carillon top`: what a running Carillon does now, on one screen."""

import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from carillon.cli.options import AsJson
from carillon.cli.plots import bar, sparkline
from carillon.cli.remote import HERE, NOT_FOUND, Remote, RemoteFailed, Token, TokenFile, Url, token_of
from carillon.cli.words import counted

STEP_SECONDS, STEPS = 10, 60
_BAR = 20
_RECENT = 8
_FINE = 10
_BESIDE = 34
"""Columns beside a line of the flow."""
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
    remote = Remote(url.rstrip("/"), token_of(context, token, token_file))
    console = Console(emoji=False)
    if once or (not as_json and not console.is_terminal):
        seen = look(remote)
        typer.echo(json.dumps(seen, ensure_ascii=False)) if as_json else console.print(
            screen(seen, remote.url, console.width)
        )
        return
    try:
        if as_json:
            while True:
                typer.echo(json.dumps(look(remote), ensure_ascii=False))
                time.sleep(every)
        _watch(remote, console, every)
    except KeyboardInterrupt:
        return


def look(remote: Remote) -> dict[str, Any]:
    """The figures of the console's overview, in one document."""
    try:
        pages = remote.get("/api/v1/console/surface")["pages"]
    except RemoteFailed as error:
        if error.status == NOT_FOUND:
            sentence = f"{remote.url} shows no console: its blueprint has none, or http.console is off"
            raise RemoteFailed(sentence) from None
        raise
    seen: dict[str, Any] = {"at": _now()}
    if "overview" in pages:
        seen["overview"] = remote.get("/api/v1/console/overview")
        seen["providers"] = _providers_of(remote)
    if "queues" in pages:
        seen["queues"] = remote.get("/ops/queues")["queues"]
    if len(seen) == 1:
        raise RemoteFailed("this command needs the token of an administrator without a tenant")
    return seen


def _providers_of(remote: Remote) -> list[dict[str, Any]]:
    """The providers with their breakers; none where the listener serves health and the console alone."""
    try:
        return list(remote.get("/api/v1/admin/providers")["items"])
    except RemoteFailed as error:
        if error.status == NOT_FOUND:
            return []
        raise


def screen(seen: dict[str, Any], url: str, width: int) -> RenderableType:
    """The whole screen, most urgent first."""
    parts: list[RenderableType] = []
    if "overview" in seen:
        overview = seen["overview"]
        parts += [_headline(overview, seen["at"], url), _flow(overview["steps"], seen["at"], width)]
        parts += [_lanes(overview["lanes"]), _providers(seen["providers"])]
        parts += [_recent(overview["recent"])] if overview["recent"] else []
    if "queues" in seen:
        parts.append(_queues(seen["queues"]))
    return Group(*parts)


def _watch(remote: Remote, console: Console, every: float) -> None:
    seen = look(remote)
    with (
        keys() as key,
        Live(screen(seen, remote.url, console.width), console=console, screen=True, auto_refresh=False) as live,
    ):
        while key(every) != "q":
            try:
                seen = look(remote)
                live.update(screen(seen, remote.url, console.width), refresh=True)
            except RemoteFailed as error:
                # The server may restart: keep the last figures, with the error above them.
                live.update(
                    Group(Text(str(error), style="bold red"), screen(seen, remote.url, console.width)), refresh=True
                )


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


def _headline(overview: dict[str, Any], at: str, url: str) -> RenderableType:
    dead = overview["deadLetters"]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{at[11:19]}  ", "dim")
    text.append(f"{overview['due']:,} due  {overview['leased']:,} under way  ")
    text.append(f"{overview['routes'].get('published', 0):,} delivered  ", "green")
    text.append(counted(dead, "dead letter"), "bold red" if dead else "dim")
    text.append(f"  {url}", "dim")
    return text


def _flow(steps: list[dict[str, Any]], at: str, width: int) -> RenderableType:
    shown = max(6, min(STEPS, width - _BESIDE))
    known = {step["at"]: step for step in steps}
    # Use the later of both clocks, so that the newest step shows although this machine's clock is slow.
    now = max([datetime.fromisoformat(at).timestamp() // STEP_SECONDS * STEP_SECONDS, *known])
    line = [known.get(now - back * STEP_SECONDS, {}) for back in range(shown - 1, -1, -1)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column(f"last {shown * STEP_SECONDS // 60} min", no_wrap=True)
    table.add_column("a second", justify="right", no_wrap=True)
    for name, style in (("accepted", "cyan"), ("delivered", "green"), ("retried", "yellow"), ("failed", "red")):
        counts = [step.get(name, 0) for step in line]
        rate = sum(counts[-6:]) / (6 * STEP_SECONDS)
        table.add_row(name, Text(sparkline(counts, shown), style=style), f"{rate:,.1f}")
    newest: dict[str, Any] = next((step for step in reversed(line) if step.get("p50Ms") is not None), {})
    p99 = [step.get("p99Ms") or 0 for step in line]
    both = f"{_number(newest.get('p50Ms'))} / {_number(newest.get('p99Ms'))}"
    table.add_row("p50/p99 ms", Text(sparkline(p99, shown), style="magenta"), both)
    return Panel(table, title="flow", title_align="left", border_style="dim")


def _lanes(lanes: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading, justify in (
        ("lane", "left"),
        ("due", "right"),
        ("", "left"),
        ("under way", "right"),
        ("oldest", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    most = max((lane["due"] for lane in lanes), default=0)
    for lane in lanes:
        age = lane["oldestDueSeconds"]
        table.add_row(
            lane["name"],
            f"{lane['due']:,}",
            Text(bar(lane["due"], most, _BAR), style="cyan"),
            f"{lane['leased']:,}",
            "" if age is None else f"{age:,.0f} s",
        )
    return Panel(
        table if lanes else Text("nothing waits", style="dim"), title="lanes", title_align="left", border_style="dim"
    )


def _providers(providers: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("channel", "provider", "breaker", "attempts", "failed", "last"):
        table.add_column(heading, overflow="fold", justify="right" if heading in {"attempts", "failed"} else "left")
    for one in providers:
        table.add_row(
            one["channel"],
            one["provider"],
            Text(one["state"], style=_STATES.get(one["state"], "dim")),
            f"{one['attempts']:,}",
            Text(f"{one['failures']:,}", style="red" if one["failures"] else "dim"),
            Text(one["lastError"] or one["lastOutcome"] or ""),
        )
    return Panel(table, title="providers", title_align="left", border_style="dim")


def _queues(queues: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("queue", overflow="fold")
    for heading in ("main", "processing", "delayed", "failed", "oldest"):
        table.add_column(heading, justify="right")
    for one in queues:
        age = one["oldest_seconds"]
        failed = Text(f"{one['failed']:,}", style="bold red" if one["failed"] else "dim")
        numbers = (f"{one[name]:,}" for name in ("main", "processing", "delayed"))
        table.add_row(one["queue"], *numbers, failed, "" if age is None else f"{age:,.0f} s")
    return Panel(table, title="queues", title_align="left", border_style="dim")


def _recent(recent: list[dict[str, Any]]) -> RenderableType:
    return Panel(
        Group(*(Text(told_line(one), no_wrap=True, overflow="ellipsis") for one in recent[:_RECENT])),
        title="newest troubles",
        title_align="left",
        border_style="dim",
    )


def told_line(told: dict[str, Any]) -> str:
    """One event of the console in one line."""
    when = datetime.fromtimestamp(told["at"], UTC).strftime("%H:%M:%S")
    known = {"number", "at", "type"}
    if told["type"] == "route_attempted":
        about = f"{told['notification_id']} {told['route_id']} #{told['attempt']} {told['provider']} {told['outcome']}"
        return f"{when}  {about} → {told['verdict']}: {told.get('error') or told.get('classification') or ''}"
    rest = " ".join(f"{name}={value}" for name, value in told.items() if name not in known and value is not None)
    return f"{when}  {told['type']} {rest}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < _FINE else f"{value:,.0f}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
