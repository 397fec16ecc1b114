"""The console's charts: what the ledger says about a time, in steps, by channel, provider, template or tenant."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.notifications import Status
from carillon.domain.ports import Clock, HistorySteps, UpkeepLedger
from carillon.upkeep.console.series import Series
from carillon.web import OPERATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.request import unix_ms

STEPS = 60
LONGEST_MS = 92 * 86_400_000
SHORTEST_MS = 60_000
MOST_GROUPS = 50
DEFAULT_MS = 3_600_000
_SHARE = 10
"""An answer is kept ten times as long as it took: looking at a chart costs the ledger at most a tenth of its time."""
_CHEAP_SECONDS = 0.05
_KEPT_SECONDS = 120.0
_STALE_SECONDS = 60.0
_MOST_KEPT = 64

Moment = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].{1,30}\Z", extra_json_schema={"format": "date-time"})
]
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{0,255}\Z")]
By = Literal["channel", "provider", "template", "tenant"]
Kind = TypeVar("Kind")


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which time to show, and of what; without a time, the last hour."""

    after: Moment | UnsetType = UNSET
    before: Moment | UnsetType = UNSET
    by: By = "channel"
    name: Name | UnsetType = UNSET
    """Only of this channel, provider, template or tenant; the empty text is no tenant."""


class HistoryTotals(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What happened in a time."""

    accepted: int
    """Notifications."""
    delivered: int
    """Routes, as are those that follow."""
    failed: int
    skipped: int


class HistoryMark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that explains a chart: a breaker changed, or this process started."""

    at: float
    kind: str
    text: str


class HistoryGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The routes of one channel, provider, template or tenant that ended in the time."""

    name: str
    delivered: int
    failed: int
    skipped: int
    average_ms: float | None


class HistoryView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A time in steps, from the ledger."""

    step_seconds: float
    times: list[float]
    """The beginning of each step in Unix seconds; the lists that follow have one value for each."""
    accepted: list[int]
    delivered: list[int]
    failed: list[int]
    skipped: list[int]
    average_ms: list[float | None]
    """Of the calls that delivered."""
    slowest_ms: list[float | None]
    totals: HistoryTotals
    before: HistoryTotals
    """The same for as long a time before."""
    by: str
    groups: list[HistoryGroup]
    marks: list[HistoryMark]
    """Of this process: others have their own."""


class Remembered:
    """Answers that are expensive. A cheap one is asked for each time; callers at the same time share one.

    An expensive one is kept for ten times as long as it took. Later callers get it at once while a new one is made.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        """Until when each answer is fresh."""
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[Kind]]) -> Kind:
        kept = self._kept.get(key)
        if kept is not None and self._ticks() < kept[0]:
            return cast("Kind", kept[1])
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self._asked(key, ask))
            running.add_done_callback(lambda task: task.cancelled() or task.exception())
        if kept is not None and self._ticks() < kept[0] + _STALE_SECONDS:
            return cast("Kind", kept[1])
        # A caller who leaves does not take the answer away from the others.
        return cast("Kind", await asyncio.shield(running))

    async def _asked(self, key: Hashable, ask: Callable[[], Awaitable[Kind]]) -> Kind:
        began = self._ticks()
        try:
            answer = await ask()
            ended = self._ticks()
            self._kept.pop(key, None)
            if ended - began >= _CHEAP_SECONDS:
                self._kept[key] = (ended + min(_KEPT_SECONDS, (ended - began) * _SHARE), answer)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return answer
        finally:
            del self._running[key]


class ConsoleHistory:
    """Answers the endpoint of the charts."""

    def __init__(self, ledger: UpkeepLedger, series: Series, clock: Clock, remembered: Remembered) -> None:
        self._ledger = ledger
        self._series = series
        self._clock = clock
        self._remembered = remembered

    async def show(self, request: Request) -> Reply:
        query = request.query(HistoryQuery)
        steps = self._steps(query)
        key = (steps.step_from_ms, steps.step_ms, query.by, query.name)
        return Reply(200, await self._remembered.get(key, lambda: self._view(query, steps)))

    def _steps(self, query: HistoryQuery) -> HistorySteps:
        now = round(self._clock.wall() * 1000)
        until = now if query.before is UNSET else unix_ms(query.before, "before")
        begin = until - DEFAULT_MS if query.after is UNSET else unix_ms(query.after, "after")
        if not SHORTEST_MS <= until - begin <= LONGEST_MS:
            raise Problem("VALIDATION_ERROR", "the time must be between one minute and 92 days long")
        step = -(-(until - begin) // STEPS)
        # The last step contains the present, and a step begins at a round time: charts do not jitter.
        end = -(-until // step) * step
        return HistorySteps(from_ms=end - 2 * STEPS * step, step_from_ms=end - STEPS * step, until_ms=end, step_ms=step)

    async def _view(self, query: HistoryQuery, steps: HistorySteps) -> HistoryView:
        filters: dict[str, Any] = {} if query.name is UNSET else {query.by: query.name}
        ended, accepted = await self._ledger.history(filters, steps)
        groups = await self._ledger.history_groups(query.by, steps, MOST_GROUPS)
        began = steps.step_from_ms / 1000
        rows = {(row["step"], row["status"]): row for row in ended}
        calls = [rows.get((at, Status.PUBLISHED), {}) for at in range(STEPS)]
        return HistoryView(
            step_seconds=steps.step_ms / 1000,
            times=[began + at * steps.step_ms / 1000 for at in range(STEPS)],
            accepted=_filled({row["step"]: row["accepted"] for row in accepted}),
            delivered=_filled(_of(ended, Status.PUBLISHED)),
            failed=_filled(_of(ended, Status.DEAD_LETTER)),
            skipped=_filled(_of(ended, Status.SKIPPED)),
            average_ms=[_average(row) for row in calls],
            slowest_ms=[row.get("slowest_ms") for row in calls],
            totals=_totals(ended, accepted, lambda step: step >= 0),
            before=_totals(ended, accepted, lambda step: step < 0),
            by=query.by,
            groups=[_group(row) for row in groups],
            marks=[msgspec.convert(mark, HistoryMark) for mark in self._series.marks() if mark["at"] >= began],
        )


def _of(ended: list[dict[str, Any]], status: Status) -> dict[int, int]:
    return {row["step"]: row["routes"] for row in ended if row["status"] == status}


def _filled(of_step: dict[int, int]) -> list[int]:
    return [of_step.get(at, 0) for at in range(STEPS)]


def _average(row: dict[str, Any]) -> float | None:
    return round(row["took_ms"] / row["told"], 1) if row.get("told") else None


def _totals(
    ended: list[dict[str, Any]], accepted: list[dict[str, Any]], within: Callable[[int], bool]
) -> HistoryTotals:
    def total(status: Status) -> int:
        return sum(count for step, count in _of(ended, status).items() if within(step))

    return HistoryTotals(
        accepted=sum(row["accepted"] for row in accepted if within(row["step"])),
        delivered=total(Status.PUBLISHED),
        failed=total(Status.DEAD_LETTER),
        skipped=total(Status.SKIPPED),
    )


def _group(row: dict[str, Any]) -> HistoryGroup:
    return HistoryGroup(
        name=row["name"],
        delivered=row["delivered"],
        failed=row["failed"],
        skipped=row["skipped"],
        average_ms=_average(row),
    )


def endpoint(history: ConsoleHistory) -> Endpoint:
    """The charts show every tenant, so they are for operators."""
    return Endpoint(
        method="GET",
        path="/api/v1/console/history",
        call=history.show,
        name="consoleHistory",
        summary="What happened in a time, in sixty steps",
        description="From the ledger: accepted notifications and ended routes, and as long a time before.",
        tag="Console",
        about=OPERATORS,
        query=HistoryQuery,
        answers=(Answer(status=200, description="The time in steps.", kind=HistoryView),),
    )
