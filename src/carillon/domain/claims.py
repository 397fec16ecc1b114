"""A claimed route: its lease, the call to a provider, and the settlement that ends the claim.

Garbage collection skips these structs (`gc=False`): there are many, and none can be part of a reference cycle.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from carillon.domain.groups import NO_TURNS, Groups, Turns
from carillon.domain.notifications import Enrolment, Message
from carillon.domain.suppressions import Suppression, SuppressionRef
from carillon.domain.verdicts import Verdict

_read_message = msgspec.json.Decoder(Message).decode
_read_suppression = msgspec.json.Decoder(SuppressionRef).decode


class Want(msgspec.Struct, frozen=True):
    """How many routes of one lane and provider a worker could start now."""

    lane: int
    provider: str
    limit: int
    turns: Turns = NO_TURNS
    """The caps and weights of the provider's groups, and the groups to leave out."""


class Claim(msgspec.Struct, gc=False):
    """A route that this worker holds under a lease."""

    notification_id: str
    route_id: str
    token: int
    """Grows with every claim of a route, and no two claims share one; settling and renewing require the current one."""
    channel: str
    recipient_ref: str
    lane: int
    provider: str
    policy: str
    attempt: int
    """The number of this attempt. The claim counts it, so a worker that dies has used up one attempt."""
    attempts_before: int
    """Attempts before the route moved to this provider; negative if an operator chose the provider."""
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
    """The producer's own idempotency key, which log lines show."""
    abandoned: bool = False
    """The lease of an earlier claim expired without a settlement: that worker may have sent the message."""
    suppression_json: str | None = None
    """The suppression in force at the claim, which began after the route was enrolled; None if there is none."""
    category: str | None = None
    wishes_json: str | None = None
    """What the person has chosen by now; only for a message with a category that has waited."""
    place: Any = None
    """The physical place of the route's row, where the ledger gives one: a fast lookup while the row is unchanged."""
    group: int = 0
    """The number of the route's group, negative if the group has a cap; 0 is everybody."""
    ahead: bool = False
    """The group has no free place: the call begins when another call of this process to the group has ended."""
    expires_in: float | None = None
    """Seconds from the claim until the notification expires; None if it never does."""
    stopped: str | None = None
    """Why nothing more of the notification is sent, as `read_stop` reads it."""
    priority: int | None = None
    """The notification's priority, 1 is high; None where a backlog knows none."""
    goal: str | None = None
    """What the chain of its person is tried for; None outside of chains."""
    lease: int = 0
    """The lease that this claim shares with the rest of its batch; 0 if the route's own row has the lease."""
    unsubscribe_url: str | None = None
    """Where one click leaves the category; only for mails of a category that can be left, set before the call."""
    probe: bool = False
    """The call probes a half-open breaker, of the provider or of the endpoint; set when it is admitted."""

    @property
    def key(self) -> tuple[str, str]:
        """The route's identity."""
        return (self.notification_id, self.route_id)

    @property
    def idempotency_key(self) -> str:
        """The key that every repeat of this message carries, so that a vendor can recognise the repeat."""
        return f"{self.notification_id}/{self.route_id}"

    @property
    def forced(self) -> bool:
        """Whether an operator chose the provider for this attempt, which then ignores the breaker."""
        return self.attempts_before < 0 and self.attempt == 1

    @property
    def suppressed(self) -> bool:
        """Whether no provider may be called, because the address is suppressed."""
        return self.suppression_json is not None

    def suppression(self) -> SuppressionRef | None:
        """The suppression in force at the claim."""
        return None if self.suppression_json is None else _read_suppression(self.suppression_json)

    def message(self) -> Message | None:
        """The rendered content; None if the message is rendered at delivery."""
        return None if self.message_json is None else _read_message(self.message_json)

    def to_complete(self) -> bool:
        """Whether the email needs more than itself before it is sent: bytes from a URL, or a look at its copies."""
        text = self.message_json
        # No text inside a JSON value holds this mark: quotes are escaped there.
        if text is None or self.channel != "email" or '"mail":{' not in text:
            return False
        parts = _read_message(text).mail
        return parts is not None and bool(parts.to_fetch or parts.copies)

    def is_copied(self) -> bool:
        """Whether others get this email too, or would have."""
        text = self.message_json
        if text is None or '"mail":{' not in text:
            return False
        parts = _read_message(text).mail
        return parts is not None and bool(parts.copies or parts.left_out)

    def metadata(self) -> dict[str, Any]:
        """The metadata that the producer attached."""
        return {} if self.metadata_json is None else dict(msgspec.json.decode(self.metadata_json))


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """One call of one provider: the claim, and how long the whole call may take."""

    claim: Claim
    message: Message | None
    timeout_seconds: float
    starts_in: float = 0.0
    """Seconds until the call starts, so that calls keep the pace of their target."""


class AttemptNote(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The record of one attempt."""

    provider: str
    outcome: str
    duration_ms: float
    classification: str | None = None
    error: str | None = None
    provider_message_id: str | None = None


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a claim: its verdict, and the record of the attempt."""

    claim: Claim
    verdict: Verdict
    note: AttemptNote | None = None
    """None if the worker called no provider: a breaker was open, or the worker released the claim."""
    suppression: Suppression | None = None
    """The suppression that the provider's answer causes, because it reports the address as dead."""
    group: int | None = None
    """The group of the route from now on; None leaves it."""
    provider: str | None = None
    """The provider of the route from now on, without a call that counts; None leaves what the verdict says."""


def other_group(groups: Mapping[str, Groups], provider: str, claim: Claim) -> int | None:
    """The group that a claim must have before this provider is called; None if it may be called as it is.

    What another worker may have sent is called at once, because giving it back would forget that.
    """
    rules = groups.get(provider)
    if rules is None or claim.abandoned or not claim.lease:
        return None
    return rules.instead_of(claim.group, claim.tenant_id, claim.recipient_ref, claim.address)


class Settled(StrEnum):
    """The ledger's answer to a settlement."""

    APPLIED = "applied"
    ADOPTED = "adopted"
    """The lease was lost, but the route was still open: the late success finished it."""
    STALE = "stale"
    """The lease was lost, and another worker holds the route or has ended it: nothing changed."""


_FIRST: dict[str, Any] = {"attempt": 1, "attempts_before": 0, "age_seconds": 0.0}


def first_claim(
    enrolment: Enrolment, route_id: str, token: int, accepted_at_ms: int, place: object | None = None, *, lease: int = 0
) -> Claim:
    """The first claim of a route that is enrolled and claimed in one commit, equal to what `claim` would return."""
    notification, expires_at_ms = enrolment.notification, enrolment.notification.expires_at_ms
    route = next(route for route in enrolment.routes if route.route_id == route_id)
    return Claim(
        notification_id=notification.notification_id,
        route_id=route_id,
        token=token,
        channel=route.channel,
        recipient_ref=route.recipient_ref,
        lane=route.lane,
        provider=route.provider,
        policy=route.policy,
        **_FIRST,
        max_attempts=route.max_attempts,
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
        category=notification.category,
        place=place,
        lease=lease,
        group=route.group,
        expires_in=None if expires_at_ms is None else (expires_at_ms - accepted_at_ms) / 1000,
        priority=notification.priority,
        goal=route.goal,
    )


class Reset(msgspec.Struct, frozen=True):
    """The number of expired leases that were reset, and of routes among them that became dead letters."""

    count: int = 0
    failed: int = 0


class LeaseLedger(Protocol):
    """The ledger as the cleanup of leases uses it."""

    async def reset_expired(self, limit: int) -> Reset:
        """Reset up to `limit` expired leases of live streams; raises LedgerUnavailable if nothing was changed.

        The claim has counted the attempt, so a reset counts none, however often it runs.
        """
        ...
