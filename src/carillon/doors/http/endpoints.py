"""The HTTP door: it takes notifications and answers after the ledger's commit, or explains without writing."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, assert_never

import msgspec
from msgspec import UNSET

from carillon.domain.errors import BadIntent, LedgerUnavailable, Overloaded
from carillon.domain.explain import Explains, Explanation
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance
from carillon.domain.ports import Acceptor
from carillon.domain.synchronous import DeliveredNow, NotDelivered, Synchronous, SynchronousAnswer
from carillon.doors.http.wire import (
    BatchAnswer,
    BatchBody,
    BatchEnvelope,
    BatchItem,
    Context,
    Delivered,
    ItemError,
    ItemResult,
    SendAnswer,
    SendBody,
    idempotency_key,
    skipped_routes,
    to_intent,
)
from carillon.web import About, Answer, Callers, Endpoint, Header, Problem, Reply, Request, in_body
from carillon.web.guard import reach_of_item
from carillon.web.problems import members, rfc3339_ms, unavailable
from carillon.web.request import convert

_PATH = "/api/v1/notifications"
_LONGEST_INDEX = len("/499")
_MAX_KEY = 255
_LANGUAGE = Header("Accept-Language", "Chooses the language when neither the body nor the person says one.")
_TRACE = Header("Traceparent", "W3C trace context; its trace id is kept with the notification.")
_KEY = Header("Idempotency-Key", "The same key with the same body is accepted once; quotes are optional.")
_OLD_KEY = Header("X-Idempotency-Key", "The same, under its older name.")
_HEADERS = (_KEY, _OLD_KEY, _LANGUAGE, _TRACE)
_REPLAYED = Header("Idempotent-Replayed", "`true` when the notification had been accepted before.")
_LOCATION = Header("Location", "Where the notification can be watched.")
_CODES = (
    "CHANNEL_REQUIRED",
    "UNKNOWN_CHANNEL",
    "TEMPLATE_RENDER_ERROR",
    "SYNCHRONOUS_UNAVAILABLE",
    "RECIPIENT_UNRESOLVED",
    "CHANNEL_DISABLED",
    "COUNTRY_NOT_ALLOWED",
    "GOAL_UNREACHABLE",
    "UNKNOWN_CATEGORY",
    "TEMPLATE_NOT_FOUND",
    "IDEMPOTENCY_CONFLICT",
)
_SYNCHRONOUS_CODES = ("DELIVERY_FAILED", "DELIVERY_TIMEOUT")
_EXAMPLE: dict[str, Any] = {
    "templateKey": "welcome",
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}
_ABOUT = About(
    callers=Callers.KNOWN, tenant=in_body("tenantId"), person=(in_body("userId"),), oneself="default", shared=True
)
"""A send is for the person that it names, or for the caller."""
_MANY = About(callers=Callers.KNOWN, shared=True)
"""Every item of a batch is judged by itself, as a send is."""
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_EXPLANATION = {
    "outcome": "queued",
    "steps": [
        {"step": "mode", "verdict": "pass", "detail": {"mode": "queued"}},
        {"step": "lane", "verdict": "pass", "detail": {"lane": "standard", "queueName": "standard"}},
    ],
    "routes": [
        {
            "routeId": "email:email:ada@example.org",
            "channel": "email",
            "recipient": "email:ada@example.org",
            "outcome": "queued",
            "policy": "*/*",
            "maxAttempts": 2,
            "attempts": [
                {"attempt": 1, "provider": "smtp", "notBefore": 1767225600000},
                {
                    "attempt": 2,
                    "provider": "smtp",
                    "notBefore": 1767225605000,
                    "afterSeconds": 5.0,
                    "atMostSeconds": 6.0,
                },
            ],
            "ends": "dead_letter",
        }
    ],
}


def endpoints(
    acceptor: Acceptor, *, synchronous: Synchronous | None = None, explains: Explains | None = None
) -> list[Endpoint]:
    """The send endpoints over an acceptor."""
    door = _Door(acceptor, synchronous)
    found = [_send(door, synchronous=synchronous is not None), _batch(door)]
    if explains is not None:
        found.append(_explain(partial(door.explain, explains)))
    return found


def _send(door: "_Door", *, synchronous: bool) -> Endpoint:
    delivered = Answer(
        status=200, description="Delivered while you waited.", kind=Delivered, headers=(_LOCATION, _REPLAYED)
    )
    accepted = Answer(
        status=202,
        description="Written down; it will be delivered, unless `status` is `skipped`: then its address is suppressed "
        "or the person does not want this category, and `skipped` says why.",
        kind=SendAnswer,
        headers=(_LOCATION, _REPLAYED),
        example={"notificationId": _EXAMPLE_ID, "status": "queued", "queueName": "standard"},
    )
    return Endpoint(
        method="POST",
        path=f"{_PATH}/send",
        call=door.send,
        name="send",
        summary="Send one notification",
        description="Answers once the notification is written down; delivery follows.",
        body=SendBody,
        body_examples={"email": _EXAMPLE},
        headers=_HEADERS,
        about=_ABOUT,
        answers=(accepted, delivered) if synchronous else (accepted,),
        problems=(*_CODES, *_SYNCHRONOUS_CODES) if synchronous else _CODES,
    )


def _batch(door: "_Door") -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/batch",
        call=door.batch,
        name="sendBatch",
        summary="Send up to 500 notifications",
        description=(
            "Every item is accepted or rejected on its own; when none is accepted, the problem carries the results. "
            "An Idempotency-Key of the request gives the item at index n the key `<key>/<n>`; an item's own "
            "idempotencyKey goes before it."
        ),
        body=BatchBody,
        body_examples={"two": {"notifications": [_EXAMPLE, {**_EXAMPLE, "idempotencyKey": "order-1002"}]}},
        headers=_HEADERS,
        about=_MANY,
        answers=(Answer(status=202, description="At least one item was accepted.", kind=BatchAnswer),),
        problems=("BATCH_REJECTED",),
    )


def _explain(call: Callable[[Request], Awaitable[Reply]]) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/explain",
        call=call,
        name="explain",
        summary="Say what would happen",
        description=(
            "Plans the request as a send does, preferences, quiet hours and schedule included, and says of each gate "
            "whether it was passed and what was found there: what would be rendered, the lane, the providers and their "
            "breakers. `routes` lists every attempt of every recipient and channel with its provider and its time, as "
            "if each attempt failed. Nothing is written and nothing is sent."
        ),
        body=SendBody,
        body_examples={"email": _EXAMPLE},
        headers=_HEADERS,
        about=_ABOUT,
        answers=(Answer(status=200, description="What would happen.", kind=Explanation, example=_EXPLANATION),),
        problems=("RECIPIENT_UNRESOLVED", "UNAVAILABLE"),
    )


class _Door:
    def __init__(self, acceptor: Acceptor, synchronous: Synchronous | None) -> None:
        self._acceptor = acceptor
        self._synchronous = synchronous

    async def send(self, request: Request) -> Reply:
        began = 0.0 if self._synchronous is None else self._synchronous.began()
        context = _context(request)
        body = request.json(SendBody)
        intent = self._intent(body, context)
        if intent.synchronous and self._synchronous is not None:
            return _delivered(await self._synchronous.deliver(intent, began))
        acceptance = await self._acceptor.accept(intent)
        notification_id = acceptance.notification_id
        headers = {"Location": f"{_PATH}/{notification_id}"}
        if acceptance.replayed:
            headers["Idempotent-Replayed"] = "true"
        answer = SendAnswer(
            notification_id=notification_id,
            queue_name=acceptance.queue_name,
            status=_status(acceptance),
            skipped=skipped_routes(acceptance.suppressed, acceptance.gated) or UNSET,
        )
        return Reply(202, answer, headers)

    async def explain(self, explains: Explains, request: Request) -> Reply:
        context = _context(request)
        body = request.json(SendBody)
        intent = self._intent(body, context)
        mode = {"mode": "queued"}
        if intent.synchronous:
            because = "it was asked for" if body.synchronous else "of its use case"
            mode = {"mode": "synchronous", "because": because}
        return Reply(200, await explains.explain(intent, mode))

    def _intent(self, body: SendBody, context: Context) -> Intent:
        intent = to_intent(body, context)
        if not self._is_synchronous(body):
            return intent
        if self._synchronous is None:
            raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "synchronous delivery is not configured", field="synchronous")
        # Also a time on the recipient's clock, which becomes a moment later.
        if body.scheduled_for is not None:
            raise BadIntent("VALIDATION_ERROR", "a scheduled notification cannot be synchronous", field="scheduledFor")
        return msgspec.structs.replace(intent, synchronous=True)

    def _is_synchronous(self, body: SendBody) -> bool:
        """Whether the caller asks for it, or the use case implies it and is neither scheduled nor for the inbox."""
        if body.synchronous or self._synchronous is None:
            return body.synchronous
        return body.scheduled_for is None and body.channel != "inApp" and self._synchronous.wanted(body.template_key)

    async def batch(self, request: Request) -> Reply:
        context = _context(request)
        if context.idempotency_key is not None and len(context.idempotency_key) > _MAX_KEY - _LONGEST_INDEX:
            raise BadIntent(
                "VALIDATION_ERROR",
                f"a batch's idempotency key has at most {_MAX_KEY - _LONGEST_INDEX} characters",
                field="Idempotency-Key",
            )
        items = request.json(BatchEnvelope).notifications
        outcomes = await asyncio.gather(
            *(self._item(request, index, item, context) for index, item in enumerate(items)), return_exceptions=True
        )
        return _batch_reply(outcomes)

    async def _item(self, request: Request, index: int, item: object, context: Context) -> Acceptance:
        body = convert(item, BatchItem, prefix=f"notifications[{index}]")
        if body.synchronous:
            raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "a batch is never synchronous", field="synchronous")
        key = body.idempotency_key
        if key is None and context.idempotency_key is not None:
            key = f"{context.idempotency_key}/{index}"
        reach = reach_of_item(request, _ABOUT, item)
        context = msgspec.structs.replace(context, idempotency_key=key, reach=reach)
        return await self._acceptor.accept(to_intent(body, context))


def _delivered(outcome: SynchronousAnswer) -> Reply:
    headers = {"Location": f"{_PATH}/{outcome.notification_id}"}
    if outcome.replayed:
        headers["Idempotent-Replayed"] = "true"
    match outcome:
        case DeliveredNow():
            at = rfc3339_ms(outcome.at_ms)
            answer = Delivered(
                notification_id=outcome.notification_id,
                delivered_at=at if outcome.arrived else UNSET,
                sent_at=UNSET if outcome.arrived else at,
                provider_message_id=outcome.provider_message_id,
                status="delivered" if outcome.arrived else "sent",
            )
            return Reply(200, answer, headers)
        case NotDelivered():
            skipped = skipped_routes(outcome.suppressed, outcome.gated)
            raise Problem(
                outcome.code,
                outcome.message,
                headers=headers,
                members={"skipped": msgspec.to_builtins(skipped)} if skipped else None,
                notification_id=outcome.notification_id,
            )
        case _:
            assert_never(outcome)


def _status(acceptance: Acceptance) -> Literal["queued", "skipped"]:
    return "skipped" if acceptance.skipped else "queued"


def _context(request: Request) -> Context:
    return Context(
        reach=request.reach,
        sent_by=request.caller.service,
        correlation_id=request.correlation_id,
        idempotency_key=idempotency_key(request.header(b"idempotency-key"), request.header(b"x-idempotency-key")),
        trace_id=request.trace_id,
        accept_language=request.header(b"accept-language"),
    )


def _batch_reply(outcomes: list[Acceptance | BaseException]) -> Reply:
    results = [_result(index, outcome) for index, outcome in enumerate(outcomes)]
    accepted = sum(result.error is None for result in results)
    skipped = sum(result.status == "skipped" for result in results)
    answer = BatchAnswer(accepted=accepted, rejected=len(results) - accepted, results=results, skipped=skipped)
    if accepted:
        return Reply(202, answer)
    if all(isinstance(outcome, LedgerUnavailable | Overloaded) for outcome in outcomes):
        raise unavailable("no item of the batch could be written now")
    raise Problem("BATCH_REJECTED", "no item was accepted", members=msgspec.to_builtins(answer))


def _result(index: int, outcome: Acceptance | BaseException) -> ItemResult:
    match outcome:
        case Acceptance():
            return ItemResult(
                index=index,
                status=_status(outcome),
                notification_id=outcome.notification_id,
                queue_name=outcome.queue_name,
                replayed=outcome.replayed,
                skipped=skipped_routes(outcome.suppressed, outcome.gated) or UNSET,
            )
        case BadIntent():
            error = ItemError(outcome.code, str(outcome), outcome.field, **members(outcome.place))
        case Problem():
            field = outcome.details[0].field if outcome.details else None
            error = ItemError(outcome.code, outcome.message, field)
        case LedgerUnavailable() | Overloaded():
            error = ItemError("UNAVAILABLE", "this item could not be written now")
        case _:
            raise outcome
    return ItemResult(index=index, status="rejected", error=error)
