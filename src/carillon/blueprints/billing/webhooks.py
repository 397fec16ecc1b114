"""Webhooks about payments: the payment service sends them signed, the subscription service receives them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from carillon.blueprints.billing.domain import EventRow, LifeRules, PaymentEvent, Plans, UnknownSubscription
from carillon.blueprints.billing.store import BillingStore
from carillon.border import strict_loads
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import CallbackRefused, Trouble, WebhookCalled
from carillon.domain.intents import canonical
from carillon.domain.ports import Clock, Observer
from carillon.ending import ended
from carillon.web import (
    PROOF,
    About,
    Answer,
    Callers,
    Endpoint,
    Found,
    Header,
    Owned,
    Problem,
    RawBody,
    Reply,
    Request,
)
from carillon.web.problems import rfc3339_ms
from carillon.web.request import convert

PATH = "/v1/webhooks/payment"
_MOST_AT_ONCE = 64
_HEADER = re.compile(r"[\x21-\x7e]{1,200}")
_CREATED, _OK = 201, range(200, 300)
_LIMIT = 256 * 1024
_LONGEST = 255
_VENDOR = "payment_service"
_EXAMPLE = "payment_0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11_1767225600"

Verify = Callable[[Sequence[tuple[str, str]], bytes], str]
"""Verifies headers and body; returns `ok`, or a key of `_REFUSALS`."""
_REFUSALS = {
    "missing": ("VALIDATION_ERROR", "X-Webhook-Timestamp and X-Webhook-Signature are both needed, once each"),
    "bad_timestamp": ("VALIDATION_ERROR", "X-Webhook-Timestamp must be whole Unix seconds"),
    "too_old": ("VALIDATION_ERROR", "X-Webhook-Timestamp is too old"),
    "too_new": ("VALIDATION_ERROR", "X-Webhook-Timestamp is in the future"),
    "forged": ("CALLBACK_REFUSED", "X-Webhook-Signature is not this body's under our secret"),
}


class Response(msgspec.Struct, frozen=True):
    """The answer of the other service: a status, or None and the error."""

    status: int | None
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.status in _OK

    @property
    def created(self) -> bool:
        return self.status == _CREATED

    @property
    def error(self) -> str:
        return self.said if self.status is None else f"HTTP {self.status} {self.said}".strip()


Post = Callable[[str, Mapping[str, str], bytes, float], Awaitable[Response]]
"""Posts to a URL with headers, a body and a timeout in seconds."""
Sign = Callable[[int, bytes], str]
"""The signature over a timestamp and exactly these bytes."""
Where = Callable[[], str]


class Webhooks:
    """One call a request: the caller decides about retries."""

    def __init__(
        self, post: Post, sign: Sign, where: Where, *, clock: Clock, observer: Observer, user_agent: str
    ) -> None:
        self._post = post
        self._sign = sign
        self._where = where
        self._clock = clock
        self._observe = observer
        self._user_agent = user_agent
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, payload: Mapping[str, Any], seconds: float, *, immediate: bool = False) -> Response:
        # Encode once: the signature covers exactly the bytes that are sent.
        body = canonical(payload).encode()
        timestamp = int(self._clock.wall())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": self._user_agent,
            "X-Webhook-Timestamp": str(timestamp),
            "X-Webhook-Signature": self._sign(timestamp, body),
        }
        event_id = payload.get("event_id")
        if isinstance(event_id, str) and _HEADER.fullmatch(event_id):
            headers["X-Webhook-Event-ID"] = event_id
        began = self._clock.monotonic()
        answer = await self._post(f"{self._where()}{PATH}", headers, body, seconds)
        self._observe(
            WebhookCalled(
                event_id=event_id if isinstance(event_id, str) else None,
                immediate=immediate,
                duration_ms=(self._clock.monotonic() - began) * 1000,
                status=answer.status,
                error=None if answer.ok else answer.error,
            )
        )
        return answer

    def send_soon(self, payload: Mapping[str, Any], seconds: float) -> None:
        """Call once in the background; the queued message makes delivery certain, also while too many calls run."""
        if len(self._under_way) >= _MOST_AT_ONCE:
            return
        task = asyncio.create_task(self._try(payload, seconds))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def drain(self, seconds: float) -> None:
        """Let running calls finish within `seconds`; queued messages deliver the rest."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        await ended(*self._under_way)

    async def _try(self, payload: Mapping[str, Any], seconds: float) -> None:
        try:
            answer = await self.send(payload, seconds, immediate=True)
        except Exception as error:  # noqa: BLE001 - nobody waits for this call
            answer = Response(None, f"{type(error).__name__}: {error}")
        if not answer.ok:
            self._observe(Trouble(where="immediate_webhook", error=answer.error))


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """The event was carried out, now or before."""

    success: bool
    status: str
    message: str
    event_id: str


class EventStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far an event has come."""

    event_id: str
    processed: bool
    processed_at: str | None
    retry_count: int
    error_message: str | None
    created_at: str


class _Receiver:
    def __init__(self, ledger: BillingStore, verify: Verify, plans: Plans, life: LifeRules, observer: Observer) -> None:
        self._ledger = ledger
        self._verify = verify
        self._plans = plans
        self._life = life
        self._observe = observer

    async def take(self, request: Request) -> Reply:
        event, payload = self._believed(request, request.body)
        try:
            taken = await self._ledger.take_payment_event(event, payload, self._plans, self._life)
        except LedgerUnavailable:
            raise
        except Exception as error:
            await self._ledger.fail_payment_event(event, payload, f"{type(error).__name__}: {error}")
            raise
        if isinstance(taken, UnknownSubscription):
            said = f"there is no subscription {taken.subscription_id} here"
            await self._ledger.fail_payment_event(event, payload, said)
            raise Problem("INTERNAL_ERROR", f"{said}; the event is remembered, send it again")
        message = "Event processed" if taken == "processed" else "Event was processed before"
        return Reply(200, Received(success=True, status=taken, message=message, event_id=event.event_id))

    def _believed(self, request: Request, body: bytes) -> tuple[PaymentEvent, str]:
        if not body:
            raise Problem("VALIDATION_ERROR", "the body is empty")
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
        found = self._verify(pairs, body)
        if found in _REFUSALS:
            code, sentence = _REFUSALS[found]
            self._observe(CallbackRefused(vendor=_VENDOR, reason=found, forged=found == "forged"))
            raise Problem(code, sentence)
        value = strict_loads(body)
        event = convert(value, PaymentEvent)
        if not (0 < len(event.event_id) <= _LONGEST and 0 < len(event.subscription_id) <= _LONGEST):
            raise Problem("VALIDATION_ERROR", f"event_id and subscription_id have 1 to {_LONGEST} characters")
        return event, canonical(value)

    async def show(self, request: Request) -> Reply:
        return Reply(200, _status(request.found))

    async def find(self, event_id: str, _tenant_id: str | None) -> Found | None:
        found = await self._ledger.payment_event(event_id)
        return None if found is None else Found(found, found.tenant_id, found.user_id)


def _status(row: EventRow) -> EventStatus:
    return EventStatus(
        event_id=row.event_id,
        processed=row.processed,
        processed_at=None if row.processed_at is None else rfc3339_ms(row.processed_at),
        retry_count=row.retry_count,
        error_message=row.error_message,
        created_at=rfc3339_ms(row.created_at),
    )


def endpoints(
    ledger: BillingStore, verify: Verify, plans: Plans, life: LifeRules, observer: Observer
) -> list[Endpoint]:
    """The receiver, and the status of an event."""
    receiver = _Receiver(ledger, verify, plans, life, observer)
    return [_taking(receiver), _showing(receiver)]


def _taking(receiver: "_Receiver") -> Endpoint:
    return Endpoint(
        method="POST",
        path="/v1/webhooks/payment",
        call=receiver.take,
        name="takePaymentEvent",
        summary="The payment service reports the result of a payment",
        description="Signed instead of carrying a token: HMAC-SHA256 over timestamp, dot and body. "
        "An event that was carried out before is answered as a duplicate and does nothing.",
        tag="Billing",
        headers=(
            Header("X-Webhook-Timestamp", "Unix seconds"),
            Header("X-Webhook-Signature", "sha256= and the hex digest"),
        ),
        answers=(Answer(status=200, description="Carried out, now or before", kind=Received),),
        problems=(
            *("VALIDATION_ERROR", "CALLBACK_REFUSED", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
            "INTERNAL_ERROR",
        ),
        about=PROOF,
        raw=RawBody(limit=_LIMIT),
    )


def _showing(receiver: "_Receiver") -> Endpoint:
    missing = "no event with this id was received here"
    one = About(callers=Callers.KNOWN, owned=Owned(param="event_id", find=receiver.find, missing=missing))
    return Endpoint(
        method="GET",
        path="/v1/webhooks/status/{event_id}",
        call=receiver.show,
        name="showPaymentEvent",
        summary="Show the status of an event",
        tag="Billing",
        about=one,
        path_examples={"event_id": _EXAMPLE},
        answers=(Answer(status=200, description="The event", kind=EventStatus),),
    )
