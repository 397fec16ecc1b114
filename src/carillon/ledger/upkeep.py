"""Statements of operators, retention and history: stories, searches, counts, old rows and ended routes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.addresses import spellings
from carillon.domain.claims import Claim
from carillon.domain.history import Cursor, EndedRoute, Mark
from carillon.domain.notifications import Story
from carillon.domain.ports import HistorySteps, Signal
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.ledger.rows import chosen, counted, stories
from carillon.ledger.sealing import Codec

SEARCH_FILTERS = (
    "user_id",
    "sent_by",
    "notification_type",
    "tenant_id",
    "trace_id",
    "origin",
    "accepted_after_ms",
    "accepted_before_ms",
    "statuses",
    "channel",
    "recipient",
    "text",
    "before_us",
    "before_id",
)
DEAD_LETTER_FILTERS = (
    "channel",
    "classification",
    "notification_id",
    "tenant_id",
    "created_after_ms",
    "before_us",
    "before_id",
    "before_route",
)
HISTORY_FILTERS = ("channel", "provider", "template", "tenant")
ALL = 2**62
"""No table has so many rows."""
_WILD = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


class UpkeepStore:
    """Satisfies UpkeepLedger."""

    engine: Engine
    signal: Signal
    _codec: Codec

    async def group_calls(self, group: int) -> int:
        """How many claims hold a place of this group, over all processes."""
        row = await self.engine.one("group_calls", {"grp": group})
        return 0 if row is None else int(row["calls"])

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        found = await self.engine.snapshot(lambda: read_stories([notification_id], tenant_id))
        return found[0] if found else None

    async def search(
        self, filters: Mapping[str, Any], limit: int, offset: int, most: int = ALL
    ) -> tuple[list[Story], int]:
        given = filters.get("recipient")
        if given is None:
            return await self._search(filters, limit, offset, most)
        # An address from before there was a canonical spelling has the given one.
        for each in spellings("email" if "@" in given else "", given):
            found, total = await self._search({**filters, "recipient": each}, limit, offset, most)
            if found:
                break
        return found, total

    async def _search(self, filters: Mapping[str, Any], limit: int, offset: int, most: int) -> tuple[list[Story], int]:
        values = chosen(filters, SEARCH_FILTERS)
        values["address"] = values.pop("recipient")
        place = {name: values.pop(name) for name in ("before_us", "before_id")}
        values |= self._words(values["text"])

        def steps() -> Steps[tuple[list[Story], int]]:
            first = place["before_us"] is None
            if 0 < most < ALL and first:
                # One look finds the page and how many there are: the number ends at `most`, and each has two columns.
                rows = yield Ask("search", {**values, **place, "limit": max(most, offset + limit), "offset": 0})
                total, rows = min(len(rows), most), rows[offset : offset + limit]
            else:
                rows = yield Ask("search", {**values, **place, "limit": limit, "offset": offset})
                total = 0
                if most and first and not offset and len(rows) < limit:
                    # The page holds all of them.
                    total = len(rows)
                elif most:
                    total = (yield Ask("search_count", {**values, "most": most}))[0]["total"]
            places = {row["notification_id"]: row["place"] for row in rows}
            found = yield from read_stories(list(places), None)
            for story in found:
                story.notification["place"] = places[story.notification["notification_id"]]
            return found, total

        return await self.engine.snapshot(steps)

    def _words(self, text: str | None) -> Row:
        """What `search` compares a free text with; a sealed address is found whole only."""
        plain = None if text is None else text.translate(_WILD)
        if plain is not None and "@" in plain:
            plain = plain.lower()
        return {
            "text_address": None if text is None else self._codec.address(text),
            "text_prefix": None if plain is None else f"{plain}%",
            "text_within": None if plain is None else f"%{plain}%",
        }

    async def counts(self) -> dict[str, Any]:
        return counted(await self.engine.rows("counts"))

    async def history(self, filters: Mapping[str, Any], steps: HistorySteps) -> tuple[list[Row], list[Row]]:
        where = {**chosen(filters, HISTORY_FILTERS), **msgspec.structs.asdict(steps)}

        def both() -> Steps[tuple[list[Row], list[Row]]]:
            ended = yield Ask("history_steps", where)
            return ended, (yield Ask("history_accepted", where))

        return await self.engine.snapshot(both)

    async def history_groups(self, by: str, steps: HistorySteps, limit: int) -> list[Row]:
        values = {"by": by, "from_ms": steps.step_from_ms, "until_ms": steps.until_ms, "limit": limit}
        return await self.engine.rows("history_groups", values)

    async def dead_letters(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        values = {**chosen(filters, DEAD_LETTER_FILTERS), "limit": limit, "offset": offset}
        rows = await self.engine.rows("dead_letters", values)
        total = rows[0]["total"]
        found = [row for row in rows if row["notification_id"] is not None]
        for row in found:
            del row["total"]
        return found, total

    async def rehome(self, channel: str, providers: Sequence[str], lanes: Sequence[int], otherwise: int) -> int:
        values = {"channel": channel, "providers": list(providers), "lanes": list(lanes), "otherwise": otherwise}
        return len(await self.engine.write("rehome", values, repeatable=True))

    async def keep_message(self, claim: Claim) -> bool:
        """Store the completed message of a claim, so that every repeat sends it; False if the claim is lost."""
        values = {
            "notification_id": claim.notification_id,
            "route_id": claim.route_id,
            "token": claim.token,
            "message_json": claim.message_json,
        }
        kept = await self.engine.write("keep_message", values, repeatable=True)
        # The row has moved.
        claim.place = None
        return bool(kept)

    async def hasten(self, seconds: float) -> int:
        def steps() -> Steps[int]:
            moved = yield Ask("hasten", {"seconds": seconds})
            yield Ask("hasten_expiry", {"seconds": seconds})
            yield Ask("hasten_digests", {"seconds": seconds})
            yield Ask("hasten_throttles", {"seconds": seconds})
            yield Ask("hasten_receipts", {"seconds": seconds})
            return len(moved)

        count = await self.engine.change(steps, repeatable=False)
        self.signal.ring()
        return count

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        old = {"older_than_seconds": records_older_than, "limit": limit}
        # Asked each time: another process may bring a part while this one runs.
        parts = {row["part"] for row in await self.engine.rows("parts_applied")}
        records = await self.engine.change(lambda: _prune(old, streams="streams" in parts), repeatable=True)
        malformed = await self.engine.write(
            "prune_malformed", {"older_than_seconds": malformed_older_than, "limit": limit}, repeatable=True
        )
        await self.engine.write("prune_suppressions", repeatable=True)
        await self.prune_beside(records_older_than, limit)
        return records, len(malformed)

    async def prune_beside(self, older_than: float, limit: int) -> int:
        parts = {row["part"] for row in await self.engine.rows("parts_applied")}
        old = {"older_than_seconds": older_than, "limit": limit}
        gone = 0
        for statement in ("prune_collapses", *(("prune_receipts", "prune_digests") if "api" in parts else ())):
            gone = max(gone, len(await self.engine.write(statement, old, repeatable=True)))
        return gone

    async def prune_throttles(self, older_than: float, limit: int) -> int:
        if "api" not in {row["part"] for row in await self.engine.rows("parts_applied")}:
            return 0
        old = {"older_than_seconds": older_than, "limit": limit}
        return len(await self.engine.write("prune_throttles", old, repeatable=True))

    async def lost_tickets(self, after: int, limit: int) -> tuple[list[int], int | None]:
        rows = await self.engine.rows("lost_tickets", {"after": after, "limit": limit})
        return [row["ticket"] for row in rows if row["lost"]], rows[-1]["ticket"] if rows else None

    async def put_back(self, tickets: Sequence[int]) -> int:
        found = await self.engine.write("put_back", {"tickets": list(tickets)}, repeatable=True, pool="settlements")
        if found:
            self.signal.ring()
        return len(found)

    async def check(self) -> dict[str, Any]:
        return await self.engine.check()


def read_stories(ids: list[str], tenant_id: str | None) -> Steps[list[Story]]:
    """Stories from one snapshot, so that a route never shows an outcome whose attempt is missing."""
    records = yield Ask("records", {"notification_ids": ids, "tenant_id": tenant_id})
    known = {"notification_ids": [record["notification_id"] for record in records]}
    routes = yield Ask("routes", known)
    attempts = yield Ask("attempts", known)
    for record in records:
        users = record["recipient_user_ids"]
        record["recipient_user_ids"] = None if users is None else json.loads(users)
        record["is_bulk"] = bool(record["is_bulk"])
    return stories(records, routes, attempts)


def _prune(old: Row, *, streams: bool) -> Steps[int]:
    candidates = yield Ask("prune_candidates", old)
    if not candidates:
        return 0
    gone = yield Ask("prune", {"notification_ids": [row["notification_id"] for row in candidates]})
    ids = {"notification_ids": [row["notification_id"] for row in gone]}
    for statement in ("prune_attempts", *(("prune_stream_note", "prune_stream") if streams else ())):
        yield Ask(statement, ids)
    return len(gone)


class HistoryStore:
    """Satisfies HistoryLedger; times are microseconds, so that the copier cannot skip a change that it has not read."""

    engine: Engine

    async def take_history(self, owner: str, lease_seconds: float, lag_seconds: float) -> Cursor | None:
        def steps() -> Steps[Cursor | None]:
            taken = yield Ask("take_history", {"owner": owner, "lease_seconds": lease_seconds})
            if not taken:
                return None
            (horizon,) = yield Ask("history_horizon", {"lag_seconds": lag_seconds})
            return Cursor(msgspec.convert(taken[0], Mark), horizon["until_us"])

        return await self.engine.change(steps, repeatable=True)

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[EndedRoute]:
        values = {**_place(after), "until_us": until_us, "limit": limit}
        return [EndedRoute(**row) for row in await self.engine.rows("endings", values)]

    async def still_there(self, notification_ids: Sequence[str]) -> set[str]:
        rows = await self.engine.rows("still_there", {"notification_ids": list(notification_ids)})
        return {row["notification_id"] for row in rows}

    async def advance_history(self, owner: str, to: Mark) -> bool:
        moved = await self.engine.write("advance_history", {**_place(to), "owner": owner}, repeatable=True)
        return bool(moved)

    async def rewind_history(self, to_us: int) -> None:
        await self.engine.write("rewind_history", {"changed_us": to_us}, repeatable=True)


def _place(mark: Mark) -> dict[str, Any]:
    return msgspec.structs.asdict(mark)
