"""What may be asked of the ledger, and how its rows are told."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from carillon.domain.notifications import Status, Story
from carillon.domain.store import Row


def chosen(filters: Mapping[str, Any], known: Sequence[str]) -> Row:
    """Every known filter, None for those left out; an unknown filter is the caller's error."""
    unknown = sorted(set(filters) - set(known))
    if unknown:
        raise ValueError(f"unknown filter {unknown[0]}; known are {', '.join(known)}")
    return {name: filters.get(name) for name in known}


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
