"""What may be asked of the ledger, and how its rows are told: the same for every engine."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from carillon.domain.notifications import Status, Story

SEARCH_FILTERS = (
    "user_id",
    "notification_type",
    "tenant_id",
    "trace_id",
    "origin",
    "accepted_after_ms",
    "accepted_before_ms",
    "status",
    "channel",
    "recipient",
)
DEAD_LETTER_FILTERS = ("channel", "classification", "notification_id", "tenant_id", "created_after_ms")
SUPPRESSION_FILTERS = ("channel", "address", "tenant_id", "source")


def bound(filters: Mapping[str, Any], known: Sequence[str]) -> list[Any]:
    """The values of the known filters in order, None for those left out; an unknown filter is the caller's error."""
    unknown = sorted(set(filters) - set(known))
    if unknown:
        raise ValueError(f"unknown filter {unknown[0]}; known are {', '.join(known)}")
    return [filters.get(name) for name in known]


def plain(row: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A row as a dictionary, times as Unix milliseconds."""
    return {name: round(value.timestamp() * 1000) if isinstance(value, datetime) else value for name, value in row}


def stories(
    records: Sequence[dict[str, Any]], routes: Iterable[dict[str, Any]], attempts: Iterable[dict[str, Any]]
) -> list[Story]:
    """Put rows together again; routes and attempts come sorted by notification."""
    routes_of = _by_notification(routes)
    attempts_of = _by_notification(attempts)
    return [
        Story(
            notification=record,
            routes=routes_of.get(record["notification_id"], []),
            attempts=attempts_of.get(record["notification_id"], []),
        )
        for record in records
    ]


def _by_notification(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {key: list(group) for key, group in groupby(rows, key=lambda row: str(row["notification_id"]))}


def counted(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum up the rows of `counts`: one for each lane and status."""
    routes = dict.fromkeys([str(status) for status in Status], 0)
    lanes: dict[int, dict[str, Any]] = {}
    for row in rows:
        routes[row["status"]] += row["routes"]
        lane = lanes.setdefault(row["lane"], {"due": 0, "leased": 0, "oldest_due_seconds": None})
        lane["due"] += row["due"]
        lane["leased"] += row["leased"]
        lane["oldest_due_seconds"] = _older(lane["oldest_due_seconds"], row["oldest_due_seconds"])
    oldest = None
    for lane in lanes.values():
        oldest = _older(oldest, lane["oldest_due_seconds"])
    return {
        "routes": routes,
        "due": sum(lane["due"] for lane in lanes.values()),
        "leased": sum(lane["leased"] for lane in lanes.values()),
        "oldest_due_seconds": oldest,
        "lanes": lanes,
    }


def _older(one: float | None, other: float | None) -> float | None:
    known = [age for age in (one, other) if age is not None]
    return max(known, default=None)
