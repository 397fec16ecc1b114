"""Enrolments, notes and settlements for tests of the ledger, each with only its point spelt out."""

from itertools import count
from typing import Any

import msgspec

from carillon.domain.admin import AdminAction, AdminLedger, RedrivePlan
from carillon.domain.claims import AttemptNote, Claim, Settlement, Want
from carillon.domain.decide import suppression_after
from carillon.domain.notifications import Enrolment, Notification, Route
from carillon.domain.outcomes import Refused
from carillon.domain.policy import RetryPolicy
from carillon.domain.suppressions import SuppressionTerms
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip, Verdict

_numbers = count(1)

LANE = 2
PROVIDER = "mailer"
GONE = Refused("no such mailbox", "recipient_gone", recipient_gone=True)
TERMS = SuppressionTerms()
REDRIVE = AdminAction(actor="ops@example.org", action="redrive")


def notification(**changes: Any) -> Notification:
    number = next(_numbers)
    plain: dict[str, Any] = {
        "notification_id": f"n-{number:08d}",
        "notification_type": "order.shipped",
        "producer": "shop",
        "audience_kind": "user",
        "payload_json": '{"order":7}',
        "request_fingerprint": "same",
        "priority": 2,
    }
    return Notification(**(plain | changes))


def route(name: str = "ann", **changes: Any) -> Route:
    plain: dict[str, Any] = {
        "route_id": f"email:user:{name}",
        "channel": "email",
        "recipient_ref": f"user:{name}",
        "lane": LANE,
        "provider": PROVIDER,
        "policy": "*/*",
        "max_attempts": 3,
        "address": f"{name}@example.com",
    }
    return Route(**(plain | changes))


def enrolment(*routes: Route, **changes: Any) -> Enrolment:
    collapse = changes.pop("collapse", None)
    return Enrolment(notification(**changes), routes or (route(),), collapse)


def want(limit: int = 100, lane: int = LANE, provider: str = PROVIDER) -> Want:
    return Want(lane, provider, limit)


def note(outcome: str = "sent", **changes: Any) -> AttemptNote:
    plain: dict[str, Any] = {"provider": PROVIDER, "outcome": outcome, "duration_ms": 12.0}
    return AttemptNote(**(plain | changes))


def failed_note(error: str = "timed out") -> AttemptNote:
    return note("unavailable", classification="timeout", error=error)


def finish(claim: Claim) -> Settlement:
    return Settlement(claim=claim, verdict=Finish(), note=note(provider_message_id=f"m-{claim.token}"))


def retry(claim: Claim, delay: float = 60.0) -> Settlement:
    return Settlement(claim=claim, verdict=Retry(delay), note=failed_note())


def defer(claim: Claim, delay: float = 60.0, *, called: bool = False) -> Settlement:
    return Settlement(claim=claim, verdict=Defer(delay), note=note("throttled", error="slow down") if called else None)


def fail_over(claim: Claim, provider: str = "second", delay: float = 0.0) -> Settlement:
    return Settlement(claim=claim, verdict=FailOver(provider, delay), note=failed_note())


def bury(claim: Claim, *, suppress: bool = False, terms: SuppressionTerms = TERMS) -> Settlement:
    verdict = Bury("recipient_gone", "no such mailbox")
    refused = note("refused", classification="recipient_gone", error="no such mailbox")
    suppression = suppression_after(claim, GONE, terms, RetryPolicy(max_attempts=6), None) if suppress else None
    return Settlement(claim=claim, verdict=verdict, note=refused, suppression=suppression)


def without_note(settlement: Settlement) -> Settlement:
    return msgspec.structs.replace(settlement, note=None)


def settlement(claim: Claim, verdict: Verdict) -> Settlement:
    match verdict:
        case Finish():
            return finish(claim)
        case Retry():
            return retry(claim, verdict.delay)
        case Defer():
            return defer(claim, verdict.delay)
        case FailOver():
            return fail_over(claim, verdict.provider, verdict.delay)
        case Bury():
            return bury(claim)
        case Skip():
            return Settlement(claim=claim, verdict=verdict)


async def redrive(ledger: AdminLedger, *keys: tuple[str, str], provider: str | None = None) -> int:
    """Give the dead letters among these another chance, as an operator does who names them; answers how many."""
    redriven = await ledger.redrive({"letters": keys}, RedrivePlan(provider=provider), len(keys), REDRIVE)
    return redriven.count
