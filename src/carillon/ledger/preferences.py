"""What people wish: channels, contacts, language and quiet hours."""

import json
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from carillon.domain.canonical import canonical
from carillon.domain.people import Preferences, QuietHours, Wish
from carillon.domain.store import Engine, Row


class PreferenceStore:
    """Satisfies PreferenceLedger."""

    engine: Engine

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        asked = sorted({(tenant or "", user_id) for tenant, user_id in people})
        each = [{"tenant_id": tenant, "user_id": user_id} for tenant, user_id in asked]
        rows = await self.engine.rows("preferences", each=each)
        found = {(row["tenant_id"], row["user_id"]): _wanted(row) for row in rows}
        return [found.get((tenant or "", user_id)) for tenant, user_id in people]

    async def wish(self, tenant_id: str | None, user_id: str, wish: Wish) -> Preferences:
        (row,) = await self.engine.write("wish", wish_values(tenant_id, user_id, wish), repeatable=True)
        return _wanted(row)

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        await self.wish(tenant_id, user_id, Wish(channels={channel: False}))


def wish_values(tenant_id: str | None, user_id: str, wish: Wish) -> Row:
    """The parameters of `wish`."""
    quiet = None if wish.quiet_hours is UNSET or wish.quiet_hours is None else msgspec.to_builtins(wish.quiet_hours)
    return {
        "tenant_id": tenant_id or "",
        "user_id": user_id,
        "replace": wish.replace,
        "has_locale": wish.preferred_locale is not UNSET,
        "preferred_locale": None if wish.preferred_locale is UNSET else wish.preferred_locale,
        "channels_json": canonical(wish.channels),
        "contacts_json": canonical(wish.contacts),
        "has_quiet_hours": wish.quiet_hours is not UNSET,
        "quiet_hours_json": None if quiet is None else canonical(quiet),
    }


def _wanted(row: Row) -> Preferences:
    """One person's preferences as they were written."""
    quiet = row["quiet_hours_json"]
    return Preferences(
        tenant_id=row["tenant_id"] or None,
        user_id=row["user_id"],
        preferred_locale=row["preferred_locale"],
        channels=json.loads(row["channels_json"]),
        contacts=json.loads(row["contacts_json"]),
        quiet_hours=None if quiet is None else msgspec.json.decode(quiet, type=QuietHours),
        updated_at=row["updated_at"],
    )
