"""What a vendor's later word does to a route: one decision, the same for every engine."""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from carillon.domain.decide import exhausted_text, following
from carillon.domain.notifications import Status
from carillon.domain.receipts import AmendRules, Receipt, ReceiptKind
from carillon.domain.suppressions import Silence

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
# A complaint is the last word there is: an open that is told later does not make up for it.
_RANKS[ReceiptKind.COMPLAINED] = len(_PROGRESS) + 1


class Effect(StrEnum):
    """What a receipt did."""

    NOTED = "noted"
    FAILED_OVER = "failed_over"
    RETRIED = "retried"
    BURIED = "buried"
    IGNORED = "ignored"
    """It speaks of what is over: a superseded message, a finished route, a message nobody here ever sent."""
    WAITING = "waiting"
    """Its message is not known here yet: a vendor may be faster than our own settlement."""
    REPEATED = "repeated"


class Amending(msgspec.Struct, kw_only=True):
    """A route while receipts change it; what is below the blank line is only ever written."""

    notification_id: str
    route_id: str
    channel: str
    lane: int
    provider: str
    provider_message_id: str | None
    status: Status
    attempt_count: int
    max_attempts: int
    provider_since: int
    held: bool
    """A worker has it, so that the message it is sending is not known yet."""
    receipt: str | None
    delivered: bool
    address: str | None
    tenant_id: str | None
    user_id: str | None

    changed: bool = False
    finished: bool = False
    reopened: bool = False
    buried: bool = False
    opened: bool = False
    clicked: bool = False
    error_classification: str | None = None
    error_message: str | None = None


def amend(receipt: Receipt, route: Amending, rules: AmendRules, *, known: bool, strikes: int) -> Effect:
    """Let a receipt do to its route what it does.

    `known` says that the receipt names a message which this route is known to have sent; `strikes` counts the reports
    of this address being dead, this one included.
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


def silence(receipt: Receipt, route: Amending, rules: AmendRules, strikes: int) -> Silence | None:
    """The silence that a receipt asks for, if it does."""
    address = route.address or receipt.address
    if address is None:
        return None
    tenant = route.tenant_id or ""
    match receipt.kind:
        case ReceiptKind.COMPLAINED:
            return Silence(route.channel, address, tenant, "complained", "receipt", None)
        case ReceiptKind.UNSUBSCRIBED:
            return Silence(route.channel, address, tenant, "unsubscribed", "unsubscribe", None)
        case _ if _is_dead(receipt, route, rules, strikes):
            reason = receipt.classification or "recipient_gone"
            return Silence(route.channel, address, "", reason, "receipt", rules.silence_seconds)
        case _:
            return None


def _is_dead(receipt: Receipt, route: Amending, rules: AmendRules, strikes: int) -> bool:
    """One bounce, or one vendor's word while another is left to ask, is not the end of an address."""
    if not receipt.recipient_gone:
        return False
    doubtful = receipt.kind is ReceiptKind.BOUNCED or _following(rules, route) is not None
    return strikes >= rules.bounces_before_silence if doubtful else True


def _on_its_way(receipt: Receipt, route: Amending, *, known: bool) -> Effect:
    if route.status not in _OPEN | {Status.PUBLISHED} or not _is_present(receipt, route, known=known):
        return Effect.IGNORED
    _advance(receipt, route)
    return Effect.NOTED


def _arrived(receipt: Receipt, route: Amending) -> Effect:
    """Whichever of the route's messages it was, the person has it: nothing more is sent."""
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


def _failed(receipt: Receipt, route: Amending, rules: AmendRules, *, known: bool, strikes: int) -> Effect:
    if route.status in _OPEN and receipt.provider == route.provider:
        return Effect.NOTED
    over = route.status is not Status.PUBLISHED or route.delivered
    if over or not _is_present(receipt, route, known=known):
        return Effect.IGNORED
    error = receipt.reason or receipt.classification or str(receipt.kind)
    classification = receipt.classification or str(receipt.kind)
    if _is_dead(receipt, route, rules, strikes):
        return _bury(route, classification, error)
    provider = _following(rules, route)
    if provider is not None:
        # The next provider gets an attempt, even when the previous one used up the budget.
        route.max_attempts = max(route.max_attempts, route.attempt_count + 1)
        _reopen(route, provider, classification, error, rules)
        return Effect.FAILED_OVER
    if route.attempt_count < route.max_attempts and route.provider in rules.chains.get(route.channel, ()):
        _reopen(route, route.provider, classification, error, rules)
        return Effect.RETRIED
    return _bury(route, classification, exhausted_text(route.attempt_count, error))


def _complained(route: Amending) -> Effect:
    if route.status not in _OPEN | {Status.PUBLISHED}:
        return Effect.IGNORED
    route.receipt = ReceiptKind.COMPLAINED
    return _bury(route, str(ReceiptKind.COMPLAINED), COMPLAINT)


def _is_present(receipt: Receipt, route: Amending, *, known: bool) -> bool:
    """Whether it speaks of the message that the route's fate depends on, and not of one before."""
    if receipt.provider != route.provider:
        return False
    named = receipt.provider_message_id
    if named is None or route.provider_message_id in (None, named):
        return True
    # A vendor that knows the notification but not the route: its id for the message is nobody's then.
    return not known and (receipt.idempotency_key or "").endswith("/")


def _following(rules: AmendRules, route: Amending) -> str | None:
    chain: Sequence[str] = rules.chains.get(route.channel, ())
    if route.provider not in chain:
        # The settings no longer name the provider; the first of the chain takes over.
        return chain[0] if chain else None
    return following(chain, route.provider)


def _advance(receipt: Receipt, route: Amending) -> None:
    if _RANKS[receipt.kind] > _RANKS.get(route.receipt, 0):
        route.receipt, route.changed = receipt.kind, True


def _reopen(route: Amending, provider: str, classification: str, error: str, rules: AmendRules) -> None:
    route.status, route.provider, route.provider_since = Status.FAILED, provider, route.attempt_count
    route.lane = rules.lanes.get(route.lane, route.lane)
    # The next message has no receipts yet.
    route.receipt = None
    route.changed, route.reopened, route.finished = True, True, False
    route.error_classification, route.error_message = classification, error


def _bury(route: Amending, classification: str, error: str) -> Effect:
    route.status, route.held = Status.DEAD_LETTER, False
    route.changed, route.buried, route.reopened = True, True, False
    route.error_classification, route.error_message = classification, error
    return Effect.BURIED
