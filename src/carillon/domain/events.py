"""What happens, as values: logs, metrics and tests are fed from this one stream of events."""

import msgspec

from carillon.domain.claims import Settled


class QueuePumped(msgspec.Struct, frozen=True, tag="queue_pumped", kw_only=True):
    """Messages whose wait was over went back to their queue; `late_seconds` is how long over at most."""

    queue: str
    moved: int
    late_seconds: float


class MessageSwept(msgspec.Struct, frozen=True, tag="message_swept", kw_only=True):
    """A message whose worker died was taken out of the processing list; `verdict` is retry or bury."""

    queue: str
    message_id: str
    attempts: int
    verdict: str


class MessageOverdue(msgspec.Struct, frozen=True, tag="message_overdue", kw_only=True):
    """A locked message has been in a worker's hands for longer than its queue's visibility timeout."""

    queue: str
    message_id: str
    seconds: float


class FailedTrimmed(msgspec.Struct, frozen=True, tag="failed_trimmed", kw_only=True):
    """The oldest failed messages of a queue were thrown away, because there were too many."""

    queue: str
    messages: int


class QueueLooked(msgspec.Struct, frozen=True, tag="queue_looked", kw_only=True):
    """How much a queue holds and where; the depth monitor tells it again and again."""

    queue: str
    main: int
    processing: int
    delayed: int
    failed: int
    oldest_seconds: float | None = None


class QueueDeep(msgspec.Struct, frozen=True, tag="queue_deep", kw_only=True):
    """More messages wait in a queue than its operator wants to see."""

    queue: str
    depth: int
    limit: int


class WebhookCalled(msgspec.Struct, frozen=True, tag="webhook_called", kw_only=True):
    """One service notified the other of a payment; `status` is None without an answer, `error` says what failed."""

    event_id: str | None
    immediate: bool
    """The best-effort call beside the queued one."""
    duration_ms: float
    status: int | None = None
    error: str | None = None


class IntentAccepted(msgspec.Struct, frozen=True, tag="intent_accepted", kw_only=True):
    """A notification is written down."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    routes: int
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


class IntentRepeated(msgspec.Struct, frozen=True, tag="intent_repeated", kw_only=True):
    """An idempotency key came again; `outcome` is duplicate or conflict."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    outcome: str
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


class IntentMalformed(msgspec.Struct, frozen=True, tag="intent_malformed", kw_only=True):
    """What arrived could not become a notification and is kept for an operator."""

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
    """The key's time was over and its record is still there: it keeps protecting."""


class PersonSought(msgspec.Struct, frozen=True, tag="person_sought", kw_only=True):
    """The directory was asked about one person; `result` is found, not_found or failed."""

    result: str
    duration_ms: float
    error: str | None = None


class DoorStopped(msgspec.Struct, frozen=True, tag="door_stopped", kw_only=True):
    """A door stopped before an entry it may not pass, and tries it again later."""

    door: str
    stream_entry_id: str
    reason: str
    retry_in_seconds: float


class StreamTrimmed(msgspec.Struct, frozen=True, tag="stream_trimmed", kw_only=True):
    """Entries behind the offset are gone that nobody had read; `lost` is their number where it is known."""

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
    """A request was answered 401; `reason` says what is wrong with the token, which itself is never logged."""

    reason: str
    method: str
    path: str
    address: str


class RouteAttempted(msgspec.Struct, frozen=True, tag="route_attempted", gc=False):
    """A provider was called and its outcome decided upon."""

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
    """Another provider than the route's first was called."""
    classification: str | None = None
    error: str | None = None
    delay_seconds: float | None = None
    next_provider: str | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    user_id: str | None = None


class LeaseLost(msgspec.Struct, frozen=True, tag="lease_lost", kw_only=True):
    """A lease could not be renewed because the route is another worker's by now."""

    notification_id: str
    route_id: str
    provider: str


class LeasesReset(msgspec.Struct, frozen=True, tag="leases_reset", kw_only=True):
    """Leases of workers that died were taken back; `failed` of their routes had no attempt left and were given up."""

    count: int
    failed: int


class BreakerChanged(msgspec.Struct, frozen=True, tag="breaker_changed", kw_only=True):
    """A breaker went from one state to another, as seen by this process."""

    provider: str
    before: str
    after: str


class Trouble(msgspec.Struct, frozen=True, tag="trouble", kw_only=True):
    """Something of ours failed and is being tried again; `where` names the loop."""

    where: str
    error: str
    retry_in_seconds: float | None = None


class Pruned(msgspec.Struct, frozen=True, tag="pruned", kw_only=True):
    """Retention removed old rows."""

    records: int
    malformed_intents: int


class HistoryKept(msgspec.Struct, frozen=True, tag="history_kept", kw_only=True):
    """Endings were copied to where history is looked back upon; `behind_seconds` is the age of the newest of them."""

    endings: int
    behind_seconds: float


class Rehomed(msgspec.Struct, frozen=True, tag="rehomed", kw_only=True):
    """Waiting routes were given another provider or lane, because the settings lost theirs."""

    channel: str
    routes: int
    provider: str


class ReceiptTaken(msgspec.Struct, frozen=True, tag="receipt_taken", kw_only=True):
    """A receipt was applied; `effect` says what it did."""

    provider: str
    kind: str
    effect: str
    provider_message_id: str | None = None
    notification_id: str | None = None
    route_id: str | None = None
    classification: str | None = None
    reason: str | None = None


class CallbackRefused(msgspec.Struct, frozen=True, tag="callback_refused", kw_only=True):
    """A callback, or one report in it, was refused or could not be read."""

    vendor: str
    reason: str
    forged: bool = False


class ProviderProbed(msgspec.Struct, frozen=True, tag="provider_probed", kw_only=True):
    """A provider whose breaker is open was asked without a message; `error` is None when it answered as it should."""

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
    """A queued message came to its end here; `status` is sent, failed, or skipped when it had been sent before."""

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
    | LeaseLost
    | LeasesReset
    | BreakerChanged
    | Trouble
    | Pruned
    | HistoryKept
    | Rehomed
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
    """The machine's word for an event."""
    return str(type(event).__struct_config__.tag)
