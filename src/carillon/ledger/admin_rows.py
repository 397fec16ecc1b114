"""What administrators may ask, and how their actions become rows: the same for every engine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.admin import AdminAction, FailedCounts
from carillon.ledger.questions import bound
from carillon.ledger.rows import storable, storable_json

FAILED_FILTERS = (
    "channel",
    "classification",
    "provider",
    "notification_type",
    "tenant_id",
    "notification_id",
    "failed_after_ms",
    "failed_before_ms",
    "notification_ids",
    "letters",
)
ACTION_FILTERS = ("actor", "action", "subject", "tenant_id", "after_ms")
_BETWEEN = "\x1f"
"""Neither a notification's id nor a route's contains it."""


def failed_values(filters: Mapping[str, Any]) -> list[Any]:
    """The values of the filters in order; a chosen letter is one text out of its two names."""
    letters = filters.get("letters")
    if letters is None:
        return bound(filters, FAILED_FILTERS)
    ids = filters.get("notification_ids") or sorted({notification_id for notification_id, _ in letters})
    names = [_BETWEEN.join(letter) for letter in letters]
    # Ids alone are what an index knows.
    return bound({**filters, "notification_ids": ids, "letters": names}, FAILED_FILTERS)


def action_values(action: AdminAction) -> tuple[Any, ...]:
    """The row of an action, without its time."""
    return (
        storable(action.actor),
        action.action,
        storable(action.tenant_id),
        storable(action.subject),
        storable(action.reason),
        storable_json(action.detail),
    )


def with_count(action: AdminAction, count: int) -> AdminAction:
    """The action with what it came to so far."""
    return AdminAction(
        actor=action.actor,
        action=action.action,
        reason=action.reason,
        tenant_id=action.tenant_id,
        subject=action.subject,
        detail={**action.detail, "redriven": count},
    )


def page_of(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of one page without their total, and the total."""
    total = rows[0]["total"]
    found = [{name: value for name, value in row.items() if name != "total"} for row in rows if row[key] is not None]
    return found, total


def read_action(row: dict[str, Any]) -> dict[str, Any]:
    """An action with its detail as it was given."""
    text = row.pop("detail_json")
    return {**row, "detail": {} if text is None else json.loads(text)}


def counts_of(rows: Sequence[Mapping[str, Any]], now_ms: float) -> FailedCounts:
    """Sum up the rows of `failed_counts`."""
    by_cause = [
        {name: row[name] for name in ("channel", "classification", "count")} for row in rows if row["count"] is not None
    ]
    return FailedCounts(sum(row["count"] for row in by_cause), by_cause, now_ms)
