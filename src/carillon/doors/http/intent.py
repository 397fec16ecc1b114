"""From the JSON of a send request to an intent."""

import re
from typing import Any

import msgspec

from carillon.domain.addresses import unfit
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.doors.http.wire import SendBody
from carillon.web import Reach

_PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
_KINDS = {"email": "email", "sms": "phone", "push": "token", "webhook": "url", "inApp": "inapp"}
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the request says beside its body."""

    reach: Reach
    """For whom the caller may send."""
    correlation_id: str
    idempotency_key: str | None
    trace_id: str | None
    accept_language: str | None


def reach_named(body: SendBody) -> Reach:
    """For a door that trusts its producers: whom the message names."""
    return Reach(tenant_id=body.tenant_id, user_id=body.user_id, bound=False)


def to_intent(body: SendBody, context: Context) -> Intent:
    """Check what the wire types cannot say and name things in our words."""
    payload = _payload(body)
    tenant, user_id = context.reach.tenant_id, context.reach.user_id
    recipient = _recipient(body.channel, body.recipient, user_id)
    return Intent(
        notification_type=body.template_key,
        producer=f"{tenant}/{body.service_origin}" if tenant else body.service_origin,
        recipients=(recipient,),
        channels=() if body.channel is None else (body.channel,),
        payload=payload,
        content=_content(body, payload, user_id),
        origin=body.service_origin,
        idempotency_key=context.idempotency_key,
        tenant_id=tenant,
        priority=_PRIORITIES[body.priority],
        bulk=body.is_bulk,
        locale=body.locale,
        accept_language=context.accept_language,
        request_id=body.correlation_id or context.correlation_id,
        trace_id=context.trace_id,
        metadata=body.metadata or {},
        scheduled_for_ms=_scheduled(body),
    )


def _payload(body: SendBody) -> dict[str, Any]:
    if body.data is not None and body.variables is not None:
        raise BadIntent("VALIDATION_ERROR", "give data or variables, not both", field="variables")
    return (body.data if body.data is not None else body.variables) or {}


def _content(body: SendBody, payload: dict[str, Any], user_id: str | None) -> dict[str, Any]:
    # Defaults are left out, so that saying a default and saying nothing are the same request.
    content: dict[str, Any] = msgspec.to_builtins(body)
    for name in ("correlationId", "idempotencyKey", "variables", "data"):
        content.pop(name, None)
    if payload:
        content["data"] = payload
    if user_id is not None:
        content["userId"] = user_id
    return content


def _scheduled(body: SendBody) -> int | None:
    if body.scheduled_for is None:
        return None
    unix_ms = round(body.scheduled_for.timestamp() * 1000)
    if unix_ms < 0:
        raise BadIntent("VALIDATION_ERROR", "scheduledFor is before 1970", field="scheduledFor")
    return unix_ms


def _recipient(channel: str | None, address: str | None, user_id: str | None) -> Recipient:
    if address is None and user_id is None:
        raise BadIntent("RECIPIENT_UNRESOLVED", "say who: give userId or recipient", field="recipient")
    # The inbox inside the application is kept per user, so its address is the user.
    addresses = {} if user_id is None else {"inApp": user_id}
    kind = "user"
    if address is not None:
        fitting = [channel] if channel is not None else _channels_for(address)
        for each in fitting:
            check_address(each, address)
            addresses[each] = address
        kind = _KINDS[fitting[0]]
    if user_id is not None:
        return Recipient(ref=f"user:{user_id}", user_id=user_id, addresses=addresses)
    return Recipient(ref=f"{kind}:{address}", addresses=addresses)


def _channels_for(address: str) -> list[str]:
    """The channels an address can be meant for when none is named; the template decides between them."""
    if address.startswith(("http://", "https://")):
        return ["webhook"]
    if address.startswith("+"):
        return ["sms"]
    return ["email"] if "@" in address else ["push", "inApp"]


def check_address(channel: str, address: str) -> None:
    """Refuse what the channel could never deliver to."""
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
