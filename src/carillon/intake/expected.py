"""The routes that `explain` simulates, and what it says of each afterwards."""

from collections.abc import Collection, Sequence
from typing import Any

from carillon.domain.claims import first_claim
from carillon.domain.digests import WAITS
from carillon.domain.explain import ExpectedAttempt, ExplainedRoute, RouteOutcome, SimulatedRoute
from carillon.domain.notifications import Enrolment, Route, Status, due_ms
from carillon.domain.suppressions import SUPPRESSED


def simulated_routes(enrolment: Enrolment, suppressed: Collection[str], now: float) -> list[SimulatedRoute]:
    """The routes of an enrolment as the simulation begins with them; times count from now."""
    scheduled_for = due_ms(enrolment.notification)
    since = 0.0 if scheduled_for is None else round(scheduled_for / 1000 - now, 3)
    expires_at = enrolment.notification.expires_at_ms
    expires = None if expires_at is None else round(expires_at / 1000 - now, 3)
    found: list[SimulatedRoute] = []
    for route in enrolment.routes:
        claim = first_claim(enrolment, route.route_id, 0, 0)
        simulated = SimulatedRoute(claim=claim, due=round(max(0.0, since), 3), since=since, expires=expires)
        if route.status is Status.SKIPPED:
            simulated.end(Status.SKIPPED, route.skipped_because)
        elif route.route_id in suppressed:
            simulated.end(Status.SKIPPED, SUPPRESSED)
        found.append(simulated)
    return found


def explained_route(
    route: Route, soonest: SimulatedRoute, latest: SimulatedRoute, now: float, *, synchronous: bool
) -> ExplainedRoute:
    """What is said of a route; `soonest` and `latest` are its simulations with the shortest and the longest waits."""
    waits = soonest.attempts and soonest.attempts[0].at_seconds > 0.0
    outcome: RouteOutcome = "delivered" if synchronous else "queued"
    if soonest.ended is Status.SKIPPED and soonest.reason != WAITS:
        outcome = "skipped"
    elif soonest.ended is Status.DEAD_LETTER and not soonest.attempts:
        outcome = "failed"
    return ExplainedRoute(
        route_id=route.route_id,
        channel=route.channel,
        recipient=route.recipient_ref,
        outcome=outcome,
        policy=route.policy,
        max_attempts=route.max_attempts,
        not_before=_unix_ms(soonest.attempts[0], now) if waits else None,
        attempts=_rows(soonest.attempts, latest.attempts, now),
        ends=None if soonest.ended is None else str(soonest.ended),
        because=soonest.reason,
    )


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
