"""The stream and inbox endpoints, as they are declared."""

from typing import Any, Protocol

from carillon.live import wire
from carillon.web import Answer, Endpoint, Header, Reply, Request

_PATH = "/notifications"
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_TAG = "Streams"
_LAST = Header("Last-Event-ID", "The last notification that was read; what came after it comes first.")
_UNBUFFERED = Header("X-Accel-Buffering", "`no`: a proxy that keeps a stream back tells nobody anything.")
_FRAMES = (
    "Server-sent events: `connected` first, then one `notification` each with its number as `id`, `heartbeat` in "
    "between, `gap` when what was asked for is not kept any more, `closing` when the reader should come again."
)


class Desk(Protocol):
    """Who answers."""

    async def stream(self, request: Request) -> Reply: ...
    async def ticket(self, request: Request) -> Reply: ...
    async def inbox(self, request: Request) -> Reply: ...
    async def unread(self, request: Request) -> Reply: ...
    async def mark_read(self, request: Request) -> Reply: ...
    async def acknowledge(self, request: Request) -> Reply: ...


def declared(desk: Desk) -> list[Endpoint]:
    """All of them."""
    return [_stream(desk), _ticket(desk), _acknowledge(desk), *_inbox(desk)]


def _stream(desk: Desk) -> Endpoint:
    events = Answer(
        status=200,
        description="A stream without an end",
        kind=Any,
        media_type="text/event-stream",
        headers=(_UNBUFFERED,),
    )
    return Endpoint(
        method="GET",
        path=f"{_PATH}/stream",
        call=desk.stream,
        name="streamNotifications",
        summary="Read a person's notifications as they come",
        description=_FRAMES,
        tag=_TAG,
        query=wire.StreamQuery,
        headers=(_LAST,),
        answers=(events,),
        problems=("FORBIDDEN",),
        ticket="opens",
    )


def _ticket(desk: Desk) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/stream/tickets",
        call=desk.ticket,
        name="makeStreamTicket",
        summary="Make a ticket that opens one stream",
        description="For browsers, which cannot show a token when they open a stream; it belongs into no log.",
        tag=_TAG,
        body=wire.TicketBody,
        body_optional=True,
        body_examples={"own": {}, "somebody's": {"user_id": "ada"}},
        answers=(Answer(status=201, description="Good for a minute, once", kind=wire.TicketView),),
        problems=("FORBIDDEN",),
    )


def _acknowledge(desk: Desk) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/{{id}}/ack",
        call=desk.acknowledge,
        name="acknowledgeNotification",
        summary="Say that a notification has reached its reader",
        tag=_TAG,
        query=wire.PersonQuery,
        body=wire.AnswerBody,
        body_optional=True,
        body_examples={"token": {}, "loopback": {"user_id": "ada"}},
        path_examples={"id": _EXAMPLE_ID},
        answers=(Answer(status=200, description="It is delivered; again changes nothing", kind=wire.Acknowledged),),
        problems=("FORBIDDEN",),
        ticket="shows",
    )


def _inbox(desk: Desk) -> list[Endpoint]:
    whose = f"{_PATH}/{{user_id}}"
    shared: dict[str, Any] = {
        "tag": _TAG,
        "path_examples": {"user_id": "ada"},
        "problems": ("FORBIDDEN",),
        "ticket": "shows",
    }
    return [
        Endpoint(
            method="GET",
            path=whose,
            call=desk.inbox,
            name="showInbox",
            summary="Show a person's notifications, newest first",
            query=wire.InboxQuery,
            answers=(Answer(status=200, description="At most a hundred", kind=wire.Inbox),),
            **shared,
        ),
        Endpoint(
            method="GET",
            path=f"{whose}/unread",
            call=desk.unread,
            name="countUnread",
            summary="Count what a person has not read",
            query=wire.PersonQuery,
            answers=(Answer(status=200, description="The numbers", kind=wire.Unread),),
            **shared,
        ),
        _mark_read(desk, f"{whose}/read", shared),
    ]


def _mark_read(desk: Desk, path: str, shared: dict[str, Any]) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        call=desk.mark_read,
        name="markRead",
        summary="Mark notifications as read",
        query=wire.PersonQuery,
        body=wire.ReadBody,
        body_optional=True,
        body_examples={"all": {}, "some": {"notification_ids": [_EXAMPLE_ID]}},
        answers=(Answer(status=200, description="Done", kind=wire.MarkedRead),),
        **shared,
    )
