"""A person's rights over HTTP and by hand: everything about a person as lines of JSON, and its erasure."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.admin import AdminAction, AdminLedger
from carillon.domain.errors import ArchiveUnavailable
from carillon.domain.people import PreferenceLedger
from carillon.domain.ports import UpkeepLedger
from carillon.domain.rights import ERASURE, Erasure, KnownPerson, RightsLedger, erased_mark, salt_of
from carillon.domain.suppressions import SuppressionLedger
from carillon.upkeep.api.notifications_wire import notification_view
from carillon.upkeep.api.preferences import TenantId
from carillon.web import About, Answer, Callers, Endpoint, Reply, Request, in_query

PAGE = 200
LINES = "application/x-ndjson"
_PATH = "/api/v1/people/{id}"
_ABOUT = About(callers=Callers.ADMINISTRATORS, tenant=in_query("tenantId"))
_json = msgspec.json.Encoder()

Call = Callable[[Request], Awaitable[Reply]]
Forget = Callable[[str | None, str], Awaitable[None]]
"""Removes a person from the history; raises ArchiveUnavailable."""


class PeopleLedger(RightsLedger, PreferenceLedger, SuppressionLedger, UpkeepLedger, AdminLedger, Protocol):
    """All that is known about people."""


class PeopleQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The person's tenant; only for administrators without a tenant."""

    tenant_id: TenantId | UnsetType = UNSET


class ErasureView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What was erased, by table; `unfinished` names what could not be reached: ask again."""

    finished: bool
    removed: dict[str, int]
    suppressions_kept: int
    unfinished: list[str]


def erasure_view(erasure: Erasure) -> ErasureView:
    return ErasureView(
        finished=erasure.finished,
        removed=erasure.removed,
        suppressions_kept=erasure.suppressions_kept,
        unfinished=list(erasure.unfinished),
    )


async def exported(ledger: PeopleLedger, tenant_id: str | None, person_id: str) -> AsyncIterator[dict[str, Any]]:
    """Everything about a person, one thing at a time; `what` says what it is."""
    person = await ledger.person(tenant_id, person_id)
    yield {"what": "person", "id": person_id, "tenantId": tenant_id, "addresses": list(person.addresses)}
    (held,) = await ledger.preferences([(tenant_id, person_id)])
    if held is not None:
        yield {"what": "preferences", **msgspec.to_builtins(held)}
    for address in person.addresses:
        rows, _ = await ledger.suppressions({"address": address, "tenant_id": tenant_id or ""}, PAGE, 0)
        for row in rows:
            yield {"what": "suppression", **{name: value for name, value in row.items() if name != "total"}}
    after = ""
    while ids := await ledger.notifications_of(person, after, PAGE):
        after = ids[-1]
        for notification_id in ids:
            story = await ledger.story(notification_id, None)
            if story is not None:
                own = [row for row in story.routes if _is_own(person, row)]
                view = notification_view(msgspec.structs.replace(story, routes=own), ("attempts", "message"))
                yield {"what": "notification", **msgspec.to_builtins(view)}


async def erase(
    ledger: PeopleLedger, tenant_id: str | None, person_id: str, actor: str, forget: Forget | None = None
) -> Erasure:
    """Erase a person; repeated after a crash or a failure, it goes on where it was. The trail keeps a salted hash."""
    person = await ledger.person(tenant_id, person_id)
    salt = await _salt(ledger)
    subject = erased_mark(salt, f"{tenant_id or ''}/{person_id}")
    action = AdminAction(actor=actor, action="erase", tenant_id=tenant_id, subject=subject)
    await ledger.note_action(msgspec.structs.replace(action, detail={"finished": False}))
    removed: dict[str, int] = {}
    while page := await ledger.erase_notifications(person, PAGE):
        removed = _sum(removed, page)
    removed = _sum(removed, await ledger.erase_person(person, salt))
    removed = _sum(removed, await ledger.erase_mentions(person))
    kept, unfinished = removed.pop("suppressions_kept", 0), []
    if forget is not None:
        try:
            await forget(tenant_id, person_id)
        except ArchiveUnavailable:
            unfinished.append("history")
    found = Erasure(removed=removed, suppressions_kept=kept, unfinished=tuple(unfinished))
    detail = {"finished": found.finished, "unfinished": unfinished, "removed": removed, "suppressionsKept": kept}
    await ledger.note_action(msgspec.structs.replace(action, detail=detail))
    return found


def endpoints(ledger: PeopleLedger, forget: Forget | None) -> list[Endpoint]:
    """Export and erasure, for administrators."""

    async def export(request: Request) -> Reply:
        request.query(PeopleQuery)
        things = exported(ledger, request.reach.tenant_id, request.params["id"])
        lines = [_json.encode(thing) async for thing in things]
        return Reply(200, b"\n".join(lines) + b"\n", {"Cache-Control": "no-store"}, LINES)

    async def remove(request: Request) -> Reply:
        request.query(PeopleQuery)
        actor = request.caller.sub or "operator"
        return Reply(
            200, erasure_view(await erase(ledger, request.reach.tenant_id, request.params["id"], actor, forget))
        )

    return _declared(export, remove)


def _declared(export: Call, remove: Call) -> list[Endpoint]:
    shared: dict[str, Any] = {
        "tag": "People",
        "about": _ABOUT,
        "query": PeopleQuery,
        "path_examples": {"id": "ada"},
    }
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/export",
            call=export,
            name="exportPerson",
            summary="Everything about a person",
            description="Lines of JSON: the person, preferences, suppressions and every notification.",
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
                "hashes. Safe to repeat: where `finished` is false, or no answer came, ask again."
            ),
            answers=(Answer(status=200, description="What was erased", kind=ErasureView),),
            **shared,
        ),
    ]


def _is_own(person: KnownPerson, row: dict[str, Any]) -> bool:
    return row["recipient_ref"] == person.recipient_ref or row["address"] in person.addresses


async def _salt(ledger: SuppressionLedger) -> str:
    """One salt for all: an acceptance hashes each address once."""
    rows, _ = await ledger.suppressions({"source": ERASURE}, 1, 0)
    return salt_of(rows[0]["address"]) if rows else secrets.token_hex(8)


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
