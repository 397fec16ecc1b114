"""What must hold after every fault of a galaxy; the tests and their negative controls ask the same functions."""

from collections import defaultdict
from typing import Any

from tests.chaos.properties import hold
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, MAIL, EntryFields

IDS = {GATEWAY: "event_id", MAIL: "delivery_id"}
STREAMS = {"push": GATEWAY, "email": MAIL}

Entries = dict[str, list[EntryFields]]
"""What was published, by the id of its route."""


async def published(stand: FaultyGalaxy) -> Entries:
    found: Entries = defaultdict(list)
    for stream, name in IDS.items():
        for _, fields in await stand.published(stream, 0):
            found[fields[name]].append(fields)
    return found


async def nothing_lost(stand: FaultyGalaxy) -> int:
    """Every intent that Redis took is one record with all its routes, and every route is in its stream; how many."""
    records = await stand.rows("SELECT notification_id, idempotency_key FROM records")
    keys = [row["idempotency_key"] for row in records]
    missing = set(stand.keys) - set(keys)
    hold("nothing_lost", not missing, f"{len(missing)} intents without a record: {sorted(missing)[:3]}")
    hold("nothing_lost", len(set(keys)) == len(keys), "a key with two records")
    routes = await stand.rows("SELECT notification_id, route_id, channel, status FROM routes")
    routed = {row["notification_id"] for row in routes}
    alone = [row["notification_id"] for row in records if row["notification_id"] not in routed]
    hold("nothing_lost", not alone, f"records without routes: {alone[:3]}")
    there = await published(stand)
    open_ones = [row for row in routes if row["status"] not in ("published", "skipped")]
    hold("nothing_lost", not open_ones, f"{len(open_ones)} routes not published: {open_ones[:3]}")
    unsent = [row for row in routes if row["status"] == "published" and name(row) not in there]
    hold("nothing_lost", not unsent, f"{len(unsent)} routes without their entry: {unsent[:3]}")
    strangers = set(there) - {name(row) for row in routes}
    hold("nothing_lost", not strangers, f"entries of no route: {sorted(strangers)[:3]}")
    return len(routes)


def name(route: dict[str, Any]) -> str:
    return f"{route['notification_id']}/{route['route_id']}"


async def repeats(stand: FaultyGalaxy, at_most: int = 0) -> int:
    """Entries too many: at most so many, each in every field what the first one was, so that its reader drops it."""
    there = await published(stand)
    too_many = sum(len(entries) - 1 for entries in there.values())
    for entries in there.values():
        differing = [entry for entry in entries if entry != entries[0]]
        hold("repeats_are_recognised", not differing, (entries[0], differing[:1]))
    hold("repeats_bounded", too_many <= at_most, f"{too_many} repeats, {at_most} could be")
    return too_many


async def no_budget_spent(stand: FaultyGalaxy, faults: int) -> int:
    """An outage costs a route what was under way when it began, and no more; how many routes paid."""
    paid = await stand.rows("SELECT attempt_count FROM routes WHERE attempt_count > 1")
    beyond = [row["attempt_count"] for row in paid if row["attempt_count"] > 1 + faults]
    hold("no_budget_spent", not beyond, f"{len(beyond)} routes with {max(beyond, default=0)} attempts")
    dead = await stand.number("SELECT count(*) FROM dead_letters")
    hold("no_budget_spent", dead == 0, f"{dead} dead letters")
    return len(paid)


async def nothing_left(stand: FaultyGalaxy) -> None:
    """No lease in Redis, none in PostgreSQL."""
    keys = await stand.leases()
    hold("nothing_left", not keys, f"lease keys: {sorted(keys)[:3]}")
    held = await stand.number("SELECT count(*) FROM routes_held")
    hold("nothing_left", held == 0, f"{held} routes are still claimed")


async def both_or_none(stand: FaultyGalaxy, routes: int = 4) -> int:
    """A record has all of its routes at every moment anybody can look."""
    rows = await stand.rows(
        "SELECT n.notification_id, count(r.*) AS n FROM records n LEFT JOIN routes r USING (notification_id) GROUP BY 1"
    )
    halves = [row for row in rows if row["n"] != routes]
    hold("both_or_none", not halves, halves[:3])
    return len(rows)
