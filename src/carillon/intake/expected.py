"""The routes that `explain` simulates, and what it says of each afterwards."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from carillon.domain.chains import moved_up
from carillon.domain.claims import first_claim
from carillon.domain.decide import EXPIRY
from carillon.domain.digests import WAITS, DigestEntry, DigestRow, join
from carillon.domain.explain import (
    ExpectedAttempt,
    ExplainedRoute,
    ExplainStep,
    GateVerdict,
    RouteOutcome,
    SimulatedRoute,
    in_order,
)
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolment, Route, Status, planned_ms, route_due_ms
from carillon.domain.people import quiet_until
from carillon.domain.store import Row
from carillon.domain.suppressions import CLASSIFICATION, SUPPRESSED
from carillon.domain.timing import EXPIRED

MOST_REPEATS = 3
"""So often one attempt is shown that is made again and again without being counted."""
MOST_DIGESTS = 100
"""So many open digests of one person are looked at for the one that an event would join."""
PROBING = "goes on like this while the provider fails: a probe of an open breaker spends no attempt"

IN_STORIES = {
    "suppression": CLASSIFICATION,
    **{name: name for name in ("category", "throttle", "digest", "expired", "collapsed", "quiet_hours", "reached")},
}
"""For steps that can stop or hold a route, the name of the gate in its story."""


class Walk:
    """The steps so far; a gate that reports twice keeps its last report."""

    def __init__(self) -> None:
        self._steps: dict[str, ExplainStep] = {}

    def add(self, step: str, verdict: GateVerdict, detail: Mapping[str, Any]) -> None:
        self._steps[step] = ExplainStep(step, verdict, dict(detail), IN_STORIES.get(step))

    def passed(self, step: str, detail: Mapping[str, Any]) -> None:
        self.add(step, "pass", detail)

    def detail(self, step: str) -> dict[str, Any] | None:
        found = self._steps.get(step)
        return None if found is None else found.detail

    def steps(self) -> list[ExplainStep]:
        return in_order(list(self._steps.values()))


def simulated_routes(
    enrolment: Enrolment, suppressed: Collection[str], now: float, ending: Mapping[str, int] = MappingProxyType({})
) -> list[SimulatedRoute]:
    """The routes of an enrolment as the simulation begins with them; times count from now."""
    expires_at = enrolment.notification.expires_at_ms
    expires = None if expires_at is None else round(expires_at / 1000 - now, 3)
    found: list[SimulatedRoute] = []
    for route in enrolment.routes:
        claim = first_claim(enrolment, route.route_id, 0, 0)
        due = _seconds(route_due_ms(enrolment, route), now)
        simulated = SimulatedRoute(
            claim=claim,
            due=round(max(0.0, due), 3),
            since=due if route.step is None else _seconds(planned_ms(enrolment, route), now),
            expires=expires,
            step=route.step,
            not_before=_seconds(route.not_before_ms, now),
            suppressed_until=_seconds(ending.get(route.route_id), now),
        )
        if route.status is Status.SKIPPED:
            simulated.end(Status.SKIPPED, route.skipped_because)
        elif route.route_id in suppressed:
            simulated.end(Status.SKIPPED, SUPPRESSED)
        found.append(simulated)
    return found


def _seconds(unix_ms: int | None, now: float) -> float:
    return 0.0 if unix_ms is None else round(unix_ms / 1000 - now, 3)


def in_places(enrolment: Enrolment, suppressed: Collection[str]) -> Enrolment:
    """The enrolment with its chains as the ledger lays them: what is skipped leaves its time to the next channel."""
    waiting = {one.route_id for one in enrolment.routes if one.status is Status.PENDING} - set(suppressed)
    gone = {one.route_id for one in enrolment.routes} - waiting
    placed = {route.route_id: route for route in moved_up(enrolment.routes, gone)}
    return replace(enrolment, routes=tuple(placed.get(one.route_id, one) for one in enrolment.routes))


def gathering(
    enrolment: Enrolment, entry: DigestEntry, held: Sequence[Row], now_ms: int
) -> tuple[Enrolment, dict[str, Any], int | None]:
    """The enrolment after the digest of an event has closed, the digest, and the end of quiet hours that it closes in.

    `held` are the person's open digests. An event that expires before the digest goes is left out of it.
    """
    digest = _digest(entry, held, now_ms)
    closes = digest["closesAt"]
    ends = None if entry.quiet_hours is None else quiet_until(entry.quiet_hours, closes / 1000)
    goes = None if ends is None else round(ends * 1000)
    expires = enrolment.notification.expires_at_ms
    if expires is not None and expires <= (goes or closes):
        enrolment = _left_out(enrolment, entry.audience)
    return enrolment, digest, goes


def _digest(entry: DigestEntry, held: Sequence[Row], now_ms: int) -> dict[str, Any]:
    """The digest that an event goes to, and when it closes with this event in it."""
    for row in held:
        if (row["channels"], row["digest_key"]) == (entry.channels, entry.key):
            opened = DigestRow(digest_id=row["digest_id"], count=row["event_count"], size=row["size"])
            ((joined, _),) = join(opened, [("", entry)])
            closes = now_ms if joined.closed else row["closes_at"]
            return {"key": entry.key, "joins": row["digest_id"], "events": joined.count, "closesAt": closes}
    ((alone, _),) = join(None, [("", entry)])
    closes = now_ms if alone.closed else entry.closes_at_ms
    return {"key": entry.key, "joins": None, "events": 1, "closesAt": closes}


def _left_out(enrolment: Enrolment, audience: str) -> Enrolment:
    routes = tuple(
        replace(route, skipped_because=EXPIRY.reason, skipped_by=EXPIRED)
        if route.recipient_ref == audience and route.skipped_because == WAITS
        else route
        for route in enrolment.routes
    )
    return replace(enrolment, routes=routes)


def chain_shown(intent: Intent, enrolment: Enrolment) -> dict[str, Any] | None:
    """What `explain` says about the order of the channels and the time of each; None outside of chains.

    A channel that is due at once has no time.
    """
    if intent.timing.until is None:
        return None
    chain = [
        {"routeId": route.route_id, "channel": route.channel, "notBefore": route_due_ms(enrolment, route)}
        for route in sorted(enrolment.routes, key=lambda one: (one.recipient_ref, one.step or 0))
        if route.step is not None
    ]
    return {"until": intent.timing.until, "afterSeconds": intent.timing.after_seconds, "chain": chain}


def explained_route(
    route: Route,
    soonest: SimulatedRoute,
    latest: SimulatedRoute,
    now: float,
    *,
    synchronous: bool,
    held_by: dict[str, Any] | None,
) -> ExplainedRoute:
    """What is said of a route; `soonest` and `latest` are its simulations with the shortest and the longest waits.

    `held_by` is the suppression that skips it at its acceptance.
    """
    waits = soonest.attempts and soonest.attempts[0].at_seconds > 0.0
    outcome: RouteOutcome = "delivered" if synchronous else "queued"
    if soonest.ended is Status.SKIPPED and soonest.reason != WAITS:
        outcome = "skipped"
    elif soonest.ended is Status.DEAD_LETTER and not soonest.attempts:
        outcome = "failed"
    over = soonest.ended is Status.SKIPPED and soonest.reason == EXPIRY.reason
    shown = _until_it_repeats(soonest)
    probing = len(shown) < len(soonest.attempts)
    return ExplainedRoute(
        route_id=route.route_id,
        channel=route.channel,
        recipient=route.recipient_ref,
        outcome=outcome,
        policy=route.policy,
        max_attempts=route.max_attempts,
        not_before=_unix_ms(soonest.attempts[0], now) if waits else None,
        attempts=_rows(shown, latest.attempts, now),
        ends=None if soonest.ended is None else str(soonest.ended),
        because=PROBING if probing else soonest.reason,
        suppression=held_by,
        gate=CLASSIFICATION if held_by else route.skipped_by or (EXPIRED if over else None),
    )


def _until_it_repeats(route: SimulatedRoute) -> Sequence[ExpectedAttempt]:
    """The attempts up to the third probe that spends nothing, of a route that would go on probing for days."""
    numbers = [one.attempt for one in route.attempts]
    same = (at for at in range(MOST_REPEATS, len(numbers)) if numbers[at] == numbers[at - MOST_REPEATS])
    return route.attempts if route.ended is not None else route.attempts[: next(same, len(numbers))]


def _rows(soonest: Sequence[ExpectedAttempt], latest: Sequence[ExpectedAttempt], now: float) -> list[dict[str, Any]]:
    """For each attempt: the provider, and the least and the most seconds after the previous attempt."""
    rows: list[dict[str, Any]] = []
    for at, one in enumerate(soonest):
        row: dict[str, Any] = {"attempt": one.attempt, "provider": one.provider, "notBefore": _unix_ms(one, now)}
        other = latest[at] if at < len(latest) else None
        if at > 0:
            row["afterSeconds"] = round(one.at_seconds - soonest[at - 1].at_seconds, 3)
            if other is not None:
                row["atMostSeconds"] = round(other.at_seconds - latest[at - 1].at_seconds, 3)
        if other is not None and other.provider != one.provider:
            # A longer wait may meet another state of a breaker.
            row["orProvider"] = other.provider
        rows.append(row)
    return rows


def _unix_ms(attempt: ExpectedAttempt, now: float) -> int:
    return round((now + attempt.at_seconds) * 1000)
