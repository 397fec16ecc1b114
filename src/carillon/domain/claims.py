"""A claimed route: the lease that proves the claim, the call it becomes, the settlement it ends in.

Garbage collection skips these structs (`gc=False`): there are many, and none can be part of a reference cycle.
"""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from carillon.domain.notifications import Enrolment, Message
from carillon.domain.verdicts import Verdict

_read_message = msgspec.json.Decoder(Message).decode


class Want(msgspec.Struct, frozen=True):
    """How many routes of one lane and provider a worker could start now."""

    lane: int
    provider: str
    limit: int


class Claim(msgspec.Struct, gc=False):
    """A route and the lease that proves it is ours."""

    notification_id: str
    route_id: str
    token: int
    """Grows with every claim of the ledger; settling and renewing need it."""
    channel: str
    recipient_ref: str
    lane: int
    provider: str
    policy: str
    attempt: int
    """Counted at the claim, so that a worker that dies has spent one."""
    attempts_before: int
    """Attempts made before this provider became the route's provider; below 0 an operator chose it."""
    max_attempts: int
    age_seconds: float
    notification_type: str
    producer: str
    payload_json: str
    accepted_at_ms: int
    address: str | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    resolved_locale: str | None = None
    message_json: str | None = None
    metadata_json: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    audience_kind: str = "user"
    intent_key: str | None = None
    """The producer's own idempotency key, for those who read the log."""
    abandoned: bool = False
    """An earlier claim of this route ran out unsettled: its message may have gone out."""
    suppressed: bool = False
    """The address was declared dead after the route had been enrolled."""
    place: Any = None
    """Where the ledger put this version of the route, if it says so: a short way back, good while nobody changed it."""

    @property
    def key(self) -> tuple[str, str]:
        """The route's identity."""
        return (self.notification_id, self.route_id)

    @property
    def idempotency_key(self) -> str:
        """What every repeat of this message carries, so that a vendor can recognise it."""
        return f"{self.notification_id}/{self.route_id}"

    @property
    def forced(self) -> bool:
        """An operator chose the provider for this attempt: its breaker is not asked."""
        return self.attempts_before < 0 and self.attempt == 1

    def message(self) -> Message | None:
        """The rendered content, if rendering happened before queueing."""
        return None if self.message_json is None else _read_message(self.message_json)

    def metadata(self) -> dict[str, Any]:
        """What the producer attached."""
        return {} if self.metadata_json is None else dict(msgspec.json.decode(self.metadata_json))


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """One call of one provider: the claim, and how long the whole call may take."""

    claim: Claim
    message: Message | None
    timeout_seconds: float


class AttemptNote(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is written down of one call."""

    provider: str
    outcome: str
    duration_ms: float
    classification: str | None = None
    error: str | None = None
    provider_message_id: str | None = None


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a claim."""

    claim: Claim
    verdict: Verdict
    note: AttemptNote | None = None
    """None when no call was made: a deferral by an open breaker, a released claim."""
    suppress: bool = False
    """The address is dead: later routes to it are skipped."""


class Settled(StrEnum):
    """What a settlement did to the ledger."""

    APPLIED = "applied"
    ADOPTED = "adopted"
    """A late success of a lost lease closed a route that was still open."""
    STALE = "stale"
    """The lease was lost and the route is another's, or terminal: nothing changed."""


def first_claim(
    enrolment: Enrolment, route_id: str, token: int, accepted_at_ms: int, place: object | None = None
) -> Claim:
    """The first claim of a route that is leased as it is enrolled, as the ledger's `claim` would answer it."""
    notification = enrolment.notification
    route = next(route for route in enrolment.routes if route.route_id == route_id)
    return Claim(
        notification_id=notification.notification_id,
        route_id=route.route_id,
        token=token,
        channel=route.channel,
        recipient_ref=route.recipient_ref,
        lane=route.lane,
        provider=route.provider,
        policy=route.policy,
        attempt=1,
        attempts_before=0,
        max_attempts=route.max_attempts,
        age_seconds=0.0,
        notification_type=notification.notification_type,
        producer=notification.producer,
        payload_json=notification.payload_json,
        accepted_at_ms=accepted_at_ms,
        address=route.address,
        user_id=notification.user_id,
        tenant_id=notification.tenant_id,
        resolved_locale=route.resolved_locale,
        message_json=route.message_json,
        metadata_json=notification.metadata_json,
        request_id=notification.request_id,
        trace_id=notification.trace_id,
        audience_kind=notification.audience_kind,
        intent_key=notification.idempotency_key,
        place=place,
    )


class Reset(msgspec.Struct, frozen=True):
    """How many expired leases were taken back, and how many of their routes had no attempt left and were given up."""

    count: int = 0
    failed: int = 0


class LeaseLedger(Protocol):
    """Where leases are held."""

    async def reset_expired(self, limit: int) -> Reset:
        """Take back up to so many leases of live streams that ran out; raises LedgerUnavailable and has done nothing.

        The claim counts the attempt, so resetting a lease costs no attempt, however often it happens.
        """
        ...
