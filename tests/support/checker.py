"""Compares what producers were promised, what the vendor saw and what the store says; knows nothing of the program."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

TERMINAL = frozenset({"published", "dead_letter", "skipped"})

_RECORDS = "SELECT notification_id, idempotency_key FROM records"
_ROUTES = "SELECT notification_id, route_id, status FROM routes"


@dataclass(frozen=True)
class Route:
    notification_id: str
    route_id: str
    status: str

    @property
    def name(self) -> str:
        return f"{self.notification_id}/{self.route_id}"


@dataclass(frozen=True)
class Store:
    """What the tables said at one moment."""

    records: dict[str, str]
    routes: dict[str, Route]


@dataclass
class Report:
    """Empty lists mean the promise held; duplicates maps a send's id to how many were too many."""

    accepted: int = 0
    routes: int = 0
    sends: int = 0
    lost: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)
    routeless: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    never_sent: list[str] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)
    terminal_changed: list[str] = field(default_factory=list)

    @property
    def duplicate_count(self) -> int:
        return sum(self.duplicates.values())

    @property
    def sound(self) -> bool:
        """Nothing lost, split, stuck, invented or rewritten; duplicates are for the caller to bound."""
        wrong = (self.lost, self.split, self.routeless, self.unfinished, self.never_sent, self.terminal_changed)
        return not any(wrong)

    def __str__(self) -> str:
        head = f"{self.accepted} accepted, {self.routes} routes, {self.sends} sends"
        lists = ("lost", "split", "routeless", "unfinished", "never_sent", "terminal_changed")
        parts = [f"{name} {len(value)}: {value[:5]}" for name in lists if (value := getattr(self, name))]
        if self.duplicates:
            parts.append(f"duplicates {self.duplicate_count}: {dict(list(self.duplicates.items())[:5])}")
        return "; ".join([head, *parts])


async def check(
    journal: Path,
    ledger: Path,
    dsn: str,
    *,
    earlier: Store | None = None,
    send_id: Callable[[dict[str, Any]], str | None] = lambda entry: entry["id"],
    route_send_id: Callable[[Route], str] = lambda route: route.notification_id,
) -> Report:
    """Check all promises; `send_id` and `route_send_id` must give a ledger entry and its route the same id."""
    store = await read_store(dsn)
    report = Report(routes=len(store.routes))
    _check_promises(report, store, read_lines(journal))
    report.unfinished = sorted(route.name for route in store.routes.values() if route.status not in TERMINAL)
    _check_sends(report, store, read_lines(ledger), send_id, route_send_id)
    if earlier is not None:
        report.terminal_changed = changed_terminals(earlier, store)
    return report


async def read_store(dsn: str) -> Store:
    records, routes = await (_read_postgres(dsn) if dsn.startswith("postgres") else _read_sqlite(dsn))
    found = (Route(str(notification), str(route), str(status)) for notification, route, status in routes)
    return Store({str(record): str(key) for record, key in records}, {route.name: route for route in found})


async def _read_postgres(dsn: str) -> tuple[Iterable[Any], Iterable[Any]]:
    connection = await asyncpg.connect(dsn)
    try:
        # One snapshot, so that a route never appears without its record.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await connection.fetch(_RECORDS), await connection.fetch(_ROUTES)
    finally:
        await connection.close()


async def _read_sqlite(dsn: str) -> tuple[Iterable[Any], Iterable[Any]]:
    with closing(sqlite3.connect(dsn.removeprefix("sqlite:///"))) as connection:
        connection.execute("BEGIN")
        return connection.execute(_RECORDS).fetchall(), connection.execute(_ROUTES).fetchall()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a writer killed in mid-line leaves a tail that promises nothing."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def changed_terminals(earlier: Store, later: Store) -> list[str]:
    """Routes that were terminal and say something else now, or are gone."""
    changed = []
    for name, before in earlier.routes.items():
        after = later.routes.get(name)
        if before.status in TERMINAL and (after is None or after.status != before.status):
            changed.append(f"{name}: {before.status} -> {after.status if after else 'gone'}")
    return sorted(changed)


def _accepted(line: dict[str, Any]) -> bool:
    status = line["status"]
    return 200 <= status < 300 if isinstance(status, int) else status == "accepted"


def _check_promises(report: Report, store: Store, journal: list[dict[str, Any]]) -> None:
    promised: dict[str, set[str]] = {}
    for line in filter(_accepted, journal):
        ids = promised.setdefault(str(line["key"]), set())
        if line.get("notification_id") is not None:
            ids.add(str(line["notification_id"]))
    report.accepted = len(promised)
    keys = set(store.records.values())
    routed = {route.notification_id for route in store.routes.values()}
    for key, ids in sorted(promised.items()):
        # One key is one notification, however often it was posted.
        if len(ids) > 1:
            report.split.append(key)
        if not ids and key not in keys:
            report.lost.append(key)
        report.lost += sorted(ids - store.records.keys())
        report.routeless += sorted((ids & store.records.keys()) - routed)


def _check_sends(
    report: Report,
    store: Store,
    ledger: list[dict[str, Any]],
    send_id: Callable[[dict[str, Any]], str | None],
    route_send_id: Callable[[Route], str],
) -> None:
    # Only what the vendor took counts as sent: a refusal had no effect and is rightly tried again.
    taken = Counter(send_id(entry) for entry in ledger if 200 <= int(entry.get("status", 200)) < 300)
    report.sends = taken.total()
    published = Counter(route_send_id(route) for route in store.routes.values() if route.status == "published")
    routes = Counter(route_send_id(route) for route in store.routes.values())
    report.never_sent = sorted(name for name, wanted in published.items() if taken[name] < wanted)
    # An id without any route is a send nobody asked for: all of it is too many.
    report.duplicates = {
        str(name): number - routes[str(name)] for name, number in taken.items() if number > routes[str(name)]
    }
