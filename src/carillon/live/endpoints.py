"""A person's live stream and inbox over HTTP: read, acknowledge, mark as read."""

import re
from collections.abc import Callable

import msgspec

from carillon.domain.live import Seated, Seats, Ticket
from carillon.domain.ports import Clock
from carillon.domain.streams import Entry, StreamLedger, log_of
from carillon.domain.tail import place
from carillon.live import frames, wire
from carillon.live.declared import declared
from carillon.live.lookups import Lookups
from carillon.live.reader import SseConnection, StreamRules
from carillon.web import Endpoint, Problem, Reply, Request
from carillon.web.problems import Detail, unavailable
from carillon.web.tickets import Tickets

_NUMBER = re.compile(r"[0-9]{1,18}")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]")
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_FULL_SECONDS = 5


def endpoints(
    *, seats: Seats, ledger: StreamLedger, tickets: Tickets, rules: StreamRules, clock: Clock
) -> list[Endpoint]:
    """Everything a browser needs of a person's notifications."""
    desk = _Desk(seats, ledger, tickets, rules, clock)
    return declared(desk)


class _Desk:
    """Satisfies Desk."""

    def __init__(self, seats: Seats, ledger: StreamLedger, tickets: Tickets, rules: StreamRules, clock: Clock) -> None:
        self._seats = seats
        self._ledger = ledger
        self._lookups = Lookups(ledger)
        self._tickets = tickets
        self._rules = rules
        self._clock = clock

    async def stream(self, request: Request) -> Reply:
        query = request.query(wire.StreamQuery)
        _, _, log = _person(request, query.user_id)
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
            # Seated before it is asked where the log ends: what is appended meanwhile is told to the seat.
            bounds = await self._lookups.bounds(log)
        except BaseException:
            reading.part()
            raise
        after, missed = place(bounds, resume)
        reading.tail.grown(bounds.newest)
        reading.begin(after, b"" if missed is None else frames.gap(missed, bounds.oldest))
        return Reply(200, reading, _STREAM_HEADERS, "text/event-stream")

    async def ticket(self, request: Request) -> Reply:
        body = await request.json(wire.TicketBody) if request.bodied else wire.TicketBody()
        tenant_id, user_id, _ = _person(request, body.user_id)
        proof = await request.prove()
        given = Ticket(user_id=user_id, tenant_id=tenant_id, expires_at_ms=proof.expires_at_ms, token_id=proof.token_id)
        text = await self._tickets.issue(given)
        return Reply(201, wire.TicketView(text, user_id, self._tickets.seconds))

    async def inbox(self, request: Request) -> Reply:
        query = request.query(wire.InboxQuery)
        _, user_id, log = _person(request, request.params["user_id"])
        before = None if query.before is msgspec.UNSET else query.before
        found: list[Entry] = []
        if before is None:
            # What waits for somebody who is away has no number yet, and is newer than what was pushed.
            found += await self._ledger.waiting(log, query.limit)
        if len(found) < query.limit:
            found += await self._ledger.newest_first(log, query.limit - len(found), before)
        entries = [_in_inbox(entry) for entry in found]
        return Reply(200, wire.Inbox(user_id, entries, len(entries)))

    async def unread(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        _, user_id, log = _person(request, request.params["user_id"])
        held = await self._ledger.held(log)
        return Reply(200, wire.Unread(user_id, held.total, held.unread))

    async def mark_read(self, request: Request) -> Reply:
        request.query(wire.PersonQuery)
        _, user_id, log = _person(request, request.params["user_id"])
        body = await request.json(wire.ReadBody) if request.bodied else wire.ReadBody()
        return Reply(200, wire.MarkedRead(user_id, await self._ledger.mark_read(log, body.notification_ids)))

    async def acknowledge(self, request: Request) -> Reply:
        query = request.query(wire.PersonQuery)
        body = await request.json(wire.AnswerBody) if request.bodied else wire.AnswerBody()
        _, _, log = _person(request, query.user_id or body.user_id)
        notification_id = request.params["id"]
        if not await self._ledger.acknowledge(log, notification_id):
            raise Problem("NOT_FOUND", "this person was pushed no such notification")
        return Reply(200, wire.Acknowledged(notification_id))


def _person(request: Request, named: str) -> tuple[str | None, str, str]:
    """Whom it is about: whoever the token names, or whom an administrator does; tenant, person and log."""
    caller = request.caller
    if caller.sub is None and request.header(b"sec-fetch-site") == "cross-site":
        # Where nobody is asked who they are, any page somebody looks at could otherwise answer for them.
        raise Problem("FORBIDDEN", "a page of another site may not act here")
    user_id = named or caller.user_id
    if not user_id or not user_id.strip():
        raise Problem("VALIDATION_ERROR", "user_id is required", details=[Detail("required", "user_id")])
    if _UNFIT.search(user_id):
        raise Problem("VALIDATION_ERROR", "user_id has control characters", details=[Detail("not valid", "user_id")])
    if caller.role != "admin" and caller.user_id != user_id:
        raise Problem("FORBIDDEN", "other people's notifications take an administrator's token")
    return caller.tenant_id, user_id, log_of(caller.tenant_id, user_id)


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
            raise unavailable("this replica serves no more streams", _FULL_SECONDS)


def _in_inbox(entry: Entry) -> wire.InboxEntry:
    told = frames.sse_notification(entry)
    return wire.InboxEntry(
        told.notification_id,
        told.event_type,
        told.priority,
        told.event_timestamp,
        _read_payload(told.payload),
        entry.seq or None,
        entry.read,
        entry.delivered,
    )


_read_payload: Callable[[msgspec.Raw], dict[str, object]] = msgspec.json.Decoder(dict[str, object]).decode
