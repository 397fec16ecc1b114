"""An accepted intent, its routes, and the answers to enrolling it."""

from enum import StrEnum
from typing import Any

import msgspec


class Status(StrEnum):
    """The life of a route; published, dead_letter and skipped are terminal."""

    PENDING = "pending"
    FAILED = "failed"
    """An attempt failed and another one is due."""
    PUBLISHED = "published"
    DEAD_LETTER = "dead_letter"
    SKIPPED = "skipped"


TERMINAL = frozenset({Status.PUBLISHED, Status.DEAD_LETTER, Status.SKIPPED})


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content for one channel, rendered."""

    text: str
    subject: str | None = None
    """An email's subject, a push notification's title."""
    html: str | None = None


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The unrendered content for one channel in one locale."""

    code: str
    channel: str
    locale: str
    text: str
    subject: str | None = None
    html: str | None = None
    version: int = 1
    default_variables: dict[str, Any] = {}
    """Values for variables a request leaves out."""
    template_id: str | None = None
    """Only a stored one has an id."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `records`."""

    notification_id: str
    notification_type: str
    producer: str
    audience_kind: str
    payload_json: str
    request_fingerprint: str
    priority: int
    origin: str = "system"
    tenant_id: str | None = None
    user_id: str | None = None
    recipient_user_ids: list[str] | None = None
    idempotency_key: str | None = None
    idempotency_ttl_seconds: float | None = None
    request_id: str | None = None
    trace_id: str | None = None
    metadata_json: str | None = None
    is_bulk: bool = False
    occurred_at_ms: int | None = None
    scheduled_for_ms: int | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `routes` as it is enrolled."""

    route_id: str
    channel: str
    recipient_ref: str
    lane: int
    provider: str
    policy: str
    max_attempts: int
    status: Status = Status.PENDING
    """PENDING, or SKIPPED with the reason in `skipped_because`."""
    skipped_because: str | None = None
    address: str | None = None
    resolved_locale: str | None = None
    message_json: str | None = None


class Enrolment(msgspec.Struct, frozen=True):
    """A notification and its routes, to be written down together."""

    notification: Notification
    routes: tuple[Route, ...]


def is_due_now(enrolment: Enrolment, route: Route) -> bool:
    """Whether the route could be claimed as soon as it is written down."""
    return route.status is Status.PENDING and enrolment.notification.scheduled_for_ms is None


class Accepted(msgspec.Struct, frozen=True):
    """Written down now."""

    notification_id: str


class Duplicate(msgspec.Struct, frozen=True):
    """Written down before, with the same content."""

    notification_id: str
    lane: int


class Conflict(msgspec.Struct, frozen=True):
    """The key was used before for something else; nothing was written."""

    notification_id: str
    expired: bool = False
    """The key's time was over; its record, still there, protects it nevertheless."""


Enrolled = Accepted | Duplicate | Conflict


class Acceptance(msgspec.Struct, frozen=True):
    """What a door is told once the ledger has it; `replayed` says that it had it before."""

    notification_id: str
    queue_name: str
    replayed: bool = False


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the ledger knows of one notification; rows as dictionaries by column name, times as Unix ms."""

    notification: dict[str, Any]
    routes: list[dict[str, Any]]
    attempts: list[dict[str, Any]]
