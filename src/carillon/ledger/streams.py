"""Live streams: reading a person's log, presence and tickets; each engine appends to logs in its own way."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.claims import Claim
from carillon.domain.content.shown import inbox_payload
from carillon.domain.notifications import Message
from carillon.domain.ports import Signal
from carillon.domain.store import Ask, Engine, Row, Steps, Values
from carillon.domain.streams import Bounds, Entry, InboxCounts, Ticket, person_of

FORGOTTEN_SECONDS = 300.0
"""How long a replica's rows stay after its last renewal."""


class StreamStore:
    """With an engine's own `in_turn`, `append` and `acknowledge` it satisfies StreamLedger and Presence."""

    engine: Engine
    signal: Signal

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        return await self._entries("read", {"user_id": user_id, "after": after, "limit": limit})

    async def newest_first(
        self, user_id: str, limit: int, before: int | None = None, *, archived: bool = False
    ) -> list[Entry]:
        values = {"user_id": user_id, "before": before, "limit": limit, "archived": archived}
        return await self._entries("newest_first", values)

    async def waiting(self, user_id: str, limit: int, after_id: str | None = None) -> list[Entry]:
        (first, tenant_id), (second, _) = _recipients([user_id])
        values: dict[str, Any] = {"user_id": user_id, "recipients": [first, second], "tenant_id": tenant_id}
        values |= {"limit": limit, "after_id": after_id}
        return await self._entries("waiting", values)

    async def bounds(self, user_ids: Collection[str]) -> dict[str, Bounds]:
        rows = await self.engine.rows("bounds", {"user_ids": list(user_ids)})
        found = {row["user_id"]: Bounds(row["oldest"], row["newest"], row["unsettled"]) for row in rows}
        return {user_id: found.get(user_id, Bounds()) for user_id in user_ids}

    async def inbox_counts(self, user_id: str) -> InboxCounts:
        (first, tenant_id), (second, _) = _recipients([user_id])
        values = {"user_id": user_id, "recipients": [first, second], "tenant_id": tenant_id}
        (row,) = await self.engine.rows("inbox_counts", values)
        return InboxCounts(row["total"] + row["waiting"], row["unread"] + row["waiting"])

    async def unread_of_chains(
        self, user_id: str, notification_ids: Sequence[str] | None, limit: int
    ) -> list[tuple[str, str, str]]:
        named = None if notification_ids is None else list(notification_ids)
        values = {"user_id": user_id, "notification_ids": named, "limit": limit}
        rows = await self.engine.rows("unread_of_chains", values)
        return [(row["notification_id"], row["route_id"], row["provider"]) for row in rows]

    async def mark_read(self, user_id: str, notification_ids: Sequence[str] | None, *, read: bool = True) -> int:
        return await self._mark("mark_read" if read else "mark_unread", user_id, notification_ids)

    async def archive(self, user_id: str, notification_ids: Sequence[str] | None, *, archived: bool = True) -> int:
        return await self._mark("archive" if archived else "unarchive", user_id, notification_ids)

    async def _mark(self, statement: str, user_id: str, notification_ids: Sequence[str] | None) -> int:
        named = None if notification_ids is None else list(notification_ids)
        values = {"user_id": user_id, "notification_ids": named}
        return len(await self.engine.write(statement, values, repeatable=True))

    async def wake(self, user_ids: Collection[str]) -> int:
        people = [{"recipient_ref": ref, "tenant_id": tenant_id} for ref, tenant_id in _recipients(user_ids)]
        woken = len(await self.engine.write("wake", each=people, repeatable=True)) if people else 0
        if woken:
            self.signal.ring()
        return woken

    async def arrive(self, replica: str, user_ids: Collection[str]) -> None:
        await self._each_person("arrive", replica, user_ids)

    async def leave(self, replica: str, user_ids: Collection[str]) -> None:
        await self._each_person("leave", replica, user_ids)

    async def renew(self, replica: str, seconds: float) -> bool:
        """Keep the replica for `seconds`; False if it was removed and must announce its people again."""
        values = {"replica": replica, "seconds": seconds}
        known = await self.engine.write("renew", values, repeatable=False, pool="settlements")
        if not known:
            await self.engine.write("enter_replica", values, repeatable=False, pool="settlements")
        await self.engine.change(_forget_replicas, repeatable=True)
        return bool(known)

    async def where(self, user_ids: Collection[str]) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for row in await self.engine.rows("where", {"user_ids": list(user_ids)}, pool="claims"):
            found.setdefault(row["user_id"], set()).add(row["replica"])
        return {user_id: frozenset(replicas) for user_id, replicas in found.items()}

    async def _entries(self, statement: str, values: Values) -> list[Entry]:
        return [_entry(row) for row in await self.engine.rows(statement, values)]

    async def _each_person(self, statement: str, replica: str, user_ids: Collection[str]) -> None:
        people = [{"user_id": user_id} for user_id in sorted(set(user_ids))]
        await self.engine.write(statement, {"replica": replica}, each=people, repeatable=True, pool="claims")


def each_once(claims: Sequence[Claim]) -> list[Claim]:
    """The claims without repeated routes, because one statement cannot give a route two numbers."""
    return list({claim.key: claim for claim in claims}.values())


def in_order(claims: Sequence[Claim], keys: Iterable[tuple[str, str]]) -> list[Claim]:
    """The claims of these routes, in the order of the keys; repeated claims of one route stay together."""
    of_route: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        of_route.setdefault(claim.key, []).append(claim)
    return [claim for key in dict.fromkeys(keys) for claim in of_route[key]]


def appended(claim: Claim, user_id: str, row: Mapping[str, Any]) -> Entry:
    """The entry of a claim in its person's log."""
    return Entry(
        user_id=user_id,
        seq=row["seq"],
        notification_id=claim.notification_id,
        event_type=claim.notification_type,
        priority=row["priority"],
        event_timestamp_ms=row["event_timestamp_ms"],
        payload_json=claim.payload_json if claim.channel != "inApp" else _shown(claim.message_json),
        read=bool(row["read"]),
        delivered=bool(row["delivered"]),
    )


def _entry(row: Row) -> Entry:
    return Entry(
        user_id=row["user_id"],
        seq=row["seq"],
        notification_id=row["notification_id"],
        event_type=row["notification_type"],
        priority=row["priority"],
        event_timestamp_ms=row["event_timestamp_ms"],
        payload_json=row["payload_json"] if row["message_json"] is None else _shown(row["message_json"]),
        read=bool(row["read"]),
        delivered=bool(row["delivered"]),
        archived=bool(row["archived"]),
    )


_read_message = msgspec.json.Decoder(Message).decode


def _shown(message_json: str | None) -> str:
    """A message of the inbox under the names that a payload of the stream has."""
    return "{}" if message_json is None else msgspec.json.encode(inbox_payload(_read_message(message_json))).decode()


def _forget_replicas() -> Steps[None]:
    gone = yield Ask("forget_replicas", {"seconds": FORGOTTEN_SECONDS})
    if gone:
        yield Ask("forget_presence", {"replicas": [row["replica"] for row in gone]})


def _recipients(user_ids: Iterable[str]) -> list[tuple[str, str | None]]:
    """The recipients and tenants under which the routes of these logs are enrolled."""
    found: list[tuple[str, str | None]] = []
    for tenant_id, user_id in sorted(map(person_of, user_ids), key=lambda each: (each[0] or "", each[1])):
        found += [(user_id, tenant_id), (f"user:{user_id}", tenant_id)]
    return found


class TicketStore:
    """Satisfies TicketLedger."""

    engine: Engine

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        values = {
            "digest": digest,
            "user_id": ticket.user_id,
            "tenant_id": ticket.tenant_id,
            "token_until_ms": ticket.expires_at_ms,
            "token_id": ticket.token_id,
            "seconds": seconds,
        }

        def steps() -> Steps[None]:
            yield Ask("forget_tickets")
            yield Ask("add_ticket", values)

        await self.engine.change(steps, repeatable=False)

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        rows = await self.engine.write("open_ticket", {"digest": digest, "seconds": seconds}, repeatable=False)
        return _ticket(rows[0]) if rows else None

    async def ticket(self, digest: str) -> Ticket | None:
        row = await self.engine.one("ticket", {"digest": digest})
        return None if row is None else _ticket(row)


def _ticket(row: Row) -> Ticket:
    return Ticket(
        user_id=row["user_id"],
        tenant_id=row["tenant_id"],
        expires_at_ms=row["token_until_ms"],
        token_id=row["token_id"],
    )
