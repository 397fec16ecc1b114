"""A person's rights in the ledger: finding everything about a person, and erasing it."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from carillon.domain.addresses import canonical, unfit
from carillon.domain.consent import bare_address
from carillon.domain.notifications import Story
from carillon.domain.rights import ERASURE, ErasedStep, KnownPerson, Pending, erased_mark
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.streams import log_of
from carillon.ledger.sealing import Codec
from carillon.ledger.upkeep import read_stories

_PAGE = 500
_WINDOW = 2000
"""So many notifications are looked through in one transaction."""
_STORIES = 100
"""So many notifications are read with their messages at once."""
_TENANT_FIELDS = ("tenantId", "tenant_id", "tenant")
_OF_ROUTES = ("erase_attempts_of", "erase_outbox_of")


class _Held(msgspec.Struct, frozen=True):
    """The content of a row of `erasures`."""

    person: str
    addresses: tuple[str, ...]
    actor: str


class RightsStore:
    """Satisfies RightsLedger."""

    engine: Engine
    _codec: Codec

    async def parts(self) -> set[str]:
        return {row["part"] for row in await self.engine.rows("parts_applied")}

    async def person(self, tenant_id: str | None, person: str) -> KnownPerson:
        kind, address = bare_address(person)
        found = KnownPerson(tenant_id=tenant_id, person=person)
        tenant = tenant_id or ""
        rows = await self.engine.rows("person_addresses", {"tenant_id": tenant, "recipient_ref": found.recipient_ref})
        # An id that is an address by its looks is one, whether or not anything was sent to the user.
        addresses = {row["address"] for row in rows} | (
            {address} if kind is not None or _is_address(address) else set()
        )
        if "api" in await self.parts():
            held = [{"tenant_id": tenant, "user_id": self._codec.person(person)}]
            for row in await self.engine.rows("preferences", each=held):
                addresses |= set(json.loads(row["contacts_json"]).values())
        # Rows from before there was a canonical spelling have the given one.
        addresses |= {canonical("email", each) for each in addresses if each and "@" in each}
        # The id of a user is the address of the inbox alone, unless it is one of another channel by its looks.
        known = sorted(each for each in addresses if each and (each != person or _is_address(each)))
        return KnownPerson(tenant_id=tenant_id, person=person, addresses=tuple(known))

    async def stories_of(self, person: KnownPerson, after: str) -> tuple[list[Story], str | None]:
        asked = self._about(person)

        def steps() -> Steps[tuple[list[Story], str | None]]:
            until = yield from _window(after)
            if until is None:
                return [], None
            found = yield Ask("person_notifications", {**asked, "after": after, "until": until})
            ids = [row["notification_id"] for row in found]
            last = ids[_STORIES - 1] if len(ids) > _STORIES else until
            return (yield from read_stories(ids[:_STORIES], None)), last

        stories, until = await self.engine.snapshot(steps)
        return [_own(person, story) for story in stories], until

    async def kept_of(self, person: KnownPerson, what: str) -> list[Row]:
        if what == "audit_logs" and not _has_audit_logs(person):
            return []
        values: dict[str, Row] = {
            "digests": {"tenant_id": person.tenant_id or "", "audiences": self._codec.refs(person.refs)},
            "stream_entries": {"user_id": log_of(person.tenant_id, person.person)},
            "receipts": {"tenant_id": person.tenant_id or "", "addresses": self._addresses(person)},
            "audit_logs": {"user_id": person.person},
        }
        return await self.engine.rows(f"person_{what}", values[what])

    async def begin_erasure(self, pending: Pending, lease_seconds: float) -> None:
        person = pending.person
        held = _Held(person=person.person, addresses=person.addresses, actor=pending.actor)
        values = {
            "subject": pending.subject,
            "tenant_id": person.tenant_id or "",
            "person_json": msgspec.json.encode(held).decode(),
            "lease_seconds": lease_seconds,
        }
        await self.engine.write("begin_erasure", values, repeatable=True)

    async def pending_erasures(self, *, waiting: bool) -> list[Pending]:
        found = []
        for row in await self.engine.rows("pending_erasures", {"waiting": waiting}):
            held = msgspec.json.decode(row["person_json"], type=_Held)
            person = KnownPerson(tenant_id=row["tenant_id"] or None, person=held.person, addresses=held.addresses)
            found.append(Pending(subject=row["subject"], person=person, actor=held.actor))
        return found

    async def end_erasure(self, subject: str) -> None:
        await self.engine.write("end_erasure", {"subject": subject}, repeatable=True)

    async def erase_notifications(self, person: KnownPerson, after: str) -> ErasedStep:
        parts = await self.parts()
        asked = self._about(person)
        return await self.engine.change(lambda: _erase(asked, after, parts), repeatable=True)

    async def mark_suppressions(self, person: KnownPerson, salt: str) -> int:
        def steps() -> Steps[int]:
            found = 0
            for address in person.reached_at:
                found += len((yield Ask("mark_suppressions", self._hashed(person, salt, address))))
            return found

        return await self.engine.change(steps, repeatable=True)

    async def erase_person(self, person: KnownPerson, salt: str) -> dict[str, int]:
        parts = await self.parts()
        return await self.engine.change(lambda: self._erase_rest(person, salt, parts), repeatable=True)

    def _erase_rest(self, person: KnownPerson, salt: str, parts: set[str]) -> Steps[dict[str, int]]:
        removed: dict[str, int] = {}
        yield Ask("overwrite_deleted")
        for table, ask in self._rest(person, parts).items():
            removed[table] = len((yield ask))
        removed["suppressions_kept"] = 0
        for address in person.reached_at:
            hashed = self._hashed(person, salt, address)
            yield Ask("forget_older_marks", {name: hashed[name] for name in ("mark", "address", "tenant_id")})
            kept = yield Ask("hash_suppressions", hashed)
            removed["suppressions_kept"] += len(kept)
        if "api" in parts and person.addresses:
            yield Ask("erase_receipts_to", {"addresses": self._addresses(person)})
        return removed

    def _rest(self, person: KnownPerson, parts: set[str]) -> dict[str, Ask]:
        """What is kept about the person beside notifications, by table."""
        tenant_id, user_id = person.tenant_id or "", log_of(person.tenant_id, person.person)
        refs = self._codec.refs(person.refs)
        audience = {"tenant_id": tenant_id, "audiences": refs}
        asks = {"collapses": Ask("erase_collapses", audience)}
        if "api" in parts:
            whose = {"tenant_id": tenant_id, "people": [self._codec.person(each) for each in person.names]}
            asks["preferences"] = Ask("erase_preferences", whose)
            asks["throttles"] = Ask("erase_throttles", audience)
            asks["digests"] = Ask("erase_digests", audience)
        if "streams" in parts:
            for table in ("stream_entries", "streams", "presence"):
                asks[table] = Ask(f"erase_{table}", {"user_id": user_id})
            ticket = {"user_id": person.person, "tenant_id": person.tenant_id}
            asks["stream_tickets"] = Ask("erase_stream_tickets", ticket)
        if "audit" in parts and _has_audit_logs(person):
            asks["audit_logs"] = Ask("erase_audit_logs", {"user_id": person.person})
        return asks

    def _hashed(self, person: KnownPerson, salt: str, address: str) -> Row:
        mark = self._codec.address(erased_mark(salt, address))
        return {"address": address, "tenant_id": person.tenant_id or "", "mark": mark, "source": ERASURE}

    async def erase_mentions(self, person: KnownPerson) -> dict[str, int]:
        removed = {"malformed_intents": 0, "admin_actions": 0}
        after = ""
        while rows := await self.engine.rows("malformed_after", {"after": after, "limit": _PAGE}):
            after = rows[-1]["stream_entry_id"]
            named = [row["stream_entry_id"] for row in rows if _names(person, row)]
            if named:
                gone = await self.engine.write("erase_malformed", {"entries": named}, repeatable=True)
                removed["malformed_intents"] += len(gone)
        if "api" in await self.parts():
            removed["admin_actions"] = await self._clean_actions(person)
        return removed

    async def _clean_actions(self, person: KnownPerson) -> int:
        cleaned, asked = 0, {"action_id": 0, "limit": _PAGE, "tenant_id": person.tenant_id or ""}
        while rows := await self.engine.rows("actions_after", asked):
            asked["action_id"] = rows[-1]["action_id"]
            for row in rows:
                texts = {name: _read(row[name]) for name in ("subject", "reason", "detail_json")}
                if person.mentioned(texts):
                    clean = {name: _written(person.without(value)) for name, value in texts.items()}
                    await self.engine.write("clean_action", {"action_id": row["action_id"], **clean}, repeatable=True)
                    cleaned += 1
        return cleaned

    def _about(self, person: KnownPerson) -> Row:
        return {
            "tenant_id": person.tenant_id or "",
            "user_id": person.person,
            "refs": self._codec.refs(person.refs),
            "addresses": self._addresses(person),
        }

    def _addresses(self, person: KnownPerson) -> list[str | None]:
        return [self._codec.address(each) for each in person.addresses]


def _is_address(text: str) -> bool:
    return unfit("email", text) is None or unfit("sms", text) is None


def _has_audit_logs(person: KnownPerson) -> bool:
    """The push worker, whose they are, knows no tenants."""
    return person.tenant_id is None


def _window(after: str) -> Steps[str | None]:
    (row,) = yield Ask("person_window", {"after": after, "window": _WINDOW})
    until: str | None = row["until"]
    return until


def _erase(asked: Row, after: str, parts: set[str]) -> Steps[ErasedStep]:
    until = yield from _window(after)
    if until is None:
        return ErasedStep({}, None)
    found = yield Ask("person_notifications", {**asked, "after": after, "until": until})
    if not found:
        return ErasedStep({}, until)
    yield Ask("overwrite_deleted")
    whole = {"notification_ids": [row["notification_id"] for row in found if row["whole"]]}
    shared = {"notification_ids": [row["notification_id"] for row in found if not row["whole"]]}
    removed = {"records": len(whole["notification_ids"]), "routes": 0}
    streams = ("prune_stream_note", "prune_stream") if "streams" in parts else ()
    receipts = ("erase_receipts", "erase_members") if "api" in parts else ()
    for statement in ("prune_attempts", "erase_outbox", *receipts, *streams, "erase_records"):
        yield Ask(statement, whole)
    if shared["notification_ids"]:
        gone = yield Ask("erase_routes", {"refs": asked["refs"], "addresses": asked["addresses"], **shared})
        removed["routes"] = len(gone)
        each = [{"notification_id": row["notification_id"], "route_id": row["route_id"]} for row in gone]
        of_routes = (*_OF_ROUTES, *(("erase_receipts_of",) if "api" in parts else ()))
        for statement in of_routes if each else ():
            yield Ask(statement, each=each)
        yield Ask("erase_audience", {**shared, "user_id": asked["user_id"]})
    return ErasedStep(removed, until)


def _own(person: KnownPerson, story: Story) -> Story:
    """The story without the routes, the attempts and the names of others."""
    routes = [row for row in story.routes if person.owns(row["recipient_ref"], row["address"])]
    ids = {row["route_id"] for row in routes}
    attempts = [row for row in story.attempts if row["route_id"] in ids]
    return msgspec.structs.replace(story, routes=routes, attempts=attempts)


def _names(person: KnownPerson, row: Row) -> bool:
    """Whether a malformed intent names the person, and no other tenant."""
    raw = _read(row["raw_fields"])
    tenants = set(_tenants(raw))
    if tenants and (person.tenant_id or "") not in tenants:
        return False
    return person.mentioned([raw, row["idempotency_key"], row["failure_message"]])


def _tenants(raw: object) -> Iterator[str]:
    if isinstance(raw, dict):
        for name, value in raw.items():
            if name in _TENANT_FIELDS and isinstance(value, str):
                yield value
            else:
                yield from _tenants(value)


def _read(value: Any) -> Any:  # noqa: ANN401 - a text or JSON
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _written(value: Any) -> str | None:  # noqa: ANN401 - a text or JSON
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
