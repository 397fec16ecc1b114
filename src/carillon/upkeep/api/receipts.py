"""The receipts of applications: what a person did with a message, told by the program that showed it."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.notifications import Status, Story
from carillon.domain.ports import ReceiptLedger, UpkeepLedger
from carillon.domain.receipts import Receipt, ReceiptKind, ReceiptRules, TakenReceipt
from carillon.upkeep.api.notifications import notification
from carillon.upkeep.api.notifications_wire import ChannelWord, Id
from carillon.web import About, Answer, Callers, Endpoint, Problem, Reply, Request

_PATH = "/api/v1/notifications/{id}/receipts"
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_KINDS = {
    "delivered": ReceiptKind.DELIVERED,
    "read": ReceiptKind.OPENED,
    "acknowledged": ReceiptKind.CLICKED,
}
Observed = Callable[[Iterable[TakenReceipt]], None]


class ReceiptBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a person did with a message."""

    kind: Annotated[
        Literal["delivered", "read", "acknowledged"],
        Meta(description="acknowledged: the person acted on it, as by a click; each also counts as those before it."),
    ]
    channel: ChannelWord | UnsetType = UNSET
    route_id: Id | UnsetType = UNSET


class ReceiptAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the receipt did."""

    notification_id: str
    route_id: str
    kind: str
    effect: str
    """noted; repeated if it was told before; waiting while a worker still holds the route."""
    skipped: list[str]
    """The routes of other channels that are not tried any more."""


class StoryReceipts(ReceiptLedger, UpkeepLedger, Protocol):
    """Reads stories and takes receipts."""


def endpoints(ledger: StoryReceipts, rules: ReceiptRules, observed: Observed) -> list[Endpoint]:
    """The endpoint at which an application reports; for the person of a notification and for services."""

    async def take(request: Request) -> Reply:
        body = request.json(ReceiptBody)
        receipt = receipt_of(request.found, body, request.reach.oneself)
        (taken,) = await ledger.take_receipts([receipt], rules)
        observed([taken])
        notification_id, _, route_id = (receipt.idempotency_key or "").partition("/")
        answer = ReceiptAnswer(
            notification_id=notification_id,
            route_id=route_id,
            kind=body.kind,
            effect=str(taken.effect),
            skipped=sorted(gone.route_id for gone in taken.reached),
        )
        return Reply(200, answer)

    return [
        Endpoint(
            method="POST",
            path=_PATH,
            call=take,
            name="reportReceipt",
            summary="Report that a person got, read or acknowledged a message",
            description="It counts as a vendor's receipt: a chain of channels whose goal it reaches tries no other "
            "one. Name the channel or the route if more than one was sent. A repeat changes nothing.",
            about=About(callers=Callers.KNOWN, owned=notification(ledger), shared=True),
            path_examples={"id": _EXAMPLE_ID},
            body=ReceiptBody,
            body_examples={"read": {"kind": "read", "channel": "inApp"}},
            answers=(Answer(status=200, description="Written down", kind=ReceiptAnswer),),
            problems=("CONFLICT", "CHANNEL_REQUIRED"),
        )
    ]


def receipt_of(story: Story, body: ReceiptBody, oneself: str | None) -> Receipt:
    """The receipt that an application means; raises Problem if no route was sent, or several."""
    route = _meant(_sent(story, body, oneself), body)
    key = f"{story.notification['notification_id']}/{route['route_id']}"
    return Receipt(
        provider=route["provider"],
        kind=_KINDS[body.kind],
        provider_message_id=route["provider_message_id"],
        idempotency_key=key,
        event_id=f"api:{key}:{body.kind}",
    )


def _sent(story: Story, body: ReceiptBody, oneself: str | None) -> list[dict[str, Any]]:
    """The routes that were sent and that the body means; of a person who calls, only their own."""
    return [
        route
        for route in story.routes
        if route["status"] == Status.PUBLISHED
        and body.channel in (UNSET, route["channel"])
        and body.route_id in (UNSET, route["route_id"])
        and (oneself is None or route["recipient_ref"] == f"user:{oneself}")
    ]


def _meant(sent: list[dict[str, Any]], body: ReceiptBody) -> dict[str, Any]:
    if not sent:
        raise Problem("CONFLICT", "no such route of this notification has been sent, so nobody can have read it")
    if len(sent) > 1:
        wanted = "routeId" if body.channel is not UNSET else "channel"
        raise Problem("CHANNEL_REQUIRED", f"{len(sent)} routes of this notification were sent: name the {wanted}")
    return sent[0]
