"""`carillon load`: a bounded load test: notifications accepted and delivered per second, and their latencies."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

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
_POLL_SHARE = 10
"""Asking what still waits takes at most a tenth of the time: it must not slow down what it measures."""
_AT_ONCE = 2000
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
    cut_short: str | None
    """Why these are not the figures of the whole load; None if they are."""


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
    with throwaway() if url is None else nullcontext(url.rstrip("/")) as address:
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


def _run(plan: LoadPlan, address: str, token: str | None, *, quiet: bool) -> "LoadRun":
    with (
        Progress(*_COLUMNS, console=Console(stderr=True, emoji=False), disable=quiet) as progress,
        Client(address, token=token) as client,
    ):
        bars = {name: progress.add_task(name, total=plan.count, rate="") for name in ("accepted", "delivered", "read")}
        began = time.monotonic()

        def show(name: str, number: int) -> None:
            passed = max(time.monotonic() - began, 1e-6)
            progress.update(bars[name], completed=number, rate="" if name == "read" else f"{number / passed:,.0f}/s")

        run = LoadRun(client, plan, show)
        run.run()
    return run


class LoadRun:
    """One load: it sends, waits, and reads how each notification ended. If a step is stopped, what was seen is kept.

    A million notifications need eight bytes for each of two times, and errors are counted, not listed.
    """

    def __init__(self, client: Client, plan: LoadPlan, show: Callable[[str, int], None]) -> None:
        self._client = client
        self._plan = plan
        self._show = show
        self._stop = threading.Event()
        self.accepts, self.deliveries = array("d"), array("d")
        """Milliseconds."""
        self._accepted_seconds = 0.0
        self._first, self._last = float("inf"), 0.0
        """The first acceptance and the last delivery, by the server's clock."""
        self._states: Counter[str] = Counter()
        self._refused, self._waiting = 0, 0
        self._first_error: str | None = None
        self._cut_short: str | None = None

    def run(self) -> None:
        for step in (self._send, self._wait, self._read):
            try:
                step()
            except KeyboardInterrupt:
                self._stop.set()
                self._cut_short = "stopped by Ctrl-C"
            except CarillonError as error:
                self._stop.set()
                self._cut_short = self._cut_short or str(error)

    def result(self, against: str) -> Result:
        took = max(0.001, self._last - self._first)
        return Result(
            against=against,
            sent=len(self.accepts) + self._refused,
            accepted=len(self.accepts),
            refused=self._refused,
            delivered=len(self.deliveries),
            failed=self._states["failed"] + self._states["skipped"],
            waiting=self._waiting,
            accepted_per_second=round(len(self.accepts) / max(self._accepted_seconds, 1e-6), 1),
            delivered_per_second=round(len(self.deliveries) / took, 1),
            accept_ms=_spread(self.accepts),
            delivery_ms=_spread(self.deliveries),
            first_error=self._first_error,
            cut_short=self._cut_short,
        )

    def _over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._plan.ends_at

    def _send(self) -> None:
        began = time.monotonic()
        left: set[Future[float | None]] = set()
        try:
            with ThreadPoolExecutor(self._plan.concurrency) as threads:
                try:
                    self._send_all(threads, left)
                except KeyboardInterrupt:
                    # Those that wait for a thread end at once: leaving the block waits for calls under way only.
                    self._stop.set()
                    raise
        finally:
            for done in left:
                self._count(done)
            self._accepted_seconds = time.monotonic() - began

    def _send_all(self, threads: ThreadPoolExecutor, left: "set[Future[float | None]]") -> None:
        # A million at once would fill the memory before the first is sent.
        for first in range(0, self._plan.count, _AT_ONCE):
            left.update(threads.submit(self._one) for _ in range(min(_AT_ONCE, self._plan.count - first)))
            for done in as_completed(frozenset(left)):
                left.discard(done)
                self._count(done)
            if self._over():
                return

    def _one(self) -> float | None:
        """The milliseconds until one was accepted; None when the time is over."""
        if self._over():
            return None
        began = time.perf_counter()
        self._client.send_item(self._plan.item)
        return (time.perf_counter() - began) * 1000

    def _count(self, done: "Future[float | None]") -> None:
        try:
            took = done.result()
        except CarillonError as error:
            self._refused += 1
            self._first_error = self._first_error or str(error)
        else:
            if took is not None:
                self.accepts.append(took)
                self._show("accepted", len(self.accepts))

    def _wait(self) -> None:
        """Until nothing waits, or the time is over."""
        while True:
            began = time.monotonic()
            found = self._client.search(user_id=self._plan.item.user_id, status="queued", page_size=1)
            self._waiting = found.total_count or 0
            self._show("delivered", len(self.accepts) - self._waiting)
            if not self._waiting or self._over():
                return
            self._stop.wait(max(_POLL_SECONDS, _POLL_SHARE * (time.monotonic() - began)))

    def _read(self) -> None:
        """How each ended, page by page: a cursor has no last page."""
        cursor: str | None = None
        while True:
            found = self._client.search(user_id=self._plan.item.user_id, cursor=cursor, page_size=_PAGE)
            for one in found.items:
                self._ended(one)
            self._show("read", self._states.total())
            cursor = found.next_cursor
            if cursor is None:
                return

    def _ended(self, one: Notification) -> None:
        self._states[one.status] += 1
        if one.delivered_at is None:
            return
        begun, ended = (datetime.fromisoformat(at).timestamp() for at in (one.created_at, one.delivered_at))
        self._first, self._last = min(self._first, begun), max(self._last, ended)
        self.deliveries.append(max(0.0, (ended - begun) * 1000))


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = {name: percentile(ordered, share) for name, share in named.items()}
    return {name: None if value is None else round(value, 1) for name, value in found.items()}


def _show(result: Result, spans: Mapping[str, Sequence[float]]) -> None:
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
