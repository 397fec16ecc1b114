"""What happens, as values: the one stream that logs, metrics and tests are fed from."""

import msgspec

from carillon.domain.claims import Settled


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


class RouteAttempted(msgspec.Struct, frozen=True, tag="route_attempted", kw_only=True):
    """A provider was called and its outcome decided upon."""

    notification_id: str
    notification_type: str
    producer: str
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
    request_id: str | None = None
    trace_id: str | None = None


class LeaseLost(msgspec.Struct, frozen=True, tag="lease_lost", kw_only=True):
    """A lease could not be renewed because the route is another worker's by now."""

    notification_id: str
    route_id: str
    provider: str


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


class Rehomed(msgspec.Struct, frozen=True, tag="rehomed", kw_only=True):
    """Waiting routes were given another provider or lane, because the settings lost theirs."""

    channel: str
    routes: int
    provider: str


Event = IntentAccepted | IntentRepeated | RouteAttempted | LeaseLost | BreakerChanged | Trouble | Pruned | Rehomed


def event_word(event: Event) -> str:
    """The machine's word for an event."""
    return str(type(event).__struct_config__.tag)
