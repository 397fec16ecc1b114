"""The messages of a Kafka topic over HTTP: one per request, answered after the ledger's commit."""

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.content.wishes import SendWishes
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance
from carillon.domain.ports import Acceptor
from carillon.doors.http.wire import SkippedView, idempotency_key, skipped_routes
from carillon.web import SERVICES, Answer, Endpoint, Header, Reply, Request

PATH = "/notifications"
_KEY = Header("Idempotency-Key", "Recognises a repeated message that has no event_id.")
_REPLAYED = Header("Idempotent-Replayed", "`true` when the notification had been accepted before.")
_EXAMPLE = {
    "event_id": "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11",
    "event_type": "job.new",
    "user_id": "user-1",
    "event_timestamp": "2026-11-16T12:00:00Z",
    "payload": {"title": "Bell founder wanted"},
}
Word = Annotated[str, Meta(min_length=1, max_length=255)]

ReadEvent = Callable[[object, str | None], Intent]
"""Decodes a message into an intent; the second argument is the key of a message without an event id."""


class EventMetadata(msgspec.Struct, kw_only=True):
    """Where the message comes from; further names are kept."""

    source_service: str | None = None
    trace_id: str | None = None


class EventBody(SendWishes, rename=None, kw_only=True):
    """One message, as producers write it to the topic; names with capitals may be written with underscores too."""

    event_type: Word
    user_id: Word
    event_id: Annotated[str, Meta(max_length=255, description="The same id is accepted once.")] | None = None
    priority: (
        Annotated[Literal["HIGH", "MEDIUM", "LOW"], Meta(description="By the event type where missing.")] | None
    ) = None
    event_timestamp: dt.datetime | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    metadata: EventMetadata | None = None


class EventAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted: the notification is written down."""

    notification_id: str
    priority: str
    status: Literal["not_pushed", "skipped"] = "not_pushed"
    skipped: list[SkippedView] | UnsetType = UNSET
    """Only where an address is suppressed."""


def endpoints(acceptor: Acceptor, read: ReadEvent) -> list[Endpoint]:
    """Where messages are posted."""

    async def take(request: Request) -> Reply:
        key = idempotency_key(request.header(b"idempotency-key"), None)
        intent = read(request.value(), key)
        tenant = request.reach.tenant_id
        intent = msgspec.structs.replace(
            intent,
            tenant_id=tenant,
            sent_by=request.caller.service,
            producer=f"{tenant}/{intent.producer}" if tenant else intent.producer,
            request_id=request.correlation_id,
            trace_id=intent.trace_id or request.trace_id,
        )
        accepted = await acceptor.accept(intent)
        return Reply(202, _answer(accepted), {"Idempotent-Replayed": "true"} if accepted.replayed else {})

    accepted = Answer(status=202, description="Written down.", kind=EventAnswer, headers=(_REPLAYED,))
    return [
        Endpoint(
            method="POST",
            path=PATH,
            call=take,
            name="postEvent",
            summary="Notify one person",
            description="Takes the message of the Kafka topic; answers once it is written down.",
            body=EventBody,
            body_examples={"job": _EXAMPLE},
            headers=(_KEY,),
            # People have tokens here to read their own stream, not to write into those of others.
            about=SERVICES,
            answers=(accepted,),
            problems=("UNKNOWN_CATEGORY", "IDEMPOTENCY_CONFLICT"),
        )
    ]


def _answer(accepted: Acceptance) -> EventAnswer:
    return EventAnswer(
        notification_id=accepted.notification_id,
        priority=accepted.queue_name,
        status="skipped" if accepted.skipped else "not_pushed",
        skipped=skipped_routes(accepted.suppressed, accepted.gated) or UNSET,
    )
