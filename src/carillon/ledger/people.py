"""Preferences of people, and suppressed addresses."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from carillon.domain import addresses
from carillon.domain.consent import person_spellings
from carillon.domain.intents import canonical
from carillon.domain.people import PreferenceChange, Preferences, QuietHours
from carillon.domain.store import Engine, Row
from carillon.domain.suppressions import Suppression
from carillon.ledger.rows import chosen, storable
from carillon.ledger.sealing import Codec


class PreferenceStore:
    """Satisfies PreferenceLedger."""

    engine: Engine
    _codec: Codec

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        keys = [
            [(tenant or "", self._codec.person(name)) for name in person_spellings(user_id)]
            for tenant, user_id in people
        ]
        each = [
            {"tenant_id": tenant, "user_id": stored} for tenant, stored in sorted({key for own in keys for key in own})
        ]
        # Of the intake, whose connections keep their plans: planning this look-up takes longer than it.
        rows = await self.engine.rows("preferences", each=each, pool="intake")
        found = {(row["tenant_id"], row["user_id"]): row for row in rows}
        return [
            _either([_wanted(found[key], user_id) for key in own if key in found])
            for own, (_, user_id) in zip(keys, people, strict=True)
        ]

    async def change_preferences(self, tenant_id: str | None, user_id: str, change: PreferenceChange) -> Preferences:
        values = preference_values(tenant_id, self._codec.person(person_spellings(user_id)[0]), change)
        (row,) = await self.engine.write("change_preferences", values, repeatable=True)
        if len(person_spellings(user_id)) == 1:
            return _wanted(row, user_id)
        (merged,) = await self.preferences([(tenant_id, user_id)])
        return merged or _wanted(row, user_id)

    async def category_choices(self, tenant_id: str | None, limit: int) -> tuple[list[Row], int]:
        """Choices by category and channel among at most `limit` people, and how many people were counted."""
        rows = await self.engine.rows("category_choices", {"tenant_id": tenant_id, "limit": limit})
        return [row for row in rows if row["channel"] is not None], int(rows[0]["people"]) if rows else 0

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        await self.change_preferences(tenant_id, user_id, PreferenceChange(channels={channel: False}))


def _either(said: Sequence[Preferences]) -> Preferences | None:
    """The preferences of one person under one spelling or two; the first one's word counts, then the older one's."""
    if len(said) <= 1:
        return said[0] if said else None
    own, old = said
    categories = {
        name: {**old.categories.get(name, {}), **own.categories.get(name, {})}
        for name in {**old.categories, **own.categories}
    }
    return msgspec.structs.replace(own, channels={**old.channels, **own.channels}, categories=categories)


def preference_values(tenant_id: str | None, user_id: str, change: PreferenceChange) -> Row:
    """The parameters of `change_preferences`."""
    quiet = (
        None if change.quiet_hours is UNSET or change.quiet_hours is None else msgspec.to_builtins(change.quiet_hours)
    )
    return {
        "tenant_id": tenant_id or "",
        "user_id": user_id,
        "replace": change.replace,
        "has_locale": change.preferred_locale is not UNSET,
        "preferred_locale": None if change.preferred_locale is UNSET else change.preferred_locale,
        "channels_json": canonical(change.channels),
        "categories_json": canonical(change.categories),
        "contacts_json": canonical(change.contacts),
        "has_time_zone": change.time_zone is not UNSET,
        "time_zone": None if change.time_zone is UNSET else change.time_zone,
        "has_quiet_hours": change.quiet_hours is not UNSET,
        "quiet_hours_json": None if quiet is None else canonical(quiet),
    }


def _wanted(row: Row, user_id: str) -> Preferences:
    """The stored preferences of one person."""
    quiet = row["quiet_hours_json"]
    return Preferences(
        tenant_id=row["tenant_id"] or None,
        user_id=user_id,
        preferred_locale=row["preferred_locale"],
        channels=json.loads(row["channels_json"]),
        categories=json.loads(row["categories_json"]),
        contacts=json.loads(row["contacts_json"]),
        time_zone=row["time_zone"],
        quiet_hours=None if quiet is None else msgspec.json.decode(quiet, type=QuietHours),
        updated_at=row["updated_at"],
    )


SUPPRESSION_FILTERS = ("channel", "address", "tenant_id", "source", "kind", "before_us", "before_id")


class SuppressionStore:
    """Satisfies SuppressionLedger, and the part of LookupLedger that is about suppressions."""

    engine: Engine

    async def suppress(self, suppressions: Sequence[Suppression]) -> None:
        await self.engine.write("suppress", each=suppression_rows(suppressions), repeatable=True)

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        """Lift a suppression under every spelling of its address."""
        ended = False
        for each in addresses.spellings(channel, address):
            key = {"channel": channel, "address": each, "tenant_id": tenant_id}
            ended = bool(await self.engine.write("unsuppress", key, repeatable=True)) or ended
        return ended

    async def suppressions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        """Suppressions in force, newest first; of an address under every spelling, the canonical one first."""
        given = filters.get("address")
        if given is None:
            return await self._listed(filters, limit, offset)
        channel = filters.get("channel") or ("email" if "@" in given else "")
        found: list[Row] = []
        total = 0
        for each in addresses.spellings(channel, given):
            rows, number = await self._listed({**filters, "address": each}, limit, offset)
            found, total = found + rows, total + number
        return found[:limit], total

    async def _listed(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        values = {**chosen(filters, SUPPRESSION_FILTERS), "limit": limit, "offset": offset}
        # A list of everybody's suppressions would show a tenant the people of the others; one address shows its own.
        values["with_shared"] = values["address"] is not None
        rows = await self.engine.rows("suppressions", values)
        return [row for row in rows if row["channel"] is not None], rows[0]["total"]

    async def suppression(self, suppression_id: int) -> Row | None:
        return await self.engine.one("suppression", {"suppression_id": suppression_id})

    async def suppression_in_force(
        self, channel: str, address: str, tenant_id: str | None, due_ms: int | None
    ) -> Row | None:
        for each in addresses.spellings(channel, address):
            asked = {"channel": channel, "address": each, "tenant_id": tenant_id, "due_ms": due_ms}
            found = await self.engine.one("suppression_in_force", asked)
            if found is not None:
                return found
        return None


def suppression_rows(suppressions: Iterable[Suppression]) -> list[Row]:
    """The parameters of `suppress`: each suppression once, in the order in which they are locked."""
    once: dict[tuple[str, str, str], Suppression] = {}
    for each in suppressions:
        key = (each.channel, addresses.canonical(each.channel, each.address), each.tenant_id)
        once[key] = each if key not in once else max(once[key], each, key=_length)
    return [
        {
            "channel": channel,
            "address": storable(address),
            "tenant_id": tenant_id,
            "kind": str(each.kind),
            "reason": storable(each.reason),
            "source": each.source,
            "seconds": each.seconds,
            "until_ms": each.until_ms,
        }
        for (channel, address, tenant_id), each in sorted(once.items(), key=lambda item: item[0])
    ]


def _length(suppression: Suppression) -> float:
    return math.inf if suppression.seconds is None else suppression.seconds
