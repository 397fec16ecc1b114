"""Preferences as rows, the same for every engine."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from carillon.domain.canonical import canonical
from carillon.domain.people import Preferences, QuietHours, Wish


def wish_values(tenant_id: str | None, user_id: str, wish: Wish) -> tuple[Any, ...]:
    """The parameters of `wish`."""
    quiet = None if wish.quiet_hours is UNSET or wish.quiet_hours is None else msgspec.to_builtins(wish.quiet_hours)
    return (
        tenant_id or "",
        user_id,
        wish.replace,
        wish.preferred_locale is not UNSET,
        None if wish.preferred_locale is UNSET else wish.preferred_locale,
        canonical(wish.channels),
        canonical(wish.contacts),
        wish.quiet_hours is not UNSET,
        None if quiet is None else canonical(quiet),
    )


def in_order(people: Sequence[tuple[str | None, str]], rows: Iterable[Mapping[str, Any]]) -> list[Preferences | None]:
    """One answer for each person asked about."""
    found = {(row["tenant_id"], row["user_id"]): wanted(row) for row in rows}
    return [found.get((tenant or "", user_id)) for tenant, user_id in people]


def wanted(row: Mapping[str, Any]) -> Preferences:
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
