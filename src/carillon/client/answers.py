"""What Carillon answers to the clients, who ignore fields that they do not know."""

from typing import Any, Generic, Literal, TypeVar

import msgspec

Row = TypeVar("Row")
Status = Literal["queued", "sent", "delivered", "opened", "failed", "skipped"]


class SkippedRoute(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel that nothing is sent to."""

    route_id: str
    channel: str
    reason: str = "suppressed"
    """The gate: suppressed, or category if the person does not want this category here."""
    suppression_id: int | None = None
    kind: str | None = None
    """bounced, complained, unsubscribed, invalid or manual; only of a suppression."""
    until: str | None = None
    """When the suppression ends; None is never."""
    because: str | None = None
    """A sentence, where it is no suppression."""


class RouteSuppression(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The suppression that stopped a route, as it was then."""

    id: int
    kind: str
    until: str | None = None


class Accepted(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Carillon has stored the notification; `delivered`, or `sent` with strict receipts, if the caller waited.

    `skipped`: nothing of it will be sent, and the list says why and until when.
    """

    notification_id: str
    status: Literal["queued", "skipped", "delivered", "sent"]
    queue_name: str | None = None
    delivered_at: str | None = None
    sent_at: str | None = None
    provider_message_id: str | None = None
    replayed: bool = False
    """Carillon had accepted it before, under the same key."""
    skipped: list[SkippedRoute] = []
    """The routes that a gate has skipped."""


class Attempt(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One call of one provider, with its outcome."""

    number: int
    provider: str
    outcome: str
    started_at: str
    duration_ms: float
    verdict: str
    classification: str | None = None
    error: str | None = None
    next_try_in_ms: float | None = None


class Route(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel."""

    route_id: str
    channel: str
    status: Status
    provider: str
    attempt_count: int
    max_attempts: int
    recipient: str | None = None
    next_attempt_at: str | None = None
    waits_for: str | None = None
    """What a queued route waits for, in a sentence, where it is more than its next attempt."""
    last_error: str | None = None
    delivered_at: str | None = None
    opened_at: str | None = None
    clicked_at: str | None = None
    gate: str | None = None
    """What stopped a skipped route, such as `expired` or `category`; `quiet_hours` while it waits for their end."""
    goal: str | None = None
    """What the chain of its person is tried for: delivered, read or acknowledged; None outside of chains."""
    redriven_by: int | None = None
    """The action of the audit trail that redrove it last."""
    suppression: RouteSuppression | None = None
    """Why it was skipped or given up, if the address was suppressed."""
    attempts: list[Attempt] = []


class Notification(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One accepted notification and its state."""

    id: str
    template_key: str
    status: Status
    created_at: str
    routes: list[Route]
    priority: Literal["high", "normal", "low"] = "normal"
    tenant_id: str | None = None
    user_id: str | None = None
    category: str | None = None
    channel: str | None = None
    recipient: str | None = None
    locale: str | None = None
    attempt_count: int = 0
    last_error: str | None = None
    delivered_at: str | None = None
    failed_at: str | None = None
    opened_at: str | None = None
    scheduled_for: str | None = None
    expires_at: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether no further attempt follows."""
        return self.status not in ("queued", "sent")


class Page(msgspec.Struct, Generic[Row], frozen=True, rename="camel", kw_only=True):
    """One page, newest first."""

    items: list[Row]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None = None
    """Goes on after the last item; None at the end."""


class Refusal(msgspec.Struct, frozen=True):
    """Why an item of a batch was not accepted."""

    code: str
    message: str
    field: str | None = None
    template: str | None = None
    """The template in which something is wrong, and where."""
    part: str | None = None
    line: int | None = None
    column: int | None = None


class ItemAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The result of one item of a batch."""

    index: int
    status: Literal["queued", "skipped", "rejected"]
    notification_id: str | None = None
    replayed: bool = False
    error: Refusal | None = None
    skipped: list[SkippedRoute] = []
    """The routes that a gate has skipped."""


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all items, in their order."""

    results: list[ItemAnswer]


class Cancelled(msgspec.Struct, frozen=True):
    """The number of cancelled routes."""

    cancelled: int


class Reported(msgspec.Struct, frozen=True):
    """What a receipt did."""

    effect: str


class KeptPreferences(msgspec.Struct, frozen=True, rename="camel"):
    """The beginning of a person's preferences, as far as the client looks at them."""

    user_id: str


class PageLink(msgspec.Struct, frozen=True):
    """The address of a person's own page."""

    url: str


class SaidError(msgspec.Struct, frozen=True):
    """The error of a problem document, by which an answer of Carillon is known."""

    code: str


class SaidProblem(msgspec.Struct, frozen=True):
    """A problem document, as far as the client looks at it."""

    error: SaidError


class SuppressedAddress(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An address that nothing more is sent to; without a tenant it holds for every tenant."""

    id: int
    kind: str
    """bounced, complained, unsubscribed, invalid or manual."""
    channel: str
    address: str
    reason: str
    source: str
    created_at: str
    tenant_id: str | None = None
    expires_at: str | None = None


class LiftedCount(msgspec.Struct, frozen=True):
    """The number of suppressions that ended."""

    removed: int


class SkippedRedrive(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What matched, what was redriven, and what stays because a gate still holds it."""

    dry_run: bool
    matched: int
    redriven: int
    by_gate: dict[str, int]
    """How many of `matched` each gate had skipped."""
    held: dict[str, int]
    """How many of them each gate holds still; a dry run asks no throttle."""
    action_id: int | None = None
    """The entry of the audit trail."""


class ForeignPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that may still name an erased person, and is not Carillon's to empty."""

    place: str
    holds: str
    kept: str
    """When that ends."""


class ErasureReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What an erasure removed, by table; `unfinished` names what could not be reached or still runs."""

    finished: bool
    removed: dict[str, int]
    suppressions_kept: int
    """Kept as salted hashes, so that nothing is sent to the addresses again."""
    unfinished: list[str]
    outside: list[ForeignPlace]
