"""What needs an operator's attention, in sentences, the worst first: the console and `carillon top` show the same."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from carillon.domain.breaker import State
from carillon.domain.streams import NOT_CONNECTED
from carillon.domain.targets import TargetView
from carillon.upkeep.api.pauses import PauseView, pause_views
from carillon.upkeep.api.targets import TargetInfo, target_infos
from carillon.upkeep.health import Health

LATE_SECONDS = 60.0
VERY_LATE_SECONDS = 600.0
NEWEST_CALLS = 1000
FAILING_SECONDS = 300.0
FEWEST_CALLS = 5
"""Fewer calls say nothing about a provider."""
FAILING_SHARE = 0.2
REFUSED = "refused"
"""No other attempt by the same provider follows."""
_SMALL = 0.1
_TENTHS, _SECONDS, _MINUTES, _HOURS = 10, 120, 7200, 172_800

Mood = Literal["bad", "wait"]
Subject = Literal["dependency", "failing", "breaker", "lane", "pause", "endpoint", "dead-letters"]
Row = Mapping[str, Any]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs attention."""

    mood: Mood
    """`bad` needs it now, `wait` some time."""
    about: Subject
    """What kind of thing it is about."""
    name: str
    """Of the dependency, provider, lane or endpoint; `about` and `name` together are one note's own."""
    text: str
    """A sentence: what is wrong, where, and the newest reason."""
    page: str | None = None
    """The page of the console that shows the cause, with its filters."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the whole: what needs attention, or that nothing does."""

    state: Literal["calm", "watch", "needed"]
    text: str
    """One sentence about the whole."""
    notes: list[Note]
    """The worst first."""


class LaneView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One lane: what is due in it, what is under way, and how old the oldest due route is."""

    name: str
    due: int
    leased: int
    oldest_due_seconds: float | None


class Failing(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A provider most of whose calls, or many of them, failed lately."""

    channel: str
    provider: str
    calls: int
    failed: int
    seconds: float
    """The time over which these calls were counted."""
    error: str | None
    """The newest error."""
    outcome: str
    """What the newest failed call came to: unavailable, throttled, refused or unknown."""
    text: str
    """The same in words."""


class WatchedBreakers(Protocol):
    """Breakers whose states the whole fleet shares."""

    async def look(self, providers: Collection[str]) -> Mapping[str, State]: ...

    async def states(self) -> Mapping[str, State]: ...


class WatchedTargets(Protocol):
    """Endpoints in trouble, and everything that is paused."""

    async def views(self) -> dict[str, TargetView]: ...


class Lookout(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process looks for trouble beside its ledger."""

    chains: Mapping[str, Sequence[str]]
    breakers: WatchedBreakers
    targets: WatchedTargets
    dependencies: Callable[[], Awaitable[Health]]

    async def look(self, now: float) -> "Seen":
        names = {name for chain in self.chains.values() for name in chain}
        # At the same time: a server that hangs costs each of them its timeout.
        shared, views, health = await asyncio.gather(
            self.breakers.look(names), self.targets.views(), self.dependencies()
        )
        states = {**shared, **await self.breakers.states()}
        return Seen(
            chains=self.chains,
            states=states,
            targets=target_infos(views, now),
            pauses=pause_views(views),
            checks=health.checks,
        )


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was found beside the ledger."""

    chains: Mapping[str, Sequence[str]] = {}
    states: Mapping[str, State] = {}
    targets: Sequence[TargetInfo] = ()
    pauses: Sequence[PauseView] = ()
    checks: Mapping[str, Row] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says."""

    routes: Mapping[str, int]
    """By status."""
    waiting: int
    """Accepted, and neither delivered nor given up."""
    lanes: Sequence[LaneView] = ()
    failing: Sequence[Failing] = ()
    errors: Mapping[str, str] = {}
    """The newest error of each provider."""


def attention(figures: Counts, seen: Seen) -> Attention:
    """Everything that needs attention, in the order in which an operator looks at it."""
    found = [
        *_dependencies(seen.checks),
        *_failing(figures, seen.states),
        *_breakers(figures, seen),
        *_late(figures.lanes),
        *_paused(seen.pauses),
        *_disabled(seen.targets),
        *_dead(figures.routes.get("dead_letter", 0)),
    ]
    notes = sorted(found, key=lambda note: note.mood)
    if not notes:
        return Attention(state="calm", text=_calm(figures), notes=[])
    return Attention(state="needed" if notes[0].mood == "bad" else "watch", text=notes[0].text, notes=notes)


def failing(recent: Sequence[Row], now: float) -> list[Failing]:
    """The providers whose calls fail now, the worst first; `recent` are the newest calls, oldest first."""
    lately = [row for row in recent if row["started_at"] / 1000 > now - FAILING_SECONDS]
    # In a busy fleet the newest calls cover less time than that.
    covered = now - lately[0]["started_at"] / 1000 if len(lately) == len(recent) and lately else FAILING_SECONDS
    seconds = FAILING_SECONDS if len(recent) < NEWEST_CALLS else round(max(1.0, covered), 1)
    calls: dict[tuple[str, str], list[Row]] = {}
    for row in lately:
        if not _waits_for_person(row):
            calls.setdefault((row["channel"], row["provider"]), []).append(row)
    found = [
        _judged(channel, provider, rows, seconds)
        for (channel, provider), rows in calls.items()
        if len(rows) >= FEWEST_CALLS and len(_bad(rows)) >= FAILING_SHARE * len(rows)
    ]
    return sorted(found, key=lambda one: (-one.failed / one.calls, one.channel, one.provider))


def newest_errors(recent: Sequence[Row]) -> dict[str, str]:
    """The newest error of each provider; `recent` are the newest calls, oldest first."""
    return {row["provider"]: row["error"] for row in recent if row["error"] and not _waits_for_person(row)}


def _judged(channel: str, provider: str, rows: Sequence[Row], seconds: float) -> Failing:
    bad = _bad(rows)
    share = _percent(len(bad) / len(rows))
    return Failing(
        channel=channel,
        provider=provider,
        calls=len(rows),
        failed=len(bad),
        seconds=seconds,
        error=bad[-1]["error"] or bad[-1]["outcome"],
        outcome=bad[-1]["outcome"],
        text=f"{channel} fails: {share} of {len(rows):,} calls to {provider} in {_span(seconds)}",
    )


def _waits_for_person(row: Row) -> bool:
    """A stream holds what is for a person who is away: that is no failure of any call."""
    return (row["outcome"], row["error"]) == ("throttled", NOT_CONNECTED)


def _bad(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["outcome"] != "sent"]


def _dependencies(checks: Mapping[str, Row]) -> Iterator[Note]:
    for name, check in checks.items():
        if check["status"] == "healthy":
            continue
        error = check.get("error")
        said = "does not answer" if error or check["status"] != "degraded" else "is degraded"
        yield Note(mood="bad", about="dependency", name=name, text=f"{name} {said}{f': {error}' if error else ''}")


def _failing(figures: Counts, states: Mapping[str, State]) -> Iterator[Note]:
    for one in figures.failing:
        state = states.get(one.provider, State.CLOSED)
        newest = f", the newest with “{one.error}”" if one.error else ""
        breaker = "" if state is State.CLOSED else f"; its breaker is {_words(state)}"
        yield Note(
            mood="bad",
            about="failing",
            name=f"{one.channel} {one.provider}",
            text=f"{one.text}{newest}{breaker}",
            page=_hit(one, figures.routes),
        )


def _hit(one: Failing, routes: Mapping[str, int]) -> str:
    """The page of those that it has hit: they wait for another attempt, were given up, or another provider has them."""
    channel = quote(one.channel, safe="")
    if one.outcome != REFUSED and routes.get("failed"):
        return f"notifications?status=queued&channel={channel}"
    if routes.get("dead_letter"):
        return f"dead-letters?channel={channel}"
    return f"notifications?channel={channel}&q={quote(one.error or one.outcome, safe='')}"


def _breakers(figures: Counts, seen: Seen) -> Iterator[Note]:
    """A provider has one breaker, however many channels it serves; where its calls fail, that sentence names it."""
    named = {one.provider for one in figures.failing}
    for provider, state in seen.states.items():
        if state is State.CLOSED or provider in named:
            continue
        channels = [channel for channel, chain in seen.chains.items() if provider in chain]
        served = f" ({', '.join(channels)})" if channels else ""
        error = figures.errors.get(provider)
        yield Note(
            mood="bad" if state is State.OPEN else "wait",
            about="breaker",
            name=provider,
            text=f"The breaker of {provider}{served} is {_words(state)}{f', after “{error}”' if error else ''}",
            page="providers",
        )


def _late(lanes: Sequence[LaneView]) -> Iterator[Note]:
    for lane in lanes:
        age = lane.oldest_due_seconds or 0.0
        if age > LATE_SECONDS:
            waits = f"{lane.due:,} {'route waits' if lane.due == 1 else 'routes wait'}"
            yield Note(
                mood="bad" if age > VERY_LATE_SECONDS else "wait",
                about="lane",
                name=lane.name,
                text=f"{waits} in {lane.name}, the oldest for {_span(age)}",
                page="notifications?status=queued",
            )


def _paused(pauses: Sequence[PauseView]) -> Iterator[Note]:
    """A pause that somebody has forgotten looks like an outage."""
    for one in pauses:
        yield Note(
            mood="wait",
            about="pause",
            name=one.what,
            text=f"{one.what} is paused by {one.by} since {_moment(one.since)}: {one.reason}",
            page="endpoints" if one.scope == "endpoint" else "providers",
        )


def _disabled(targets: Sequence[TargetInfo]) -> Iterator[Note]:
    for one in targets:
        if one.state == "disabled":
            since = f" fails since {_moment(one.failing_since)} and" if one.failing_since else ""
            yield Note(
                mood="wait",
                about="endpoint",
                name=f"{one.provider} {one.endpoint}",
                text=f"{one.endpoint} ({one.provider}){since} is disabled",
                page="endpoints",
            )


def _dead(number: int) -> Iterator[Note]:
    if number:
        text = f"{number:,} {'dead letter waits' if number == 1 else 'dead letters wait'} for a decision"
        yield Note(mood="wait", about="dead-letters", name="all", text=text, page="dead-letters")


def _calm(figures: Counts) -> str:
    waiting = figures.waiting
    if not figures.routes.get("published") and not waiting:
        return "Nothing has been sent yet. Every accepted notification will be delivered, skipped, or shown here."
    said = "Every accepted notification is delivered, skipped or on its way"
    if not waiting:
        return f"{said}."
    waits = "route waits for its" if waiting == 1 else "routes wait for their"
    return f"{said}; {waiting:,} {waits} turn."


def _words(state: State) -> str:
    return str(state).replace("_", " ")


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if 0 < share < _SMALL else 0}f} %"


def _span(seconds: float) -> str:
    """0.4 s, 12 s, 3 min, 2 h, 5 d."""
    if seconds < _TENTHS:
        return f"{seconds:.1f} s"
    for limit, unit, word in ((_SECONDS, 1, "s"), (_MINUTES, 60, "min"), (_HOURS, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {word}"
    return f"{seconds / 86_400:,.0f} d"


def _moment(said: str) -> str:
    return datetime.fromisoformat(said).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
