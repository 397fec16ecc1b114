"""The JSON of the send endpoints, and how a request becomes an intent."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.addresses import reference, unfit
from carillon.domain.content.wishes import SendWishes, with_wishes
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Priority, Recipient, own_key
from carillon.domain.notifications import GatedRoute
from carillon.domain.suppressions import SuppressedRoute
from carillon.web import Reach
from carillon.web.problems import rfc3339_ms

_PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')

Channel = Literal["push", "sms", "email", "inApp", "webhook"]
Channels = Annotated[
    tuple[Channel, ...],
    Meta(
        max_length=5,
        description="Several channels: all at once, or with `until` and `after` one after the other.",
        examples=[["inApp", "push", "email"]],
    ),
]
TemplateKey = Annotated[str, Meta(pattern=r"^[a-z0-9._-]+\Z", min_length=1, max_length=200)]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9_-]{1,64}\Z",
        description="The part of your system that speaks.",
        examples=["auth", "orders", "ridesharing", "products", "system"],
    ),
]
Tenant = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]
UserId = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}\Z")]
Address = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x20\x7f]{1,2000}\Z",
        description="sms: E.164 number; email: address; push: device token; inApp: user id; webhook: URL.",
    ),
]
Locale = Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}\Z", examples=["en-US"])]
Correlation = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/+=@~-]{1,128}\Z")]
Key = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,255}\Z")]


class SendBody(SendWishes, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """One notification to be sent."""

    template_key: TemplateKey
    channel: Channel | None = None
    channels: Channels = ()
    priority: Literal["high", "normal", "low"] = "normal"
    synchronous: bool = False
    user_id: UserId | None = None
    tenant_id: Tenant | None = None
    recipient: Address | None = None
    service_origin: Origin = "system"
    data: dict[str, Any] | None = None
    variables: Annotated[dict[str, Any], Meta(description="Another name for data.")] | None = None
    is_bulk: bool = False
    locale: Locale | None = None
    metadata: dict[str, Any] | None = None
    correlation_id: Correlation | None = None


class BatchItem(SendBody, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """One notification of a batch."""

    idempotency_key: Key | None = None


class BatchBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Many notifications in one request; each is accepted or rejected on its own."""

    notifications: Annotated[list[BatchItem], Meta(min_length=1, max_length=500)]


class BatchEnvelope(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The same batch before its items are checked, so that a bad item does not reject the others."""

    notifications: Annotated[list[Any], Meta(min_length=1, max_length=500)]


class SkippedView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel that nothing is sent to."""

    route_id: str
    channel: str
    reason: str
    """The gate: suppressed, or category if the person does not want this category here."""
    suppression_id: int | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    """bounced, complained, unsubscribed, invalid or manual; only of a suppression."""
    until: str | UnsetType | None = UNSET
    """When the suppression ends; null is never."""
    because: str | UnsetType = UNSET
    """A sentence, where it is no suppression."""


def skipped_routes(suppressed: Iterable[SuppressedRoute], gated: Iterable[GatedRoute]) -> list[SkippedView]:
    """What an answer says about routes that a gate has skipped."""
    stopped = [
        SkippedView(route_id=route.route_id, channel=route.channel, reason=route.gate, because=route.because)
        for route in gated
    ]
    return stopped + [
        SkippedView(
            route_id=route.route_id,
            channel=route.channel,
            reason="suppressed",
            suppression_id=route.suppression.suppression_id,
            kind=route.suppression.kind,
            until=None if route.suppression.until_ms is None else rfc3339_ms(route.suppression.until_ms),
        )
        for route in suppressed
    ]


class SendAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Accepted: the notification is written down; `skipped` where nothing of it will be sent."""

    notification_id: str
    queue_name: str
    status: Literal["queued", "skipped"] = "queued"
    skipped: list[SkippedView] | UnsetType = UNSET
    """Only where a gate skips a route."""


class Delivered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Delivered while the caller waited; with strict receipts it is sent until the vendor reports that it arrived."""

    notification_id: str
    delivered_at: str | UnsetType = UNSET
    sent_at: str | UnsetType = UNSET
    """Only with status `sent`: when the provider accepted the message."""
    provider_message_id: str | None = None
    status: Literal["delivered", "sent"] = "delivered"


class ItemError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an item was not accepted."""

    code: str
    message: str
    field: str | None = None
    template: str | None = None
    """The template in which something is wrong, and where."""
    part: str | None = None
    line: int | None = None
    column: int | None = None


class ItemResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The result of one item."""

    index: int
    status: Literal["queued", "skipped", "rejected"]
    notification_id: str | None = None
    queue_name: str | None = None
    replayed: bool = False
    error: ItemError | None = None
    skipped: list[SkippedView] | UnsetType = UNSET
    """Only where a gate skips a route."""


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of every item, in the order of the request."""

    accepted: int
    rejected: int
    results: list[ItemResult]
    skipped: int = 0
    """Those of `accepted` that are written down and will not be sent, because a gate skips them."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of the request except its body."""

    reach: Reach
    """For whom the caller may send."""
    sent_by: str | None = None
    """The service that calls, if it is one."""
    correlation_id: str
    idempotency_key: str | None
    trace_id: str | None
    accept_language: str | None


def reach_named(body: SendBody) -> Reach:
    """For a door that trusts its producers: the tenant and user that the message names."""
    return Reach(tenant_id=body.tenant_id, user_id=body.user_id, bound=False)


def to_intent(body: SendBody, context: Context) -> Intent:
    """Check what the wire types cannot, and build the intent."""
    payload = _payload(body)
    tenant, user_id = context.reach.tenant_id, context.reach.user_id
    channels = _named(body)
    # Whose an address is that a caller gives without a person, the caller's preferences say: see decision 66.
    foreign = body.user_id is None and body.recipient is not None
    recipient = _recipient(channels, body.recipient, None if foreign else user_id)
    if context.reach.oneself is not None:
        recipient = _in_no_other_inbox(recipient, context.reach.oneself)
    intent = Intent(
        notification_type=body.template_key,
        producer=f"{tenant}/{body.service_origin}" if tenant else body.service_origin,
        recipients=(recipient,),
        channels=channels,
        payload=payload,
        content=_content(body, payload, user_id),
        origin=body.service_origin,
        idempotency_key=_scoped(context.idempotency_key, context.reach),
        tenant_id=tenant,
        sent_by=context.sent_by,
        asked_by=user_id if foreign else None,
        priority=_PRIORITIES[body.priority],
        bulk=body.is_bulk,
        locale=body.locale,
        accept_language=context.accept_language,
        request_id=body.correlation_id or context.correlation_id,
        trace_id=context.trace_id,
        metadata=body.metadata or {},
    )
    if context.reach.oneself is not None and (body.cc or body.bcc):
        raise BadIntent("FORBIDDEN", "a person writes to one address: copies need a service's key", field="cc")
    return with_wishes(intent, body)


def _scoped(key: str | None, reach: Reach) -> str | None:
    """A person's key is that person's: a repeat of another one's key hides and refuses nothing."""
    return key if key is None or reach.oneself is None else own_key(reach.oneself, key)


def _payload(body: SendBody) -> dict[str, Any]:
    if body.data is not None and body.variables is not None:
        raise BadIntent("VALIDATION_ERROR", "give data or variables, not both", field="variables")
    return (body.data if body.data is not None else body.variables) or {}


def _content(body: SendBody, payload: dict[str, Any], user_id: str | None) -> dict[str, Any]:
    # Defaults are left out, so that a request with an explicit default equals one without it.
    content: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(body, data=None, variables=None))
    for name in ("correlationId", "idempotencyKey"):
        content.pop(name, None)
    if payload:
        content["data"] = payload
    if user_id is not None:
        content["userId"] = user_id
    return content


def _named(body: SendBody) -> tuple[str, ...]:
    if body.channel is None:
        return tuple(dict.fromkeys(body.channels))
    if body.channels:
        raise BadIntent("VALIDATION_ERROR", "give channel or channels, not both", field="channels")
    return (body.channel,)


def _recipient(channels: tuple[str, ...], address: str | None, user_id: str | None) -> Recipient:
    if address is None and user_id is None:
        raise BadIntent("RECIPIENT_UNRESOLVED", "no recipient: give userId or recipient", field="recipient")
    # The inbox inside the application is kept per user, so its address is the user.
    addresses = {} if user_id is None else {"inApp": user_id}
    ref = f"user:{user_id}"
    if address is not None:
        # Of several channels the address is for those that it fits; the person's contacts have the others.
        fitting = [each for each in channels if len(channels) == 1 or each in _channels_for(address)]
        fitting = fitting or list(channels[:1]) or _channels_for(address)
        for each in fitting:
            check_address(each, address)
            addresses[each] = address
        if user_id is None and fitting == ["inApp"]:
            # The address of an inbox is a user's id, so the message is that user's.
            return Recipient(ref=f"user:{address}", user_id=address, addresses=addresses)
        ref = ref if user_id is not None else reference(fitting[0], address)
    return Recipient(ref=ref, user_id=user_id, addresses=addresses)


def _in_no_other_inbox(recipient: Recipient, oneself: str) -> Recipient:
    """A person reaches their own inbox only: its address is a user's id, which `userId` refuses in the same words."""
    if recipient.user_id not in {None, oneself}:
        raise BadIntent("FORBIDDEN", "this belongs to another person; use an administrator's token", field="recipient")
    if recipient.addresses.get("inApp", oneself) == oneself:
        return recipient
    addresses = {channel: address for channel, address in recipient.addresses.items() if channel != "inApp"}
    return msgspec.structs.replace(recipient, addresses=addresses)


def _channels_for(address: str) -> list[str]:
    """The channels that an address fits when none is named; the template decides between them."""
    if address.startswith(("http://", "https://")):
        return ["webhook"]
    if address.startswith("+"):
        return ["sms"]
    return ["email"] if "@" in address else ["push", "inApp"]


def check_address(channel: str, address: str) -> None:
    """Refuse an address to which the channel could never deliver."""
    wanted = unfit(channel, address)
    if wanted is not None:
        raise BadIntent("VALIDATION_ERROR", f"recipient must be {wanted} for {channel}", field="recipient")


def idempotency_key(standard: str | None, earlier: str | None) -> str | None:
    """The key of either header: a quoted structured-field string, or bare as most clients send it."""
    keys = {_plain_key(given) for given in (standard, earlier) if given is not None}
    if len(keys) > 1:
        raise BadIntent("VALIDATION_ERROR", "the two idempotency headers differ", field="Idempotency-Key")
    return next(iter(keys), None)


def _plain_key(given: str) -> str:
    text = given.strip()
    if text.startswith('"'):
        quoted = _QUOTED.fullmatch(text)
        text = "" if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(text):
        raise BadIntent(
            "VALIDATION_ERROR", "an idempotency key is 1 to 255 printable ASCII characters", field="Idempotency-Key"
        )
    return text
