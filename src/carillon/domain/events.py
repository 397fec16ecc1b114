"""The events that the program reports; logs, metrics and tests observe them."""

import msgspec

from carillon.domain.claims import Settled
from carillon.domain.gate_events import AddressSuppressed, RouteGated, RouteSuppressed
from carillon.domain.queue_events import (
    FailedTrimmed,
    MessageOverdue,
    MessageSwept,
    QueueDeep,
    QueueLooked,
    QueuePumped,
)


class WebhookCalled(msgspec.Struct, frozen=True, tag="webhook_called", kw_only=True):
    """One billing service called the other's webhook; `status` is None if it did not answer, `error` says why."""

    event_id: str | None
    immediate: bool
    """The best-effort call beside the queued one."""
    duration_ms: float
    status: int | None = None
    error: str | None = None


class IntentAccepted(msgspec.Struct, frozen=True, tag="intent_accepted", kw_only=True):
    """A notification is stored."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    routes: int
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


class IntentRepeated(msgspec.Struct, frozen=True, tag="intent_repeated", kw_only=True):
    """An intent repeated an idempotency key; `outcome` is duplicate or conflict."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    outcome: str
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


class IntentMalformed(msgspec.Struct, frozen=True, tag="intent_malformed", kw_only=True):
    """An input could not become a notification; the ledger keeps it for an operator."""

    stream_entry_id: str
    failure_code: str
    failure_message: str
    notification_type: str | None = None
    producer: str | None = None
    audience_kind: str | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    reservation_expired: bool = False
    """The key had expired, but its record still exists and still protects the key."""


class PersonSought(msgspec.Struct, frozen=True, tag="person_sought", kw_only=True):
    """The intake looked up one person in the directory; `result` is found, not_found or failed."""

    result: str
    duration_ms: float
    error: str | None = None


class DoorStopped(msgspec.Struct, frozen=True, tag="door_stopped", kw_only=True):
    """A door stopped before an entry that it may not skip, and tries it again later."""

    door: str
    stream_entry_id: str
    reason: str
    retry_in_seconds: float


class StreamTrimmed(msgspec.Struct, frozen=True, tag="stream_trimmed", kw_only=True):
    """A Redis stream was trimmed beyond the offset: unread entries are lost; `lost` is their number, if known."""

    stream: str
    offset: str
    first_entry_id: str | None = None
    lost: int | None = None


class PartStarted(msgspec.Struct, frozen=True, tag="part_started", kw_only=True):
    """A part of the process began its work."""

    part: str
    detail: str | None = None


class PartStopped(msgspec.Struct, frozen=True, tag="part_stopped", kw_only=True):
    """A part of the process ended its work."""

    part: str


class RequestServed(msgspec.Struct, frozen=True, tag="request_served", kw_only=True):
    """The listener answered a request."""

    method: str
    path: str
    status: int
    duration_ms: float


class TokenRefused(msgspec.Struct, frozen=True, tag="token_refused", kw_only=True):
    """The listener answered 401; `reason` says what is wrong with the token, which itself is never logged."""

    reason: str
    method: str
    path: str
    address: str


class NotificationStopped(msgspec.Struct, frozen=True, kw_only=True, tag="notification_stopped"):
    """What still waited of a notification is not sent: another one replaced it, or it was cancelled."""

    notification_id: str
    gate: str
    reason: str


class RouteAttempted(msgspec.Struct, frozen=True, tag="route_attempted", gc=False):
    """A worker called a provider and decided on its outcome."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    route_id: str
    channel: str
    provider: str
    attempt: int
    outcome: str
    verdict: str
    duration_ms: float
    settled: Settled
    failed_over: bool = False
    """The worker called another provider than the first of the route's chain."""
    classification: str | None = None
    error: str | None = None
    delay_seconds: float | None = None
    next_provider: str | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    user_id: str | None = None


class LeaseLost(msgspec.Struct, frozen=True, tag="lease_lost", kw_only=True):
    """A worker could not renew a lease, because another worker holds the route now."""

    notification_id: str
    route_id: str
    provider: str


class LeasesReset(msgspec.Struct, frozen=True, tag="leases_reset", kw_only=True):
    """The cleanup reset leases of dead workers; `failed` of their routes became dead letters."""

    count: int
    failed: int


class BreakerChanged(msgspec.Struct, frozen=True, tag="breaker_changed", kw_only=True):
    """A breaker went from one state to another, as seen by this process; `endpoint` if it is one endpoint's."""

    provider: str
    before: str
    after: str
    endpoint: str | None = None


class EndpointDisabled(msgspec.Struct, frozen=True, tag="endpoint_disabled", kw_only=True):
    """An endpoint failed for days without one success: from now on its routes become dead letters."""

    provider: str
    endpoint: str
    failing_seconds: float
    failures: int


class EndpointEnabled(msgspec.Struct, frozen=True, tag="endpoint_enabled", kw_only=True):
    """A disabled endpoint works again: a probe succeeded, or an operator enabled it."""

    provider: str
    endpoint: str
    by: str


class CallsPaused(msgspec.Struct, frozen=True, tag="calls_paused", kw_only=True):
    """This process has learnt that an operator keeps calls back; what is for them waits."""

    what: str
    by: str
    reason: str


class CallsResumed(msgspec.Struct, frozen=True, tag="calls_resumed", kw_only=True):
    """This process has learnt that a pause is over."""

    what: str


class TargetSlowed(msgspec.Struct, frozen=True, tag="target_slowed", kw_only=True):
    """A provider or one of its endpoints answered that calls come too fast: the fleet slows down."""

    provider: str
    endpoint: str | None
    pause_seconds: float
    """No call starts for so long."""
    per_second: float
    """Then calls start at this rate."""


class Trouble(msgspec.Struct, frozen=True, tag="trouble", kw_only=True):
    """A loop of the program failed and tries again; `where` names the loop."""

    where: str
    error: str
    retry_in_seconds: float | None = None


class Pruned(msgspec.Struct, frozen=True, tag="pruned", kw_only=True):
    """Retention deleted old rows."""

    records: int = 0
    malformed_intents: int = 0
    audit_rows: int = 0


class HistoryKept(msgspec.Struct, frozen=True, tag="history_kept", kw_only=True):
    """The copier wrote ended routes to the archive; `behind_seconds` is the age of the newest one."""

    endings: int
    behind_seconds: float


class Rehomed(msgspec.Struct, frozen=True, tag="rehomed", kw_only=True):
    """Waiting routes moved to another provider or lane, because the settings no longer have theirs."""

    channel: str
    routes: int
    provider: str


class TicketsLost(msgspec.Struct, frozen=True, tag="tickets_lost", kw_only=True):
    """Waiting routes stood in no queue, so that no worker would have found them; they were put back."""

    routes: int


class ReceiptTaken(msgspec.Struct, frozen=True, tag="receipt_taken", kw_only=True):
    """The ledger applied a receipt; `effect` says what the receipt did."""

    provider: str
    kind: str
    effect: str
    provider_message_id: str | None = None
    notification_id: str | None = None
    route_id: str | None = None
    classification: str | None = None
    reason: str | None = None


class CallbackRefused(msgspec.Struct, frozen=True, tag="callback_refused", kw_only=True):
    """Carillon refused a callback or one report in it, or could not read it."""

    vendor: str
    reason: str
    forged: bool = False


class ProviderProbed(msgspec.Struct, frozen=True, tag="provider_probed", kw_only=True):
    """A health probe called a provider whose breaker is open; `error` is None if the provider works."""

    provider: str
    error: str | None = None


class AlertTold(msgspec.Struct, frozen=True, tag="alert_told", kw_only=True):
    """A sink confirmed an alert about a dead letter."""

    alert_id: int
    notification_id: str
    channel: str
    sink: str


class AlertDelayed(msgspec.Struct, frozen=True, tag="alert_delayed", kw_only=True):
    """A sink did not confirm an alert yet; it is sent again later."""

    alert_id: int
    notification_id: str
    channel: str
    sink: str
    error: str
    retry_in_seconds: float


class MessageFinished(msgspec.Struct, frozen=True, tag="message_finished", kw_only=True):
    """This worker finished a queued message; `status` is sent, failed, or skipped if it had been sent before."""

    trace_id: str
    idempotency_key: str
    user_id: str
    template_code: str
    status: str
    attempts: int
    duration_ms: float


Event = (
    IntentAccepted
    | IntentRepeated
    | IntentMalformed
    | PersonSought
    | DoorStopped
    | StreamTrimmed
    | PartStarted
    | PartStopped
    | RequestServed
    | TokenRefused
    | RouteAttempted
    | RouteSuppressed
    | NotificationStopped
    | RouteGated
    | AddressSuppressed
    | LeaseLost
    | LeasesReset
    | BreakerChanged
    | EndpointDisabled
    | EndpointEnabled
    | CallsPaused
    | CallsResumed
    | TargetSlowed
    | Trouble
    | Pruned
    | HistoryKept
    | Rehomed
    | TicketsLost
    | ProviderProbed
    | ReceiptTaken
    | CallbackRefused
    | AlertTold
    | AlertDelayed
    | MessageFinished
    | QueuePumped
    | QueueLooked
    | QueueDeep
    | MessageSwept
    | MessageOverdue
    | FailedTrimmed
    | WebhookCalled
)


def event_word(event: Event) -> str:
    """The name of an event in logs and metrics."""
    return str(type(event).__struct_config__.tag)
