"""Receipts: what a vendor reports about a message after accepting it, and what each report does to a route."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, assert_never

import msgspec

from carillon.domain.decide import exhausted_text, following
from carillon.domain.notifications import Status
from carillon.domain.policy import PolicyTable
from carillon.domain.suppressions import Suppression, SuppressionKind, SuppressionTerms, kind_of_refusal


class ReceiptKind(StrEnum):
    """What a vendor reports about a message."""

    QUEUED = "queued"
    SENT = "sent"
    DELIVERED = "delivered"
    OPENED = "opened"
    CLICKED = "clicked"
    FAILED = "failed"
    """The vendor or the network could not deliver; another provider may still succeed."""
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    """The person reported the message as spam: nothing more is sent to the address."""
    UNSUBSCRIBED = "unsubscribed"


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint at which one kind of vendor reports back."""

    path: str
    name: str
    summary: str
    max_bytes: int
    proof: str
    """The option that holds what a callback is proved with; without a value the endpoint does not exist."""
    media_types: tuple[str, ...] = ("application/json",)
    """The allowed values of `Content-Type`."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One report of a vendor about one message."""

    provider: str
    kind: ReceiptKind
    provider_message_id: str | None = None
    """The vendor's id of the message, as in `Sent.message_id`."""
    idempotency_key: str | None = None
    """Our `<notification_id>/<route_id>`, if the vendor returns it."""
    event_id: str | None = None
    """The vendor's id of this report, by which a repeat is recognised."""
    address: str | None = None
    occurred_at_ms: int | None = None
    classification: str | None = None
    reason: str | None = None
    recipient_gone: bool = False
    """The vendor reports the address as dead."""


class ReceiptRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide what a failed delivery leads to."""

    chains: dict[str, tuple[str, ...]]
    """The providers of each channel, in the order of failover."""
    lanes: dict[int, int] = {}
    """For each lane without workers, the lane in which a reopened route waits."""
    bounces_before_silence: int = 2
    """The number of hard bounces after which an address is suppressed."""
    suppressions: SuppressionTerms = SuppressionTerms()
    policies: PolicyTable | None = None
    """The retry policies; None asks the next provider after every failure."""

    def is_final(self, route: "ChangingRoute", classification: str | None) -> bool:
        """Whether the route's policy asks no other provider after a failure of this class."""
        return self.policies is not None and classification in self.policies.get(route.policy).no_failover_for


class SkippedByGoal(msgspec.Struct, frozen=True):
    """A route of a chain that is not tried any more."""

    notification_id: str
    route_id: str
    channel: str
    because: str


class OverdueReceipt(msgspec.Struct, frozen=True):
    """A message whose delivery report did not come in time."""

    notification_id: str
    route_id: str
    channel: str
    provider: str
    provider_message_id: str | None
    sent: bool
    """It is still sent and not delivered."""


class TakenReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a receipt did."""

    receipt: Receipt
    effect: str
    """noted, failed_over, retried, buried, ignored, waiting, or repeated if the same receipt had come before."""
    notification_id: str | None = None
    route_id: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    suppression: Suppression | None = None
    """The suppression that the receipt caused."""
    reached: tuple[SkippedByGoal, ...] = ()
    """The routes that are skipped because the receipt reached the goal of their chain."""


class CallbackReading(msgspec.Struct, frozen=True):
    """The receipts in a callback, and the reply that the vendor expects."""

    receipts: tuple[Receipt, ...] = ()
    unread: tuple[str, ...] = ()
    """The errors of single reports that could not be read; the others count."""
    answer: dict[str, Any] | None = None
    """The body of the reply to a vendor's handshake."""


NO_RECEIPT = "no_receipt"
"""The cause of a failover because no delivery report came in time."""
COMPLAINT = "the recipient called it spam"
_OPEN = frozenset({Status.PENDING, Status.FAILED})
_PROGRESS = (
    ReceiptKind.QUEUED,
    ReceiptKind.SENT,
    ReceiptKind.DELIVERED,
    ReceiptKind.OPENED,
    ReceiptKind.CLICKED,
)
_RANKS: dict[str | None, int] = {kind: rank for rank, kind in enumerate(_PROGRESS, 1)}
# A complaint is final: a later open does not change it.
_RANKS[ReceiptKind.COMPLAINED] = len(_PROGRESS) + 1


class Effect(StrEnum):
    """What a receipt did."""

    NOTED = "noted"
    FAILED_OVER = "failed_over"
    RETRIED = "retried"
    BURIED = "buried"
    IGNORED = "ignored"
    """The receipt is about a superseded message, a finished route, or a message that Carillon did not send."""
    WAITING = "waiting"
    """The message is not settled yet: the vendor was faster than our settlement."""
    REPEATED = "repeated"


class ChangingRoute(msgspec.Struct, kw_only=True):
    """A route while receipts change it; the fields below the blank line are only written."""

    notification_id: str
    route_id: str
    channel: str
    lane: int
    policy: str
    provider: str
    provider_message_id: str | None
    status: Status
    attempt_count: int
    max_attempts: int
    provider_since: int
    held: bool
    """A worker holds a claim on the route, so the id of the message that it sends is not known yet."""
    receipt: str | None
    delivered: bool
    address: str | None
    tenant_id: str | None
    user_id: str | None
    copies: tuple[str, ...] = ()
    """The addresses in cc and bcc of an email."""
    goal: str | None = None
    """What its chain is tried for."""

    changed: bool = False
    finished: bool = False
    reopened: bool = False
    buried: bool = False
    opened: bool = False
    clicked: bool = False
    error_classification: str | None = None
    error_message: str | None = None


def about_copy(receipt: Receipt, route: ChangingRoute) -> bool:
    """Whether the report is about a copy of an email, which has an address of its own; vendors change its case."""
    theirs = (receipt.address or "").strip().casefold()
    return theirs != (route.address or "").casefold() and theirs in {copy.casefold() for copy in route.copies}


def apply_receipt(receipt: Receipt, route: ChangingRoute, rules: ReceiptRules, *, known: bool, strikes: int) -> Effect:
    """Apply a receipt to its route.

    `known` says that this route has sent the message that the receipt names; `strikes` is the number of reports that
    the address is dead, this one included.
    """
    if route.held and not known and receipt.kind not in (ReceiptKind.COMPLAINED, ReceiptKind.UNSUBSCRIBED):
        return Effect.WAITING
    match receipt.kind:
        case ReceiptKind.QUEUED | ReceiptKind.SENT:
            return _on_its_way(receipt, route, known=known)
        case ReceiptKind.DELIVERED | ReceiptKind.OPENED | ReceiptKind.CLICKED:
            return _arrived(receipt, route)
        case ReceiptKind.FAILED | ReceiptKind.BOUNCED:
            return _failed(receipt, route, rules, known=known, strikes=strikes)
        case ReceiptKind.COMPLAINED:
            return _complained(route)
        case ReceiptKind.UNSUBSCRIBED:
            return Effect.NOTED
        case _:
            assert_never(receipt.kind)


def suppression_for(receipt: Receipt, route: ChangingRoute, rules: ReceiptRules, strikes: int) -> Suppression | None:
    """The suppression that the receipt causes, if any."""
    address = route.address or receipt.address
    if address is None:
        return None
    match receipt.kind:
        case ReceiptKind.COMPLAINED:
            kind, reason, source = SuppressionKind.COMPLAINED, "complained", "receipt"
        case ReceiptKind.UNSUBSCRIBED:
            kind, reason, source = SuppressionKind.UNSUBSCRIBED, "unsubscribed", "unsubscribe"
        case _ if _is_dead(receipt, route, rules, strikes):
            kind = kind_of_refusal(route.channel, receipt.classification)
            reason, source = receipt.classification or "recipient_gone", "receipt"
        case _:
            return None
    return rules.suppressions.caused(
        kind, channel=route.channel, address=address, tenant_id=route.tenant_id, reason=reason, source=source
    )


def _is_dead(receipt: Receipt, route: ChangingRoute, rules: ReceiptRules, strikes: int) -> bool:
    """Whether to suppress the address: not for one bounce, nor for one report while another provider is left."""
    if not receipt.recipient_gone or rules.is_final(route, receipt.classification):
        return receipt.recipient_gone
    doubtful = receipt.kind is ReceiptKind.BOUNCED or _following(rules, route) is not None
    return strikes >= rules.bounces_before_silence if doubtful else True


def _on_its_way(receipt: Receipt, route: ChangingRoute, *, known: bool) -> Effect:
    if route.status not in _OPEN | {Status.PUBLISHED} or not _is_present(receipt, route, known=known):
        return Effect.IGNORED
    _advance(receipt, route)
    return Effect.NOTED


def _arrived(receipt: Receipt, route: ChangingRoute) -> Effect:
    """The person has received a message of this route: nothing more is sent."""
    if route.status is Status.SKIPPED:
        return Effect.IGNORED
    if route.status in _OPEN:
        route.status, route.held = Status.PUBLISHED, False
        route.finished, route.reopened = True, False
        route.provider = receipt.provider
        route.provider_message_id = receipt.provider_message_id or route.provider_message_id
    route.changed = route.delivered = True
    route.opened |= receipt.kind in (ReceiptKind.OPENED, ReceiptKind.CLICKED)
    route.clicked |= receipt.kind is ReceiptKind.CLICKED
    _advance(receipt, route)
    return Effect.NOTED


def _failed(receipt: Receipt, route: ChangingRoute, rules: ReceiptRules, *, known: bool, strikes: int) -> Effect:
    if route.status in _OPEN and receipt.provider == route.provider:
        return Effect.NOTED
    over = route.status is not Status.PUBLISHED or route.delivered
    if over or not _is_present(receipt, route, known=known):
        return Effect.IGNORED
    error = receipt.reason or receipt.classification or str(receipt.kind)
    classification = receipt.classification or str(receipt.kind)
    if _is_dead(receipt, route, rules, strikes) or rules.is_final(route, receipt.classification):
        return _bury(route, classification, error)
    provider = _following(rules, route)
    if provider is not None:
        # The next provider gets an attempt even if the previous one used up the budget.
        route.max_attempts = max(route.max_attempts, route.attempt_count + 1)
        _reopen(route, provider, classification, error, rules)
        return Effect.FAILED_OVER
    if route.attempt_count < route.max_attempts and route.provider in rules.chains.get(route.channel, ()):
        _reopen(route, route.provider, classification, error, rules)
        return Effect.RETRIED
    return _bury(route, classification, exhausted_text(route.attempt_count, error))


def _complained(route: ChangingRoute) -> Effect:
    if route.status not in _OPEN | {Status.PUBLISHED}:
        return Effect.IGNORED
    route.receipt = ReceiptKind.COMPLAINED
    return _bury(route, str(ReceiptKind.COMPLAINED), COMPLAINT)


def _is_present(receipt: Receipt, route: ChangingRoute, *, known: bool) -> bool:
    """Whether the receipt is about the route's current message, and not about an earlier one."""
    if receipt.provider != route.provider:
        return False
    named = receipt.provider_message_id
    if named is None or route.provider_message_id in (None, named):
        return True
    # The receipt names our notification, and no route has the vendor's message id.
    return not known and (receipt.idempotency_key or "").endswith("/")


def _following(rules: ReceiptRules, route: ChangingRoute) -> str | None:
    chain: Sequence[str] = rules.chains.get(route.channel, ())
    if route.provider not in chain:
        # The settings no longer name the provider; the first of the chain takes over.
        return chain[0] if chain else None
    return following(chain, route.provider)


def _advance(receipt: Receipt, route: ChangingRoute) -> None:
    if _RANKS[receipt.kind] > _RANKS.get(route.receipt, 0):
        route.receipt, route.changed = receipt.kind, True


def _reopen(route: ChangingRoute, provider: str, classification: str, error: str, rules: ReceiptRules) -> None:
    route.status, route.provider, route.provider_since = Status.FAILED, provider, route.attempt_count
    route.lane = rules.lanes.get(route.lane, route.lane)
    # The next message has no receipts yet.
    route.receipt = None
    route.changed, route.reopened, route.finished = True, True, False
    route.error_classification, route.error_message = classification, error


def _bury(route: ChangingRoute, classification: str, error: str) -> Effect:
    route.status, route.held = Status.DEAD_LETTER, False
    route.changed, route.buried, route.reopened = True, True, False
    route.error_classification, route.error_message = classification, error
    return Effect.BURIED
