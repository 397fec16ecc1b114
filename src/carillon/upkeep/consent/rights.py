"""A person's rights over HTTP and by hand: everything about a person as lines of JSON, and its erasure."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.admin import AdminAction, AdminLedger
from carillon.domain.consent import person_spellings
from carillon.domain.errors import ArchiveUnavailable, LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.people import PreferenceLedger
from carillon.domain.ports import Clock, Observer
from carillon.domain.rights import (
    ERASURE,
    MARKS_FRESH_SECONDS,
    Erasure,
    KnownPerson,
    Pending,
    RightsLedger,
    erased_mark,
    salt_of,
)
from carillon.domain.suppressions import SuppressionLedger
from carillon.faultpoint import faultpoint
from carillon.upkeep.api.notifications_wire import notification_view
from carillon.upkeep.api.preferences import TenantId
from carillon.web import LONGEST_PERSON, About, Answer, BrokenOff, Callers, Endpoint, Outlet, Reply, Request, in_query
from carillon.web.problems import rfc3339_ms

LINES = "application/x-ndjson"
LEASE_SECONDS = 10.0
"""After so long without a step, another process goes on with an erasure."""
LOOK_SECONDS = 15.0
MARKS_KNOWN_SECONDS = MARKS_FRESH_SECONDS + 1.0
"""After so long every process knows a salted hash, and what it had begun before has been stored."""
AWAY_SECONDS = 300.0
"""So long an erasure waits for a history that cannot be reached."""
_PATH = "/api/v1/people/{id}"
_ABOUT = About(callers=Callers.ADMINISTRATORS, tenant=in_query("tenantId"))
_MOST_SUPPRESSIONS = 1000
_PIECE_BYTES = 64 * 1024
_KEPT = {"digests": "api", "stream_entries": "streams", "receipts": "api", "audit_logs": "audit"}
"""Rows beside notifications that an export has, and the part of the ledger that they are in."""
_WHAT = {"digests": "digest", "stream_entries": "streamEntry", "receipts": "receipt", "audit_logs": "auditEntry"}
_json = msgspec.json.Encoder()

Call = Callable[[Request], Awaitable[Reply]]
Forget = Callable[[KnownPerson], Awaitable[None]]
"""Removes a person from a place beside the ledger; raises ArchiveUnavailable."""
Places = Mapping[str, Forget]
"""The places beside the ledger that keep something about people, by the name under which they are unfinished."""
NO_PLACES: Places = MappingProxyType({})


class PeopleLedger(RightsLedger, PreferenceLedger, SuppressionLedger, AdminLedger, Protocol):
    """All that is known about people."""


class PeopleQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The person's tenant; only for administrators without a tenant."""

    tenant_id: TenantId | UnsetType = UNSET


class OutsidePlace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A place that may still name the person, and is not Carillon's to empty."""

    place: str
    """The stream, topic or queue."""
    holds: str
    """What is in it."""
    kept: str
    """When that ends."""


class ErasureView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What was erased, by table; `unfinished` names what could not be reached or still runs: ask again."""

    finished: bool
    removed: dict[str, int]
    suppressions_kept: int
    unfinished: list[str]
    outside: list[OutsidePlace]
    """Places that may still name the person, and are not Carillon's to empty; each says when that ends."""


def erasure_view(erasure: Erasure, outside: Sequence[OutsidePlace]) -> ErasureView:
    return ErasureView(
        outside=list(outside),
        finished=erasure.finished,
        removed=erasure.removed,
        suppressions_kept=erasure.suppressions_kept,
        unfinished=list(erasure.unfinished),
    )


async def exported(ledger: PeopleLedger, tenant_id: str | None, person_id: str) -> AsyncIterator[dict[str, Any]]:
    """Everything about a person, one thing at a time; `what` says what it is. The last is `end`, with the count."""
    count = 0
    async for thing in _things(ledger, await ledger.person(tenant_id, person_id)):
        count += 1
        yield thing
    yield {"what": "end", "count": count}


async def _things(ledger: PeopleLedger, person: KnownPerson) -> AsyncIterator[dict[str, Any]]:
    tenant_id, parts = person.tenant_id, await ledger.parts()
    yield {"what": "person", "id": person.person, "tenantId": tenant_id, "addresses": list(person.addresses)}
    whose = _spelled(person.names) if "api" in parts else []
    for held in await ledger.preferences([(tenant_id, name) for name in whose]):
        if held is not None:
            yield {"what": "preferences", **_camel(msgspec.to_builtins(held))}
    for address in person.reached_at:
        asked = {"address": address, "tenant_id": tenant_id or ""}
        inbox = {} if address in person.addresses else {"channel": "inApp"}
        rows, _ = await ledger.suppressions(asked | inbox, _MOST_SUPPRESSIONS, 0)
        for row in rows:
            yield {"what": "suppression", **_camel({name: row[name] for name in row if name != "total"})}
    for table, part in _KEPT.items():
        for row in await ledger.kept_of(person, table) if part in parts else ():
            yield {"what": _WHAT[table], **_camel(row)}
    after: str | None = ""
    while after is not None:
        stories, after = await ledger.stories_of(person, after)
        for story in stories:
            view = notification_view(story, ("attempts", "message"))
            yield {"what": "notification", **msgspec.to_builtins(view)}


def _spelled(names: Iterable[str]) -> list[str]:
    """Each name once: asked for in another spelling than the canonical one, it is found under both."""
    found: dict[str, str] = {}
    for name in names:
        kept = person_spellings(name)[0]
        if kept not in found or name != kept:
            found[kept] = name
    return list(found.values())


def _camel(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the API spells it; names inside of categories and contacts are people's own words."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        first, *others = name.split("_")
        if name.endswith("_at") and isinstance(value, int):
            value = rfc3339_ms(value)  # noqa: PLW2901 - the same moment, as the API writes it
        elif name == "quiet_hours" and value is not None:
            value = _camel(value)  # noqa: PLW2901 - the same hours
        found[first + "".join(other.title() for other in others)] = value
    return found


async def erase(
    ledger: PeopleLedger,
    clock: Clock,
    tenant_id: str | None,
    person_id: str,
    *,
    actor: str,
    places: Places = NO_PLACES,
) -> Erasure:
    """Erase a person; repeated after a crash or a failure, it goes on where it was. The trail keeps a salted hash."""
    begun = await ledger.pending_erasures(waiting=False)
    salt = await _salt(ledger, begun)
    subject = erased_mark(salt, f"{tenant_id or ''}/{person_id}")
    person = await ledger.person(tenant_id, person_id)
    known = {each for held in begun if held.subject == subject for each in held.person.addresses}
    # What an earlier try knew counts: its routes may be gone, and with them the only trace of an address.
    person = msgspec.structs.replace(person, addresses=tuple(sorted({*person.addresses, *known})))
    return await finish(ledger, clock, Pending(subject=subject, person=person, actor=actor), places)


async def finish(ledger: PeopleLedger, clock: Clock, pending: Pending, places: Places) -> Erasure:
    """Run an erasure from its beginning; what is gone already costs a look."""
    person, salt = pending.person, salt_of(pending.subject)
    await ledger.begin_erasure(pending, LEASE_SECONDS)
    await _note(ledger, pending, {"finished": False})
    faultpoint("erasure_begun")
    everywhere_at = clock.monotonic() + MARKS_KNOWN_SECONDS
    marked = await ledger.mark_suppressions(person, salt)
    removed = await _erase_notifications(ledger, pending)
    faultpoint("erasure_notifications")
    if marked:
        # A process that has not read the marks yet still finds the suppressions: no send to them slips in between.
        await ledger.begin_erasure(pending, LEASE_SECONDS)
        await clock.sleep(max(0.0, everywhere_at - clock.monotonic()))
    removed = _sum(removed, await ledger.erase_person(person, salt))
    faultpoint("erasure_person")
    removed = _sum(removed, await ledger.erase_mentions(person))
    # A digest may have been told, and a notification accepted, while the rest went.
    removed = _sum(removed, await _erase_notifications(ledger, pending))
    faultpoint("erasure_mentions")
    kept, unfinished = removed.pop("suppressions_kept", 0), []
    for place, forget in places.items():
        try:
            await forget(person)
        except ArchiveUnavailable:
            unfinished.append(place)
    faultpoint("erasure_history")
    found = Erasure(removed=removed, suppressions_kept=kept, unfinished=tuple(unfinished))
    detail = {"finished": found.finished, "unfinished": unfinished, "removed": removed, "suppressionsKept": kept}
    await _note(ledger, pending, detail)
    faultpoint("erasure_noted")
    if found.finished:
        await ledger.end_erasure(pending.subject)
    else:
        await ledger.begin_erasure(pending, AWAY_SECONDS)
    return found


async def _erase_notifications(ledger: PeopleLedger, pending: Pending) -> dict[str, int]:
    """Look through all notifications, again and again until a whole look finds none about the person."""
    removed: dict[str, int] = {}
    while True:
        before, after = dict(removed), ""
        while (step := await ledger.erase_notifications(pending.person, after)).after is not None:
            after = step.after
            if step.rows:
                removed = _sum(removed, step.rows)
                faultpoint("erasure_window")
                await ledger.begin_erasure(pending, LEASE_SECONDS)
        if removed == before:
            return removed


async def _note(ledger: PeopleLedger, pending: Pending, detail: dict[str, Any]) -> None:
    if "api" in await ledger.parts():
        tenant_id = pending.person.tenant_id
        action = AdminAction(actor=pending.actor, action="erase", tenant_id=tenant_id, subject=pending.subject)
        await ledger.note_action(msgspec.structs.replace(action, detail=detail))


class UnfinishedErasures:
    """Goes on with the erasures of processes that died, and with those that could not reach every place."""

    def __init__(self, ledger: PeopleLedger, places: Places, clock: Clock, observer: Observer) -> None:
        self._ledger = ledger
        self._places = places
        self._clock = clock
        self._observe = observer

    async def run(self) -> None:
        """Look at the start, and then again and again until cancelled."""
        waiting = False
        while True:
            try:
                await self.look(waiting=waiting)
                waiting = True
            except LedgerUnavailable as error:
                self._observe(Trouble(where="erasures", error=str(error), retry_in_seconds=LOOK_SECONDS))
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self, *, waiting: bool) -> int:
        """Finish what can be finished; how many. A process that starts waits for no lease: the dead one may hold it."""
        finished = 0
        for pending in await self._ledger.pending_erasures(waiting=waiting):
            found = await finish(self._ledger, self._clock, pending, self._places)
            finished += found.finished
            if not found.finished:
                where = ", ".join(found.unfinished)
                said = f"an erasure is not finished: {where} cannot be reached, or holds messages that still run"
                self._observe(Trouble(where="erasures", error=said, retry_in_seconds=LOOK_SECONDS))
        return finished


def endpoints(
    ledger: PeopleLedger, clock: Clock, places: Places, outside: Sequence[OutsidePlace] = ()
) -> list[Endpoint]:
    """Export and erasure, for administrators; an erasure empties `places`, and names those that are `outside`."""

    async def export(request: Request) -> Reply:
        request.query(PeopleQuery)
        things = exported(ledger, request.reach.tenant_id, request.params["id"])
        # Asked before the answer begins: a ledger that is away is a 503, and not an answer that breaks off.
        first = await anext(things)

        async def pour(outlet: Outlet) -> None:
            piece = _line(first)
            try:
                async for thing in things:
                    piece += _line(thing)
                    if len(piece) >= _PIECE_BYTES or thing["what"] == "end":
                        await outlet.write(piece)
                        piece = b""
                    if outlet.over.is_set() and thing["what"] != "end":
                        raise BrokenOff("the process stops")
            except LedgerUnavailable as error:
                raise BrokenOff(str(error)) from error

        return Reply(200, pour, {"Cache-Control": "no-store"}, LINES)

    async def remove(request: Request) -> Reply:
        request.query(PeopleQuery)
        actor = request.caller.actor
        whose, person = request.reach.tenant_id, request.params["id"]
        found = await erase(ledger, clock, whose, person, actor=actor, places=places)
        return Reply(200, erasure_view(found, outside))

    return _declared(export, remove)


def _line(thing: Mapping[str, Any]) -> bytes:
    return _json.encode(thing) + b"\n"


def _declared(export: Call, remove: Call) -> list[Endpoint]:
    shared: dict[str, Any] = {
        "tag": "People",
        "about": _ABOUT,
        "query": PeopleQuery,
        "path_examples": {"id": "ada"},
        "longest": LONGEST_PERSON,
    }
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/export",
            call=export,
            name="exportPerson",
            summary="Everything about a person",
            description=(
                "Lines of JSON, written as they are read: the person, preferences, suppressions, open digests, stream "
                "entries, receipts and every notification. The last line is `end` with the count of the others: "
                "without it the answer was cut off."
            ),
            answers=(Answer(status=200, description="The lines", media_type=LINES),),
            **shared,
        ),
        Endpoint(
            method="DELETE",
            path=_PATH,
            call=remove,
            name="erasePerson",
            summary="Erase a person",
            description=(
                "Removes the person's notifications, preferences, streams and digests. Suppressions stay under salted "
                "hashes. Safe to repeat: where `finished` is false, or no answer came, ask again. `outside` names the "
                "streams, topics and queues of others that may still name the person."
            ),
            answers=(Answer(status=200, description="What was erased", kind=ErasureView),),
            **shared,
        ),
    ]


async def _salt(ledger: SuppressionLedger, begun: Iterable[Pending]) -> str:
    """One salt for all: an acceptance hashes each address once."""
    for pending in begun:
        return salt_of(pending.subject)
    rows, _ = await ledger.suppressions({"source": ERASURE}, 1, 0)
    return salt_of(rows[0]["address"]) if rows else secrets.token_hex(8)


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
