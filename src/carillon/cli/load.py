"""`carillon load`: a bounded load test: notifications accepted and delivered per second, and their latencies."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from carillon.cli.load_run import LoadPlan, LoadRun, Result
from carillon.cli.options import AsJson, print_json
from carillon.cli.plots import bar, histogram
from carillon.cli.remote import Remote, RemoteFailed, Token, TokenFile, token_of, web_address
from carillon.cli.send import Data, variables
from carillon.cli.words import counted
from carillon.client import Client, Item
from carillon.domain.errors import CarillonError

START_SECONDS, END_SECONDS = 60.0, 30.0
# Nothing else of the caller's environment: its credentials would replace the sandbox by real vendors.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
EDGES_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
_BAR, _TOLD_SECONDS = 40, 10.0
LEAST_SECONDS, MOST_SECONDS, LEAST_RATE = 60.0, 7200.0, 100.0
"""Without `--seconds` a load has a second for each hundred, within these bounds."""
_ADDRESSES = {
    "push": "load-test-device",
    "sms": "+15550100000",
    "email": "load-test@example.org",
    "inApp": "load-test",
    "webhook": "https://example.org/load-test",
}


_COLUMNS = (
    TextColumn("{task.description:9}"),
    BarColumn(bar_width=None),
    MofNCompleteColumn(),
    TextColumn("{task.fields[rate]}"),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


class NotStarted(CarillonError):
    """The throw-away instance did not start."""


@contextmanager
def throwaway() -> Iterator[str]:
    """Start a Carillon with sandboxes and a temporary ledger for the block; yields its address."""
    with tempfile.TemporaryDirectory(prefix="carillon-load-") as folder:
        log = Path(folder) / "log"
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "DATABASE_URL": f"sqlite:///{folder}/carillon.db",
            "CARILLON_HTTP__PORT": "0",
            "CARILLON_LOG__FORMAT": "json",
            "CARILLON_LOG__LEVEL": "warning",
        }
        with log.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "carillon.cli", "serve", "--blueprint", "local"],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                # Ctrl-C goes to this command alone, which ends the server after reading its last answer.
                start_new_session=True,
            )
        try:
            yield _address(child, log)
        finally:
            child.terminate()
            try:
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _address(child: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"ready"' in line and line.endswith("}"):
                return str(json.loads(line)["addresses"][0])
        if child.poll() is not None:
            break
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-500:]
    raise NotStarted(f"the throw-away instance did not start: {said or 'it printed no reason'}")


class LoadRefused(CarillonError):
    """The test refuses to start: a real provider might send its messages."""


def load(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many notifications.")] = 500,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="How many at once.")] = 8,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, max=MOST_SECONDS, help="End after this many seconds; by default 60, or one for each 100."),
    ] = None,
    channel: Annotated[str, typer.Option(help="push, sms, email, inApp or webhook.")] = "push",
    template: Annotated[str, typer.Option(help="The template's key.")] = "welcome",
    data: Data = None,
    to: Annotated[str | None, typer.Option("--to", help="The address; by default one that belongs to nobody.")] = None,
    url: Annotated[str | None, typer.Option(help="Where Carillon listens; by default a throw-away instance.")] = None,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    any_provider: Annotated[bool, typer.Option("--any-provider", help="Call real vendors too, for --to.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send many notifications, wait for the end of each, and show the latencies; exit 1 unless all were delivered."""
    given = variables(data or ["name=Ada", "link=https://example.org/"])
    if any_provider and to is None:
        raise LoadRefused("--any-provider: name the address that gets the messages with --to")
    token = token_of(context, token, token_file)
    with throwaway() if url is None else nullcontext(web_address(url)) as address:
        if not any_provider:
            _refuse_vendors(Remote(address, token), channel, own=url is None)
        item = _item(template, channel, to or _ADDRESSES.get(channel), given)
        patience = seconds or min(MOST_SECONDS, max(LEAST_SECONDS, count / LEAST_RATE))
        plan = LoadPlan(item=item, count=count, concurrency=concurrency, ends_at=time.monotonic() + patience)
        run = _run(plan, address, token, quiet=as_json)
    result = run.result("a throw-away instance" if url is None else address)
    if as_json:
        print_json(result)
    else:
        _show(result, {"accepted after": run.accepts, "delivered after": run.deliveries})
    if result.delivered < count:
        raise typer.Exit(1)


def _item(template: str, channel: Any, recipient: str | None, data: dict[str, Any]) -> Item:  # noqa: ANN401 - the server knows
    """The same for every notification of the load; the person makes them findable."""
    who = f"load-{secrets.token_hex(6)}"
    return Item(template_key=template, channel=channel, recipient=recipient, user_id=who, data=data)


def _refuse_vendors(remote: Remote, channel: str, *, own: bool) -> None:
    """Refuse unless every provider of the channel is a sandbox, whatever its name; nobody reads our own inbox."""
    if own and channel == "inApp":
        return
    try:
        providers = remote.get("/api/v1/admin/providers")["items"]
        chain = [one["provider"] for one in providers if one["channel"] == channel]
        sandboxes = set(remote.get("/api/v1/console/surface")["sandboxes"])
    except RemoteFailed as error:
        if error.status is None:
            raise
        raise LoadRefused(
            f"{remote.url} does not confirm that it would call only the sandbox ({error}); give a --token of an "
            "administrator, or --any-provider with --to"
        ) from None
    if not chain or not sandboxes.issuperset(chain):
        known = ", ".join(chain) or "nobody"
        raise LoadRefused(f"{channel} goes to {known} there, not to the sandbox; --any-provider with --to sends anyway")


def _run(plan: LoadPlan, address: str, token: str | None, *, quiet: bool) -> LoadRun:
    console = Console(stderr=True, emoji=False)
    drawn = console.is_terminal and not quiet
    with (
        Progress(*_COLUMNS, console=console, disable=not drawn) as progress,
        Client(address, token=token) as client,
        _ended_as_by_hand(),
    ):
        bars = {name: progress.add_task(name, total=plan.count, rate="") for name in ("accepted", "ended", "read")}
        began = told = time.monotonic()

        def show(name: str, number: int) -> None:
            nonlocal told
            now = time.monotonic()
            rate = "" if name == "read" else f"{number / max(now - began, 1e-6):,.0f}/s"
            progress.update(bars[name], completed=number, rate=rate)
            if not drawn and not quiet and (now - told >= _TOLD_SECONDS or number == plan.count):
                # A log draws no bars: it gets a line now and then, and one at the end of each step.
                told = now
                console.print(f"{name} {number:,} of {plan.count:,} {rate}".rstrip(), markup=False, highlight=False)

        run = LoadRun(client, plan, show)
        run.run()
    return run


@contextmanager
def _ended_as_by_hand() -> Iterator[None]:
    """What was seen is printed, and no instance stays behind, also after SIGTERM and after a terminal was closed."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _show(result: Result, spans: Mapping[str, Sequence[float]]) -> None:
    console = Console(emoji=False)
    for (title, values), spread in zip(spans.items(), (result.accept_ms, result.delivery_ms), strict=True):
        if values:
            words = "  ".join(f"{name} {value:g} ms" for name, value in spread.items() if value is not None)
            console.print(Text(f"{title}  {words}", style="bold"))
            _plot(console, values)
    told = (
        f"{result.delivered:,} of {result.sent:,} delivered, {result.failed:,} failed, {result.waiting:,} still waiting"
    )
    rates = f"{result.accepted_per_second:,.0f} accepted and {result.delivered_per_second:,.0f} delivered a second"
    console.print(
        f"{told}; {rates}, against {result.against}", markup=False, highlight=False, soft_wrap=not console.is_terminal
    )
    if result.first_error is not None:
        refused = counted(result.refused, "was", "were")
        console.print(f"{refused} refused, the first with: {result.first_error}", markup=False)
    if result.cut_short is not None:
        console.print(f"This is what was seen until the load was cut short: {result.cut_short}", markup=False)


def _plot(console: Console, values: Sequence[float]) -> None:
    rows = histogram(values, EDGES_MS)
    seen = [place for place, (_, count) in enumerate(rows) if count]
    most = max(count for _, count in rows)
    for edge, count in rows[seen[0] : seen[-1] + 1]:
        line = Text(f"  ≤ {edge:>6,} ms  ")
        line.append(f"{bar(count, most, _BAR):{_BAR}}", style="cyan")
        line.append(f" {count:,}")
        console.print(line)
