"""Rows of digests, the same for every engine: events join under a lock, and closed digests are taken to be told."""

from collections.abc import Collection, Sequence
from typing import Any

from carillon.domain.digests import WAITS, DigestEntry, DigestRow, DueDigest, GatheredEvent, join
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.notifications import Enrolment
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.timing import EXPIRED, Stop
from carillon.ledger.rows import chosen
from carillon.ledger.sealing import Codec

_ROUNDS = 5
FILTERS = ("tenant_id", "open", "before_us", "before_id")
Place = tuple[str, str, str, str]
"""Tenant, audience, channels and key: there is at most one open digest for each."""


def joined(batch: Sequence[Enrolment], written: Collection[str]) -> Steps[None]:
    """Put the events that were written into the digests of their people, in the transaction that wrote them."""
    events: dict[Place, list[tuple[str, DigestEntry]]] = {}
    for each in batch:
        name, tenant_id = each.notification.notification_id, each.notification.tenant_id or ""
        for entry in each.digests if name in written else ():
            events.setdefault((tenant_id, entry.audience, entry.channels, entry.key), []).append((name, entry))
    held = yield from _held(events)
    found = [(place, row, entry) for place, ours in sorted(events.items()) for row, entry in join(held[place], ours)]
    # What was open is counted first: a digest that is full now makes room for the next one of its place.
    yield Ask("digest_count", each=[_counts(row) for place, row, _ in found if row is held[place]])
    opened = [(place, row, entry) for place, row, entry in found if row is not held[place]]
    yield Ask("digest_open", each=[_opening(place, row, entry) for place, row, entry in opened])
    members = [
        {"digest_id": row.digest_id, "notification_id": name, "recipient_ref": entry.audience, "waits": WAITS}
        | {"reason": f"told in digest {row.digest_id}"}
        for _, row, entry in found
        for name in row.joined
    ]
    yield Ask("digest_member", each=members)
    yield Ask("digest_routes", each=members)


def _held(events: dict[Place, list[tuple[str, DigestEntry]]]) -> Steps[dict[Place, DigestRow]]:
    """The open digest of each place, locked; one that is missing is opened first, by us or by another replica."""
    held: dict[Place, DigestRow] = {}
    for _ in range(_ROUNDS):
        missing = [place for place in sorted(events) if place not in held]
        for row in (yield Ask("digest_lock", each=[_place(place) for place in missing])):
            place = (row["tenant_id"], row["audience"], row["channels"], row["digest_key"])
            held[place] = DigestRow(digest_id=row["digest_id"], count=row["event_count"], size=row["size"])
        missing = [place for place in missing if place not in held]
        if not missing:
            return held
        first = {place: events[place][0][1] for place in missing}
        empty = {place: DigestRow(digest_id=entry.digest_id, count=0, size=0) for place, entry in first.items()}
        rows = [_opening(place, empty[place], first[place]) for place in missing]
        yield Ask("digest_open", each=rows)
    raise LedgerUnavailable("a digest closed each time this event was about to join it; try again")


def _place(place: Place) -> Row:
    return dict(zip(("tenant_id", "audience", "channels", "digest_key"), place, strict=True))


def _counts(row: DigestRow) -> Row:
    return {"digest_id": row.digest_id, "event_count": row.count, "size": row.size, "is_full": row.closed}


def _opening(place: Place, row: DigestRow, entry: DigestEntry) -> Row:
    return {
        **_place(place),
        **_counts(row),
        "closes_at_ms": entry.closes_at_ms,
        "intent_json": entry.intent_json,
    }


class DigestStore:
    """Satisfies DigestLedger."""

    engine: Engine
    _codec: Codec

    async def close_digests(self, limit: int, lease_seconds: float) -> list[DueDigest]:
        def steps() -> Steps[list[DueDigest]]:
            rows = yield Ask("digest_close", {"limit": limit, "lease_seconds": lease_seconds})
            ids = {"digest_ids": [row["digest_id"] for row in rows]}
            events: dict[str, list[GatheredEvent]] = {}
            late: list[Row] = []
            for row in (yield Ask("digest_events", ids)) if rows else ():
                if row["late"]:
                    reason = Stop(EXPIRED)
                    named = {name: row[name] for name in ("digest_id", "notification_id")}
                    late.append({**named, "gate": reason.gate, "reason": reason.reason})
                else:
                    found = GatheredEvent(row["notification_id"], row["payload_json"], row["expires_at_ms"])
                    events.setdefault(row["digest_id"], []).append(found)
            yield Ask("digest_left_out", each=late)
            return [_due(row, events.get(row["digest_id"], [])) for row in rows]

        look = await self.engine.one("digest_due")
        return [] if look is None else await self.engine.change(steps, repeatable=True)

    async def told_digest(self, digest_id: str, error: str | None) -> None:
        def steps() -> Steps[None]:
            told = yield Ask("digest_told", {"digest_id": digest_id, "error": error})
            if told and error is not None:
                # Not the error itself: it may name an address, which a sealed ledger shows nowhere.
                reason = f"digest {digest_id} could not be told: the digest has the reason"
                yield Ask("digest_untold", {"digest_id": digest_id, "reason": reason})

        await self.engine.change(steps, repeatable=True)

    async def digests(self, filters: dict[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        """One page of digests, the newest first, and how many match."""
        values = {**chosen(filters, FILTERS), "limit": limit, "offset": offset}
        rows = await self.engine.rows("digests", values)
        return [row for row in rows if row["digest_id"] is not None], int(rows[0]["total"])

    async def person_digests(self, tenant_id: str | None, audience: str, limit: int) -> list[Row]:
        """The open digests of one person, the first to close first."""
        found: list[Row] = []
        # Seals change the name of a bare address.
        for name in self._codec.refs([audience]):
            asked = {"tenant_id": tenant_id or "", "audience": name, "limit": limit}
            found += await self.engine.rows("open_digests_of_person", asked)
        return sorted(found, key=lambda row: (row["closes_at"], row["digest_id"]))[:limit]

    async def digest_contents(self, digest_id: str, limit: int) -> list[Row]:
        """One digest with its events, one row each, the oldest first; no row if there is no such digest."""
        return await self.engine.rows("digest_contents", {"digest_id": digest_id, "limit": limit})


def _due(row: Row, events: Sequence[GatheredEvent]) -> DueDigest:
    return DueDigest(
        digest_id=row["digest_id"],
        digest_key=row["digest_key"],
        intent_json=row["intent_json"],
        events=tuple(events),
    )
