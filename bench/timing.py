"""What consent and timing cost at size: many people with preferences and throttles, open digests, scheduled routes.

Twice: the ledger's operations alone, in batches of a hundred, and requests over HTTP, which a producer waits for.
And a person's rights there: the export of one with a hundred thousand notifications, and an erasure in a million.
"""

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import asyncpg

from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.stage import WELCOME, carillon, run, wrk
from tests.support.servers import Postgres

PART = "timing"
PEOPLE, DIGESTS, SCHEDULED = 1_000_000, 100_000, 1_000_000
OWN = 100_000
FEW_PEOPLE, FEW_DIGESTS = 1000, 100
TURNS, ROUNDS = 60, 3
HTTP_ROUNDS, HTTP_SECONDS = 5, 4.0
RIGHTS_SECONDS = 1800.0
# Ids grow with time, as Carillon's do: what is new stands at the end of every index by id.
ID = """lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 3600000 >> 16), 8, '0')
        || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0')"""
FILL = (
    """
    INSERT INTO preferences (tenant_id, user_id, preferred_locale, channels_json, contacts_json,
        categories_json, updated_at)
    SELECT '', 'user-' || n, 'en-US', '{"sms": false}', '{"email": "user-' || n || '@example.org"}',
           '{"news": {"email": false}}', now()
    FROM generate_series(0, $1::bigint - 1) AS n
    """,
    """
    INSERT INTO throttles (tenant_id, audience, category, times_json, updated_at)
    SELECT '', 'user:user-' || n, 'news', '[1, 2, 3]', now() FROM generate_series(0, $1::bigint - 1) AS n
    """,
    f"""
    WITH opened AS (
        INSERT INTO digests (digest_id, tenant_id, audience, channels, digest_key, opened_at, closes_at, event_count,
            size, intent_json)
        SELECT {ID}, '', 'user:user-' || n, 'push', 'news', now(), now() + interval '1 day', 1, 10, '{{}}'
        FROM generate_series(0, $1::bigint / 10 - 1) AS n RETURNING digest_id)
    INSERT INTO digest_members (digest_id, notification_id) SELECT digest_id, digest_id FROM opened
    """,  # noqa: S608 - no words but ours
)
SCHEDULE = f"""
WITH written AS (
    INSERT INTO records (notification_id, notification_type, producer, audience_kind, payload_json, request_fingerprint,
        accepted_at, updated_at, origin, priority, is_bulk, user_id, scheduled_for)
    SELECT {ID}, 'welcome', 'system', 'user', '{{}}', repeat('0', 64), now(), now(),
        'system', 2, false, CASE WHEN n % 10 = 0 THEN 'canary' ELSE 'user-' || n END, now() + interval '30 days'
    FROM generate_series($1::bigint, $2::bigint) AS n
    RETURNING notification_id, user_id)
INSERT INTO routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at,
    created_at, updated_at, address, lane, provider, policy, budget_since, message_json)
SELECT notification_id, 'push:user', 'push', 'user:' || user_id, 'pending', 6,
    now() + interval '30 days' + random() * interval '1 day', now(), now(), 'device-' || user_id, 2, 'sandbox', '*/*',
    now(), '{{"text":"Hi Ada"}}'
FROM written
"""  # noqa: S608 - no words but ours

# Nobody is ever over the throttle: what is over is skipped, and the few people would be over it soon.
CATEGORIES = '[categories.news]\nthrottle = "1000 in 1s"\n'
SOMEBODY = {**WELCOME, "userId": "user-?"}
BODIES = {
    "accept": (SOMEBODY, FEW_PEOPLE, PEOPLE),
    "throttle": ({**SOMEBODY, "category": "news"}, FEW_PEOPLE, PEOPLE),
    "digest": ({**SOMEBODY, "digest": {"key": "news", "window": "1d", "max": 1000}}, FEW_DIGESTS, DIGESTS),
}
SIDES = ("few people", "a million people")

# What is asked at random is in the server's memory, as after a day of work: else the first touch of each page, which is
# a read of the disk or of the kernel's cache, would be measured instead of the statements.
WARM = """
SELECT sum(pg_prewarm(c.oid)) FROM pg_class c
WHERE c.oid IN (SELECT unnest(ARRAY[t.oid] || ARRAY(SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = t.oid))
                FROM pg_class t WHERE t.relname IN ('preferences', 'throttles', 'digests', 'digest_members'))
"""


def measure(postgres: Postgres, progress: Callable[[str], None]) -> Outcome:
    few, many = postgres.database(), postgres.database()
    for dsn in (few, many):
        run("fill", dsn, "1", "push", "sandbox", "device-1")
    asyncio.run(_lay(few, FEW_PEOPLE, 0))
    progress(f"{PART}: laying {PEOPLE:,} people and {SCHEDULED:,} scheduled routes")
    asyncio.run(_lay(many, PEOPLE, SCHEDULED))
    progress(f"{PART}: warming up")
    run("wishes", few, many, str(PEOPLE), str(DIGESTS), str(TURNS))
    found: dict[str, list[list[float]]] = {}
    for number in range(ROUNDS):
        progress(f"{PART}: round {number + 1} of {ROUNDS}")
        for name, both in run("wishes", few, many, str(PEOPLE), str(DIGESTS), str(TURNS)).items():
            found.setdefault(name, []).append(both)
    outcome = Outcome(settings={PART: "two databases in turns inside one process; medians of batches of 100"})
    for name, rounds in found.items():
        for which, label in enumerate(SIDES):
            outcome.figures.append(Figure(PART, f"{name}, {label}", "µs", [both[which] for both in rounds]))
        small, large = (figure.median for figure in outcome.figures[-2:])
        outcome.ratios.append(Ratio(f"timing/{name}-million-to-few", large / small, 1.1, at_most=True))
    outcome.add(_over_http(few, many, progress))
    progress(f"{PART}: export and erasure")
    rights = run("rights", many, seconds=RIGHTS_SECONDS)
    outcome.figures += [Figure(PART, name, unit, [value]) for name, (value, unit) in rights.items()]
    return outcome


def _over_http(few: str, many: str, progress: Callable[[str], None]) -> Outcome:
    """The same three ways to accept as a producer meets them: requests over HTTP, each for another person."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "carillon.toml"
        config.write_text(CATEGORIES)

        def load(kind: str, which: int) -> float:
            body, *people = BODIES[kind]
            options = ("--roles", "doors", "--config", str(config))
            with carillon({"DATABASE_URL": (few, many)[which]}, *options) as (_, address):
                wrk(address, 1.0, bodies=[body], people=people[which])
                found = wrk(address, HTTP_SECONDS, bodies=[body], people=people[which])
            if found["bad"]:
                raise RuntimeError(f"{kind}: {found['bad']:.0f} requests were not accepted")
            return found["rate"]

        subjects: dict[str, Callable[[], float]] = {
            f"{kind} over HTTP, {side}": partial(load, kind, which)
            for kind in BODIES
            for which, side in enumerate(SIDES)
        }
        outcome = Outcome(interleaved(PART, "requests/s", subjects, HTTP_ROUNDS, progress))
    for kind in BODIES:
        small, large = (outcome.median(f"{kind} over HTTP, {side}") for side in SIDES)
        outcome.ratios.append(Ratio(f"timing/http-{kind}-few-to-million", small / large, 1.1, at_most=True))
    return outcome


async def _lay(dsn: str, people: int, scheduled: int) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in FILL:
        await connection.execute(statement, people, timeout=300)
    for at in range(0, scheduled, 100_000):
        await connection.execute(SCHEDULE, at, min(at + 100_000, scheduled) - 1, timeout=300)
    await connection.execute("VACUUM ANALYZE", timeout=300)
    await connection.execute("CHECKPOINT", timeout=120)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
    await connection.execute(WARM, timeout=120)
    await connection.close()
