"""Notifications and their routes as they are enrolled, and the ledger's answers."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from carillon.domain.content.mail import MailParts
from carillon.domain.content.parts import InAppParts, PushParts
from carillon.domain.digests import DigestEntry, ThrottleEntry
from carillon.domain.errors import Place
from carillon.domain.suppressions import SuppressedRoute


class Status(StrEnum):
    """The status of a route; published, dead_letter and skipped are terminal."""

    PENDING = "pending"
    FAILED = "failed"
    """An attempt failed and another one is due."""
    PUBLISHED = "published"
    DEAD_LETTER = "dead_letter"
    SKIPPED = "skipped"


TERMINAL = frozenset({Status.PUBLISHED, Status.DEAD_LETTER, Status.SKIPPED})


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rendered content for one channel."""

    text: str
    subject: str | None = None
    """The subject of an email or the title of a push notification."""
    html: str | None = None
    mail: MailParts | None = None
    """What an email carries beside its text."""
    push: PushParts | None = None
    in_app: InAppParts | None = None


class ComposedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a subject, a text or an HTML as the jinja engine gets it, with the places of its tags."""

    source: str
    name: str = ""
    """What the engine calls the source: the same for the same source."""
    starts: tuple[int, ...] = ()
    """Where each tag begins in `source`."""
    places: tuple[Place, ...] = ()
    """Where a template says each tag."""
    tags: tuple[str, ...] = ()
    """Each tag as its template says it."""
    grows: bool = False
    """It can make values that are longer than the data."""
    reads: frozenset[str] = frozenset()
    """How it reads data, where it does more than name fields: `methods`, `items` and `pairs` of the guard."""
    links: bool = False
    """A value of the data can be a part of a link."""
    escapes: bool = False
    tidies: bool = False
    """It is made from HTML: the empty lines that its statements leave are taken away."""


class Composition(msgspec.Struct, frozen=True, kw_only=True):
    """A jinja template joined with its layout, partials, translations and brand."""

    text: ComposedPart
    subject: ComposedPart | None = None
    html: ComposedPart | None = None
    fields: dict[str, ComposedPart] = {}
    """The texts of the template's fields that have tags, by what the template says."""
    messages: tuple[Any, ...] = ()
    """The catalogues, in the order in which a key is looked up."""
    brand: dict[str, Any] = {}
    """The values of `brand` for the tenant."""
    brands: dict[str, dict[str, Any]] = {}
    """All brands, for data that name one."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The content for one channel in one locale, before rendering."""

    code: str
    channel: str
    locale: str
    text: str
    subject: str | None = None
    html: str | None = None
    version: int = 1
    default_variables: dict[str, Any] = {}
    """Values of variables that a request does not set."""
    template_id: str | None = None
    """None for a template from a file; only a stored template has an id."""
    category: str | None = None
    """The category of messages that name none."""
    engine: Literal["simple", "jinja"] = "simple"
    kind: Literal["message", "layout", "partial", "catalogue"] = "message"
    mjml: str | None = None
    """The source of the HTML part, where it is written in MJML."""
    layout: str | None = None
    """The key of the layout around this template."""
    sample: dict[str, Any] = {}
    """Values for previews."""
    fields: dict[str, Any] = {}
    """What a push or a message of the inbox carries beside its texts, with tags: image, links, actions and so on."""
    composition: Composition | None = None
    """Set for a jinja template that can be rendered."""
    fault: str | None = None
    """Why a jinja template cannot be rendered, such as a layout that is gone."""
    fault_at: Place | None = None
    """Where it says so: in itself, its layout or a partial."""


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
    sent_by: str | None = None
    recipient_user_ids: list[str] | None = None
    idempotency_key: str | None = None
    idempotency_ttl_seconds: float | None = None
    request_id: str | None = None
    trace_id: str | None = None
    metadata_json: str | None = None
    is_bulk: bool = False
    occurred_at_ms: int | None = None
    scheduled_for_ms: int | None = None
    expires_at_ms: int | None = None
    """No provider is called from this moment on."""
    category: str | None = None


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
    skipped_by: str | None = None
    """The gate that skips it; None if the person cannot be reached."""
    address: str | None = None
    resolved_locale: str | None = None
    message_json: str | None = None
    group: int = 0
    """The number of its group, negative if the group has a cap; see `Groups`."""
    goal: str | None = None
    """What its chain is tried for; None outside of chains."""
    step: int | None = None
    """Its place in the chain of its person, from 0; None outside of chains, and once it is skipped at acceptance."""
    due_ms: int | None = None
    """When its time comes, if later than its notification's: it waits for the channels before it."""
    not_before_ms: int | None = None
    """The end of the quiet hours that hold it; no earlier failure lets it go before."""


EVERYBODY = "all:"
"""The beginning of an audience of several people, before a digest of who they are."""


class Collapse(msgspec.Struct, frozen=True):
    """The key under which a notification replaces one that still waits for the same recipients."""

    key: str
    audience: str
    """The recipient, or a digest of all of them."""


class Enrolment(msgspec.Struct, frozen=True):
    """A notification and its routes, which the ledger stores in one commit."""

    notification: Notification
    routes: tuple[Route, ...]
    collapse: Collapse | None = None
    digests: tuple[DigestEntry, ...] = ()
    """The digest of each person in which the notification is told; then its routes are skipped."""
    throttles: tuple[ThrottleEntry, ...] = ()
    """The throttle of each person that the notification counts against."""


def is_due_now(enrolment: Enrolment, route: Route) -> bool:
    """Whether a worker could claim the route as soon as it is stored."""
    waits = enrolment.notification.scheduled_for_ms is not None or route.due_ms is not None
    return route.status is Status.PENDING and not waits


def route_due_ms(enrolment: Enrolment, route: Route) -> int | None:
    """When the route is due, None for now: what expires before its time is due when it expires, to be skipped."""
    planned, expires = planned_ms(enrolment, route), enrolment.notification.expires_at_ms
    return planned if planned is None or expires is None else min(planned, expires)


def planned_ms(enrolment: Enrolment, route: Route) -> int | None:
    """When its time comes, None for now: its own in a chain, else that of the notification; expiry cuts neither."""
    return enrolment.notification.scheduled_for_ms if route.due_ms is None else route.due_ms


class GatedRoute(msgspec.Struct, frozen=True, gc=False):
    """A route that a gate has skipped at the acceptance, suppressions aside."""

    route_id: str
    channel: str
    gate: str
    because: str


def gated_routes(enrolment: Enrolment) -> tuple[GatedRoute, ...]:
    """The routes of a plan that a gate skips."""
    return tuple(
        GatedRoute(route.route_id, route.channel, route.skipped_by, route.skipped_because or route.skipped_by)
        for route in enrolment.routes
        if route.skipped_by is not None
    )


class Accepted(msgspec.Struct, frozen=True):
    """The ledger has stored the notification."""

    notification_id: str
    suppressed: tuple[SuppressedRoute, ...] = ()
    """The routes that are skipped because their address is suppressed."""
    gated: tuple[GatedRoute, ...] = ()
    """The routes that a throttle has skipped."""
    replaced: tuple[str, ...] = ()
    """The notifications in whose place it stands, because they have the same collapse key."""


class Duplicate(msgspec.Struct, frozen=True):
    """The ledger had stored the notification before, with the same content."""

    notification_id: str
    lane: int
    suppressed: tuple[SuppressedRoute, ...] = ()
    gated: tuple[GatedRoute, ...] = ()
    """The routes that another gate had skipped then."""


class Conflict(msgspec.Struct, frozen=True):
    """The key was used before with other content; nothing was written."""

    notification_id: str
    expired: bool = False
    """The key had expired, but its record still exists and still protects the key."""


Enrolled = Accepted | Duplicate | Conflict


class Acceptance(msgspec.Struct, frozen=True):
    """The answer to a door once the notification is stored; `replayed` if it had been stored before."""

    notification_id: str
    queue_name: str
    replayed: bool = False
    suppressed: tuple[SuppressedRoute, ...] = ()
    """The routes that are skipped because their address is suppressed."""
    skipped: bool = False
    """Nothing is queued: a suppression or another gate skips every route."""
    gated: tuple[GatedRoute, ...] = ()
    """The routes that are skipped by another gate."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one notification, as dictionaries by column name; times are Unix milliseconds."""

    notification: dict[str, Any]
    routes: list[dict[str, Any]]
    attempts: list[dict[str, Any]]
