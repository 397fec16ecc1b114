"""What must hold after a world has ended; it reads the tables itself and asks nothing of the engine."""

import sqlite3
from collections import Counter
from collections.abc import Mapping

import msgspec

from tests.simulation.vendor import VendorLedger

_ROUTES = """
SELECT notification_id, route_id, status, attempt_count, max_attempts, next_attempt_at,
       (SELECT count(*) FROM simulated_ends e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
FROM routes r ORDER BY notification_id, route_id
"""
_KEYS = "SELECT idempotency_key, group_concat(notification_id), count(*) FROM records GROUP BY idempotency_key"
_MOST_SHOWN = 20


class Found(msgspec.Struct):
    """The state of the tables, and what is wrong with it."""

    routes: int
    repeats: int
    dead_letters: int
    rows: list[tuple[object, ...]]
    wrong: list[str]


def check(
    connection: sqlite3.Connection,
    answers: Mapping[str, set[str]],
    vendors: VendorLedger,
    allowed: Mapping[str, int],
) -> Found:
    """Compare what callers were told, what vendors accepted and what the tables say."""
    # One look for each route would read the whole table of ends.
    connection.execute("CREATE INDEX simulated_ends_idx ON simulated_ends (notification_id, route_id)")
    rows = [tuple(row) for row in connection.execute(_ROUTES)]
    keys = {key: (ids, number) for key, ids, number in connection.execute(_KEYS)}
    leases = connection.execute("SELECT count(*) FROM due").fetchone()[0]
    wrong: list[str] = []
    for key, told in answers.items():
        ids, number = keys.get(key, ("", 0))
        if number != 1 or told != {ids}:
            wrong.append(f"{key}: {number} records {ids}, callers were told {sorted(told)}")
    if leases:
        wrong.append(f"{leases} routes are still in the turns")
    repeats: Counter[str] = Counter()
    dead = 0
    for notification_id, route_id, status, attempts, most, due, ends in rows:
        key = f"{notification_id}/{route_id}"
        sent = vendors.accepted[key]
        dead += status == "dead_letter"
        repeats[key] = max(0, sent - 1)
        wrong += [f"{key}: {said}" for said in _faults(status, attempts, most, due, ends, sent, key in vendors.refused)]
        may = allowed.get(key, 0) + vendors.silent[key]
        if repeats[key] > may:
            wrong.append(f"{key}: repeated {repeats[key]} times, and {may} faults met it in flight")
    unknown = vendors.accepted.keys() - {f"{row[0]}/{row[1]}" for row in rows}
    wrong += [f"{key}: sent without a row" for key in sorted(unknown)]
    return Found(len(rows), repeats.total(), dead, rows, wrong[:_MOST_SHOWN])


def _faults(  # noqa: PLR0917 - the columns of one row
    status: str,
    attempts: int,
    most: int,
    due: int | None,
    ends: int,
    sent: int,
    refused: bool,  # noqa: FBT001 - as above
) -> list[str]:
    found: list[str] = []
    if status not in {"published", "dead_letter", "skipped"} or due is not None:
        found.append(f"not ended: {status}")
    elif ends != 1:
        found.append(f"settled {ends} times")
    if status == "published" and not sent:
        found.append("published, and no vendor has seen it")
    if status == "dead_letter" and not refused and attempts < most:
        found.append(f"given up after {attempts} of {most} attempts")
    if attempts > most + 1:
        found.append(f"{attempts} attempts of {most}")
    return found
