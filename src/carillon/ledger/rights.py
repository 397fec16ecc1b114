"""A person's rights in the ledger: finding everything about a person, and erasing it."""

import json
from typing import Any

from carillon.domain.consent import bare_address
from carillon.domain.rights import ERASURE, KnownPerson, erased_mark
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.streams import log_of
from carillon.ledger.sealing import Codec

_PAGE = 500
_OF_ROUTES = ("erase_attempts_of", "erase_outbox_of")


class RightsStore:
    """Satisfies RightsLedger."""

    engine: Engine
    _codec: Codec

    async def person(self, tenant_id: str | None, person: str) -> KnownPerson:
        kind, address = bare_address(person)
        found = KnownPerson(tenant_id=tenant_id, person=person)
        rows = await self.engine.rows(
            "person_addresses", {"tenant_id": tenant_id or "", "recipient_ref": found.recipient_ref}
        )
        addresses = {row["address"] for row in rows} | ({address} if kind is not None else set())
        contacts = await self.engine.rows(
            "preferences", each=[{"tenant_id": tenant_id or "", "user_id": self._codec.person(person)}]
        )
        for row in contacts:
            addresses |= set(json.loads(row["contacts_json"]).values())
        known = sorted(each for each in addresses if each and each != person)
        return KnownPerson(tenant_id=tenant_id, person=person, addresses=tuple(known))

    async def notifications_of(self, person: KnownPerson, after: str, limit: int) -> list[str]:
        rows = await self.engine.rows("person_notifications", self._about(person) | {"after": after, "limit": limit})
        return [row["notification_id"] for row in rows]

    async def erase_notifications(self, person: KnownPerson, limit: int) -> dict[str, int]:
        parts = await self._brought()
        asked = self._about(person) | {"after": "", "limit": limit}
        return await self.engine.change(lambda: self._erase(asked, parts), repeatable=True)

    def _erase(self, asked: Row, parts: set[str]) -> Steps[dict[str, int]]:
        found = yield Ask("person_notifications", asked)
        if not found:
            return {}
        whole = {"notification_ids": [row["notification_id"] for row in found if row["whole"]]}
        shared = {"notification_ids": [row["notification_id"] for row in found if not row["whole"]]}
        removed = {"records": len(whole["notification_ids"]), "routes": 0}
        streams = ("prune_stream_note", "prune_stream") if "streams" in parts else ()
        receipts = ("erase_receipts", "erase_members") if "api" in parts else ()
        for statement in ("prune_attempts", "erase_outbox", *receipts, *streams, "erase_records"):
            yield Ask(statement, whole)
        if shared["notification_ids"]:
            gone = yield Ask("erase_routes", {**asked, **shared})
            removed["routes"] = len(gone)
            each = [{"notification_id": row["notification_id"], "route_id": row["route_id"]} for row in gone]
            of_routes = (*_OF_ROUTES, *(("erase_receipts_of",) if "api" in parts else ()))
            for statement in of_routes if each else ():
                yield Ask(statement, each=each)
            yield Ask("erase_audience", {**shared, "user_id": asked["user_id"]})
        return removed

    async def erase_person(self, person: KnownPerson, salt: str) -> dict[str, int]:
        parts = await self._brought()
        return await self.engine.change(lambda: self._erase_rest(person, salt, parts), repeatable=True)

    def _erase_rest(self, person: KnownPerson, salt: str, parts: set[str]) -> Steps[dict[str, int]]:
        removed: dict[str, int] = {}
        log = log_of(person.tenant_id, person.person)
        whose = {"tenant_id": person.tenant_id or "", "user_id": self._codec.person(person.person)}
        asks = {"preferences": Ask("erase_preferences", whose)}
        audience = {"tenant_id": person.tenant_id or "", "audience": person.recipient_ref}
        asks["collapses"] = Ask("erase_collapses", audience)
        asks["throttles"] = Ask("erase_throttles", audience)
        if "api" in parts:
            asks["digests"] = Ask("erase_digests", audience)
        if "streams" in parts:
            for table in ("stream_entries", "streams", "presence"):
                asks[table] = Ask(f"erase_{table}", {"user_id": log})
            asks["stream_tickets"] = Ask(
                "erase_stream_tickets", {"user_id": person.person, "tenant_id": person.tenant_id}
            )
        if "audit" in parts:
            asks["audit_logs"] = Ask("erase_audit_logs", {"user_id": person.person})
        for table, ask in asks.items():
            removed[table] = len((yield ask))
        removed["suppressions_kept"] = 0
        for address in person.addresses:
            hashed = self._hashed(person, salt, address)
            yield Ask("forget_older_marks", {name: hashed[name] for name in ("mark", "address", "tenant_id")})
            kept = yield Ask("hash_suppressions", hashed)
            removed["suppressions_kept"] += len(kept)
        if "api" in parts and person.addresses:
            yield Ask("erase_receipts_to", {"addresses": [self._codec.address(each) for each in person.addresses]})
        return removed

    def _hashed(self, person: KnownPerson, salt: str, address: str) -> Row:
        mark = self._codec.address(erased_mark(salt, address))
        return {"address": address, "tenant_id": person.tenant_id or "", "mark": mark, "source": ERASURE}

    async def erase_mentions(self, person: KnownPerson) -> dict[str, int]:
        removed = {"malformed_intents": 0, "admin_actions": 0}
        after: str = ""
        while rows := await self.engine.rows("malformed_after", {"after": after, "limit": _PAGE}):
            after = rows[-1]["stream_entry_id"]
            named = [row["stream_entry_id"] for row in rows if person.mentioned(_text(row))]
            if named:
                gone = await self.engine.write("erase_malformed", {"entries": named}, repeatable=True)
                removed["malformed_intents"] += len(gone)
        if "api" not in await self._brought():
            return removed
        last = 0
        while rows := await self.engine.rows("actions_after", {"action_id": last, "limit": _PAGE}):
            last = rows[-1]["action_id"]
            for row in rows:
                if person.mentioned(_text(row)):
                    clean = {name: _without(person, row[name]) for name in ("subject", "reason", "detail_json")}
                    await self.engine.write("clean_action", {"action_id": row["action_id"], **clean}, repeatable=True)
                    removed["admin_actions"] += 1
        return removed

    def _about(self, person: KnownPerson) -> Row:
        return {
            "tenant_id": person.tenant_id or "",
            "user_id": person.person,
            "recipient_ref": person.recipient_ref,
            "addresses": [self._codec.address(each) for each in person.addresses],
        }

    async def _brought(self) -> set[str]:
        return {row["part"] for row in await self.engine.rows("parts_applied")}


def _text(row: Row) -> str:
    return " ".join(value if isinstance(value, str) else json.dumps(value) for value in row.values() if value)


def _without(person: KnownPerson, value: Any) -> str | None:  # noqa: ANN401 - a text or JSON
    if value is None:
        return None
    return person.without(value if isinstance(value, str) else json.dumps(value))
