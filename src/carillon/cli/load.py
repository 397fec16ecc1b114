"""`carillon load`: a bounded load test: notifications accepted and delivered per second, and their latencies."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
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

from carillon.cli.options import AsJson, print_json
from carillon.cli.plots import bar, histogram, percentile
from carillon.cli.remote import Remote, RemoteFailed, Token, TokenFile, token_of
from carillon.cli.send import Data, variables
from carillon.client import Client, Item, Notification
from carillon.domain.errors import CarillonError

START_SECONDS, END_SECONDS = 60.0, 30.0
# Nothing else of the caller's environment: its credentials would replace the sandbox by real vendors.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
EDGES_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
_BAR, _PAGE, _POLL_SECONDS = 40, 200, 0.2
_AT_ONCE = 2000
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


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The notification to send, how often, how many at once and for how long."""

    item: Item
    count: int
    concurrency: int
    ends_at: float
    """By the monotonic clock."""


class Result(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result; times are milliseconds."""

    against: str
    sent: int
    accepted: int
    refused: int
    delivered: int
    failed: int
    waiting: int
    accepted_per_second: float
    delivered_per_second: float
    accept_ms: dict[str, float | None]
    delivery_ms: dict[str, float | None]
    first_error: str | None


def load(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many notifications.")] = 500,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="How many at once.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, max=7200, help="End after this many seconds.")] = 60.0,
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
    with throwaway() if url is None else nullcontext(url.rstrip("/")) as address:
        if not any_provider:
            _refuse_vendors(Remote(address, token), channel, own=url is None)
        item = Item(
            template_key=template,
            channel=cast("Any", channel),  # the server knows which there are
            recipient=to or _ADDRESSES.get(channel),
            user_id=f"load-{secrets.token_hex(6)}",
            data=given,
        )
        plan = LoadPlan(item=item, count=count, concurrency=concurrency, ends_at=time.monotonic() + seconds)
        result, spans = _run(plan, address, token, quiet=as_json, own=url is None)
    if as_json:
        print_json(result)
    else:
        _show(result, spans)
    if result.delivered < count:
        raise typer.Exit(1)


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


def _run(
    plan: LoadPlan, address: str, token: str | None, *, quiet: bool, own: bool
) -> tuple[Result, dict[str, list[float]]]:
    with (
        Progress(*_COLUMNS, console=Console(stderr=True, emoji=False), disable=quiet) as progress,
        Client(address, token=token) as client,
    ):
        bars = {name: progress.add_task(name, total=plan.count, rate="") for name in ("accepted", "delivered")}

        def show(name: str, number: int) -> None:
            passed = max(time.monotonic() - began, 1e-6)
            progress.update(bars[name], completed=number, rate=f"{number / passed:,.0f}/s")

        began = time.monotonic()
        accepts, errors = _send(client, plan, lambda number: show("accepted", number))
        accepted_after = time.monotonic() - began
        waiting = _wait(client, plan, len(accepts), lambda number: show("delivered", number))
        states, deliveries, took = _ends(client, plan)
    result = Result(
        against="a throw-away instance" if own else address,
        sent=len(accepts) + len(errors),
        accepted=len(accepts),
        refused=len(errors),
        delivered=len(deliveries),
        failed=sum(state in {"failed", "skipped"} for state in states),
        waiting=waiting,
        accepted_per_second=round(len(accepts) / max(accepted_after, 1e-6), 1),
        delivered_per_second=round(len(deliveries) / max(took, 0.001), 1),
        accept_ms=_spread(accepts),
        delivery_ms=_spread(deliveries),
        first_error=errors[0] if errors else None,
    )
    return result, {"accepted after": accepts, "delivered after": deliveries}


def _send(client: Client, plan: LoadPlan, show: Callable[[int], None]) -> tuple[list[float], list[str]]:
    """The time of each acceptance, and the errors."""

    def one(_number: int) -> float | None:
        if time.monotonic() > plan.ends_at:
            return None
        began = time.perf_counter()
        client.send_item(plan.item)
        return (time.perf_counter() - began) * 1000

    accepts: list[float] = []
    errors: list[str] = []
    with ThreadPoolExecutor(plan.concurrency) as threads:
        # A million at once would fill the memory before the first is sent.
        for first in range(0, plan.count, _AT_ONCE):
            some = range(first, min(plan.count, first + _AT_ONCE))
            for done in as_completed([threads.submit(one, number) for number in some]):
                try:
                    took = done.result()
                except CarillonError as error:
                    errors.append(str(error))
                else:
                    accepts += [] if took is None else [took]
                    show(len(accepts))
            if time.monotonic() > plan.ends_at:
                break
    return accepts, errors


def _wait(client: Client, plan: LoadPlan, accepted: int, show: Callable[[int], None]) -> int:
    """The number of notifications that have not ended when the time is over."""
    while True:
        left = client.search(user_id=plan.item.user_id, status="queued", page_size=1).total_count or 0
        show(accepted - left)
        if not left or time.monotonic() > plan.ends_at:
            return left
        time.sleep(_POLL_SECONDS)


def _ends(client: Client, plan: LoadPlan) -> tuple[list[str], list[float], float]:
    """The states, the milliseconds of each delivery and the seconds of all, by the server's clock."""
    states: list[str] = []
    deliveries: list[float] = []
    first, last = float("inf"), 0.0
    for found in _pages(client, plan):
        for one in found:
            states.append(one.status)
            if one.delivered_at is not None:
                begun, ended = (datetime.fromisoformat(at).timestamp() for at in (one.created_at, one.delivered_at))
                first, last = min(first, begun), max(last, ended)
                deliveries.append(max(0.0, (ended - begun) * 1000))
    return states, deliveries, max(0.0, last - first)


def _pages(client: Client, plan: LoadPlan) -> Iterator[list[Notification]]:
    """Every notification of this load, page by page: a cursor has no last page."""
    cursor: str | None = None
    while True:
        found = client.search(user_id=plan.item.user_id, cursor=cursor, page_size=_PAGE)
        yield found.items
        cursor = found.next_cursor
        if cursor is None:
            return


def _spread(values: list[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = {name: percentile(ordered, share) for name, share in named.items()}
    return {name: None if value is None else round(value, 1) for name, value in found.items()}


def _show(result: Result, spans: dict[str, list[float]]) -> None:
    console = Console(emoji=False)
    for (title, values), spread in zip(spans.items(), (result.accept_ms, result.delivery_ms), strict=True):
        if values:
            words = "  ".join(f"{name} {value:g} ms" for name, value in spread.items() if value is not None)
            console.print(Text(f"{title}  {words}", style="bold"))
            _plot(console, values)
    told = f"{result.delivered} of {result.sent} delivered, {result.failed} failed, {result.waiting} still waiting"
    rates = f"{result.accepted_per_second:,.0f} accepted and {result.delivered_per_second:,.0f} delivered a second"
    console.print(f"{told}; {rates}, against {result.against}", markup=False, highlight=False, soft_wrap=True)
    if result.first_error is not None:
        console.print(f"{result.refused} were refused, the first with: {result.first_error}", markup=False)


def _plot(console: Console, values: list[float]) -> None:
    rows = histogram(values, EDGES_MS)
    seen = [place for place, (_, count) in enumerate(rows) if count]
    most = max(count for _, count in rows)
    for edge, count in rows[seen[0] : seen[-1] + 1]:
        line = Text(f"  ≤ {edge:>6,} ms  ")
        line.append(f"{bar(count, most, _BAR):{_BAR}}", style="cyan")
        line.append(f" {count:,}")
        console.print(line)
