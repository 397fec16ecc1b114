"""What happens, as values: the one stream that logs, metrics and tests are fed from."""

import msgspec

from carillon.domain.claims import Settled
from carillon.domain.queue_events import (
    FailedTrimmed,
    MessageOverdue,
    MessageSwept,
    QueueDeep,
    QueueLooked,
    QueuePumped,
    WebhookCalled,
)


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
    """A request was answered 401; `reason` is what is wrong with what it showed, which itself is told to nobody."""

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
    """A vendor's later word about a message did what it does; `effect` says what."""

    provider: str
    kind: str
    effect: str
    provider_message_id: str | None = None
    notification_id: str | None = None
    route_id: str | None = None
    classification: str | None = None
    reason: str | None = None


class CallbackRefused(msgspec.Struct, frozen=True, tag="callback_refused", kw_only=True):
    """A callback, or one report in it, was not believed or not understood."""

    vendor: str
    reason: str
    forged: bool = False


class ProviderProbed(msgspec.Struct, frozen=True, tag="provider_probed", kw_only=True):
    """A provider whose breaker is open was asked without a message; `error` is None when it answered as it should."""

    provider: str
    error: str | None = None


class AlertTold(msgspec.Struct, frozen=True, tag="alert_told", kw_only=True):
    """Somebody outside confirmed that they know of a notification that was given up."""

    alert_id: int
    notification_id: str
    channel: str
    sink: str


class AlertDelayed(msgspec.Struct, frozen=True, tag="alert_delayed", kw_only=True):
    """Somebody outside could not be told yet and will be told again."""

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
