"""A person's live stream and inbox over HTTP: read, acknowledge, mark as read, archive."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import msgspec

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.ports import Clock
from carillon.domain.receipts import Receipt, ReceiptKind
from carillon.domain.streams import Entry, Seated, Ticket, log_of, place
from carillon.live import wire
from carillon.live.choices import InboxChoices, choice_endpoints
from carillon.live.reader import Lookups, SseConnection, StreamRules
from carillon.live.sse import Live
from carillon.web import (
    About,
    Answer,
    Callers,
    Endpoint,
    Header,
    Problem,
    Reply,
    Request,
    in_body,
    in_path,
    in_query,
)
from carillon.web.about import RequestPlace
from carillon.web.auth import Tickets
from carillon.web.files import fixed
from carillon.web.paging import CursorShape
from carillon.web.problems import unavailable

MOST_REPORTED = 1000
"""Of the chains that one request reports as read; a person has fewer."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_FULL_SECONDS = 5
_PATH = "/notifications"
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_TAG = "Streams"
_LAST = Header("Last-Event-ID", "The last notification that was read; what came after it comes first.")
_UNBUFFERED = Header("X-Accel-Buffering", "`no`: a proxy that keeps a stream back tells nobody anything.")
_FRAMES = (
    "Server-sent events: `connected` first, then one `notification` each with its number as `id`, `heartbeat` in "
    "between, `gap` when what was asked for is not kept any more, `changed` when the person has marked or archived "
    "something, `closing` when the reader should come again."
)
_PLACE: dict[str, tuple[str, type]] = {"before": ("seq", int), "after_id": ("notification_id", str)}
"""A number in the stream; 0 and an id for what waits and has no number yet."""
_INBOX, _ARCHIVE = CursorShape("inbox", _PLACE), CursorShape("archive", _PLACE)
_FILES = {
    "/inbox": "inbox.html",
    **{
        f"/inbox/{name}": name
        for name in (
            *("inbox.js", "client.js", "keys.js", "choices.js", "view.js", "words.js", "style.js"),
            *("page.js", "page.css"),
        )
    },
    **{f"/inbox/{name}.svg": f"{name}.svg" for name in ("icon", "parcel", "shield", "team")},
}


TakeReceipts = Callable[[Sequence[Receipt]], Awaitable[None]]
"""Applies receipts as if a vendor had reported them."""


def endpoints(
    live: Live,
    choices: InboxChoices,
    *,
    tickets: Tickets,
    rules: StreamRules,
    clock: Clock,
    take_receipts: TakeReceipts | None = None,
) -> list[Endpoint]:
    """Everything a browser needs of a person's notifications."""
    streams = _Streams(live, tickets, rules, clock, take_receipts)
    return [_stream(streams), _ticket(streams), _acknowledge(streams), *_inbox(streams, choices)]


def _about(*person: RequestPlace) -> About:
    return About(callers=Callers.KNOWN, person=person, oneself="needed")


def _stream(streams: "_Streams") -> Endpoint:
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
        call=streams.stream,
        name="streamNotifications",
        summary="Read a person's notifications as they come",
        description=_FRAMES,
        tag=_TAG,
        query=wire.StreamQuery,
        headers=(_LAST,),
        answers=(events,),
        problems=("FORBIDDEN",),
        about=_about(in_query("user_id")),
        ticket="opens",
    )


def _ticket(streams: "_Streams") -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/stream/tickets",
        call=streams.ticket,
        name="makeStreamTicket",
        summary="Make a ticket that opens one stream",
        description="For browsers, which cannot show a token when they open a stream; it belongs into no log.",
        tag=_TAG,
        body=wire.TicketBody,
        body_optional=True,
        body_examples={"own": {}, "somebody's": {"user_id": "ada"}},
        about=_about(in_body("user_id")),
        answers=(Answer(status=201, description="Good for a minute, once", kind=wire.TicketView),),
        problems=("FORBIDDEN",),
    )


def _acknowledge(streams: "_Streams") -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/{{id}}/ack",
        call=streams.acknowledge,
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
        about=_about(in_query("user_id"), in_body("user_id")),
        ticket="shows",
    )


def _inbox(streams: "_Streams", choices: InboxChoices) -> list[Endpoint]:
    whose = f"{_PATH}/{{user_id}}"
    shared: dict[str, Any] = {
        "tag": _TAG,
        "path_examples": {"user_id": "ada"},
        "problems": ("FORBIDDEN",),
        "about": _about(in_path("user_id")),
        "ticket": "shows",
    }
    return [
        Endpoint(
            method="GET",
            path=whose,
            call=streams.inbox,
            name="showInbox",
            summary="Show a person's notifications, newest first",
            query=wire.InboxQuery,
            answers=(Answer(status=200, description="At most a hundred", kind=wire.Inbox),),
            **shared,
        ),
        Endpoint(
            method="GET",
            path=f"{whose}/unread",
            call=streams.unread,
            name="countUnread",
            summary="Count what a person has not read",
            query=wire.PersonQuery,
            answers=(Answer(status=200, description="The numbers", kind=wire.Unread),),
            **shared,
        ),
        _mark_read(streams, f"{whose}/read", shared),
        _archive(streams, f"{whose}/archive", shared),
        *choice_endpoints(choices, f"{whose}/preferences", shared),
    ]


def _mark_read(streams: "_Streams", path: str, shared: dict[str, Any]) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        call=streams.mark_read,
        name="markRead",
        summary="Mark notifications as read",
        query=wire.PersonQuery,
        body=wire.ReadBody,
        body_optional=True,
        body_examples={"all": {}, "some": {"notification_ids": [_EXAMPLE_ID]}},
        answers=(Answer(status=200, description="Done", kind=wire.MarkedRead),),
        **shared,
    )


def _archive(streams: "_Streams", path: str, shared: dict[str, Any]) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        call=streams.archive,
        name="archiveNotifications",
        summary="Move notifications to the archive, or back",
        description="An archived notification leaves the inbox and its count; `archived=true` shows it.",
        query=wire.PersonQuery,
        body=wire.ArchiveBody,
        body_optional=True,
        body_examples={"read ones": {}, "back": {"notification_ids": [_EXAMPLE_ID], "archived": False}},
        answers=(Answer(status=200, description="Done", kind=wire.Archived),),
        **shared,
    )


class _Streams:
    def __init__(
        self, live: Live, tickets: Tickets, rules: StreamRules, clock: Clock, take_receipts: TakeReceipts | None
    ) -> None:
        self._take_receipts = take_receipts
        self._live = live
        self._seats = live.hub
        self._ledger = ledger = live.ledger
        self._lookups = Lookups(ledger)
        self._tickets = tickets
        self._rules = rules
        self._clock = clock

    async def stream(self, request: Request) -> Reply:
        query = request.query(wire.StreamQuery)
        log = _log(request)
        resume = _resume(request, query.last_event_id)
        reading = SseConnection(
            user_id=log,
            key=request.caller.key_id or log,
            seats=self._seats,
            lookups=self._lookups,
            rules=self._rules,
            clock=self._clock,
            prove=request.prove,
        )
        if request.scope["method"] == "HEAD":
            return Reply(200, b"", _STREAM_HEADERS, "text/event-stream")
        _refuse(self._seats.join(reading.seat))
        try:
            # Take the seat before reading the end of the log, so that the seat gets entries appended meanwhile.
            bounds = await self._lookups.bounds(log)
        except BaseException:
            reading.part()
            raise
        after, missed = place(bounds, resume)
        reading.tail.grown(bounds.newest)
        reading.begin(after, b"" if missed is None else wire.gap(missed, bounds.oldest))
        return Reply(200, reading, _STREAM_HEADERS, "text/event-stream")

    async def ticket(self, request: Request) -> Reply:
        request.json(wire.TicketBody)
        user_id, tenant_id = _user(request), request.reach.tenant_id
        proof = await request.prove()
        given = Ticket(user_id=user_id, tenant_id=tenant_id, expires_at_ms=proof.expires_at_ms, token_id=proof.token_id)
        text = await self._tickets.issue(given)
        return Reply(201, wire.TicketView(text, user_id, self._tickets.seconds))

    async def inbox(self, request: Request) -> Reply:
        query = request.query(wire.InboxQuery)
        user_id, log = _user(request), _log(request)
        shape = _ARCHIVE if query.archived else _INBOX
        # `before` is the older way to name a place: it and a cursor exclude each other, as a page and a cursor do.
        place, _ = shape.place(query.cursor, 1 if query.before is msgspec.UNSET else 2, 1)
        before = place.get("before") or (None if query.before is msgspec.UNSET else query.before)
        more = query.limit + 1
        found: list[Entry] = []
        if before is None and not query.archived:
            # Notifications that wait for an absent person have no number yet, and are newer than pushed ones.
            found += await self._ledger.waiting(log, more, place.get("after_id"))
        if len(found) < more:
            numbered = await self._ledger.newest_first(log, more, before, archived=query.archived)
            # What got its number between the two looks is in both.
            twice = {entry.notification_id for entry in numbered}
            found = [*(entry for entry in found if entry.notification_id not in twice), *numbered][:more]
        columns = [{"seq": entry.seq, "notification_id": entry.notification_id} for entry in found]
        shown, cursor = shape.cut(found, query.limit, columns)
        entries = [wire.in_inbox(entry) for entry in shown]
        return Reply(200, wire.Inbox(user_id, entries, len(entries), cursor))

    async def unread(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        user_id, log = _user(request), _log(request)
        held = await self._ledger.inbox_counts(log)
        return Reply(200, wire.Unread(user_id, held.total, held.unread))

    async def mark_read(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        user_id, log = _user(request), _log(request)
        body = request.json(wire.ReadBody)
        if body.read:
            await self._reach_goals(log, body.notification_ids)
        marked = await self._ledger.mark_read(log, body.notification_ids, read=body.read)
        await self._tell_windows(log, marked)
        return Reply(200, wire.MarkedRead(user_id, marked))

    async def archive(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        user_id, log = _user(request), _log(request)
        body = request.json(wire.ArchiveBody)
        moved = await self._ledger.archive(log, body.notification_ids, archived=body.archived)
        await self._tell_windows(log, moved)
        return Reply(200, wire.Archived(user_id, moved))

    async def _reach_goals(self, log: str, notification_ids: Sequence[str] | None) -> None:
        """What is read here is not tried on the next channel of its chain.

        Before the mark: a process that dies in between leaves the entry unread, and the next mark reports it again.
        """
        if self._take_receipts is None:
            return
        read = await self._ledger.unread_of_chains(log, notification_ids, MOST_REPORTED)
        receipts = [
            Receipt(
                provider=provider,
                kind=ReceiptKind.OPENED,
                idempotency_key=f"{notification_id}/{route_id}",
                event_id=f"inbox:{notification_id}/{route_id}:read",
            )
            for notification_id, route_id, provider in read
        ]
        if receipts:
            await self._take_receipts(receipts)

    async def _tell_windows(self, log: str, count: int) -> None:
        """Tell the person's other windows, here and at other replicas, that something has changed."""
        if not count:
            return
        self._seats.changed(log)
        # The change is made: a window that does not hear of it shows it when it loads again.
        with suppress(LedgerUnavailable):
            if self._live.relay is not None:
                self._live.relay.changed(log, (await self._live.elsewhere({log})).get(log, ()))

    async def acknowledge(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        request.json(wire.AnswerBody)
        notification_id = request.params["id"]
        if not await self._ledger.acknowledge(_log(request), notification_id):
            raise Problem("NOT_FOUND", "this person's stream has no such notification")
        return Reply(200, wire.Acknowledged(notification_id))


def _user(request: Request) -> str:
    """The person that the request is about; the endpoints' declarations require one."""
    return request.reach.user_id or ""


def _log(request: Request) -> str:
    return log_of(request.reach.tenant_id, _user(request))


def _resume(request: Request, named: str) -> int | None:
    given = request.header(b"last-event-id") or named
    if not given:
        return None
    if not _NUMBER.fullmatch(given):
        raise Problem("VALIDATION_ERROR", "Last-Event-ID must be the id of a notification of this stream")
    return int(given)


def _refuse(seated: Seated) -> None:
    match seated:
        case Seated.SEATED:
            return
        case Seated.CROWDED:
            raise Problem("TOO_MANY_REQUESTS", "too many streams are open already", headers={"Retry-After": "5"})
        case Seated.FULL | Seated.CLOSING:
            raise unavailable("this replica has reached its limit of streams; connect again later", _FULL_SECONDS)


def demo_endpoints() -> list[Endpoint]:
    """The files of the inbox component and of the page that shows it; they hold no data, so they need no token."""
    folder = files("carillon.live").joinpath("static")
    return [fixed(path, folder.joinpath(name).read_bytes(), name.rpartition(".")[2]) for path, name in _FILES.items()]
