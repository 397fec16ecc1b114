"""One load of `carillon load`: it sends, waits, and reads how each notification ended."""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import datetime

import msgspec

from carillon.cli.plots import percentile
from carillon.client import Client, Item, Notification
from carillon.domain.errors import CarillonError

_PAGE, _POLL_SECONDS = 200, 0.2
_POLL_SHARE = 10
"""Asking what still waits takes at most a tenth of the time: it must not slow down what it measures."""
_AT_ONCE = 2000
_LOOK_SECONDS = 5.0
"""How often it looks at what has ended while it still sends."""


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
            except KeyboardInterrupt as error:
                self._stop.set()
                self._cut_short = f"stopped by {str(error) or 'Ctrl-C'}"
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
        looked = time.monotonic()
        # A million at once would fill the memory before the first is sent.
        for first in range(0, self._plan.count, _AT_ONCE):
            left.update(threads.submit(self._one) for _ in range(min(_AT_ONCE, self._plan.count - first)))
            for done in as_completed(frozenset(left)):
                left.discard(done)
                self._count(done)
            if self._over():
                return
            if time.monotonic() - looked > _LOOK_SECONDS:
                self._look()
                looked = time.monotonic()

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
            self._look()
            if not self._waiting or self._over():
                return
            self._stop.wait(max(_POLL_SECONDS, _POLL_SHARE * (time.monotonic() - began)))

    def _look(self) -> None:
        """How many of the accepted ones have ended."""
        found = self._client.search(user_id=self._plan.item.user_id, status="queued", page_size=1)
        self._waiting = found.total_count or 0
        self._show("ended", len(self.accepts) - self._waiting)

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
