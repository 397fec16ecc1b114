"""Blueprint listo: what a synchronous send adds to the provider's own call, and a backlog whose primary is down."""

import asyncio
import resource
import time
from collections.abc import Callable

import asyncpg

from bench.latency import percentile
from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.stage import carillon, nginx, run
from tests.support.ports import free_port
from tests.support.servers import Postgres

PART = "listo"
CALLS, MESSAGES = 300, 5_000
LIMIT_SECONDS = 120.0
SCALE = 0.02
"""A wait of five seconds takes a tenth of one, with and without the storm."""
OPEN_SECONDS = 60.0
"""As the document has it, past the scale: a storm is not probed fifty times as often as it would be."""
PHONE = "+14155550100"
TWILIO = '{"sid":"SM00000000000000000000000000000001","status":"queued","error_code":null}'
SNS = "<PublishResponse><PublishResult><MessageId>94f20ce6</MessageId></PublishResult></PublishResponse>"
DOWN = '{"code":20503,"message":"Service unavailable","status":503}'
HEALTHY, STORM, REFUSED = "primary up", "primary answers 503", "primary refuses connections"
SECOND = "secondary by itself"
"""What of a storm is the secondary's own cost: its requests are signed, the primary's are not."""
LEFT = "SELECT EXISTS (SELECT 1 FROM routes WHERE next_attempt_at IS NOT NULL)"
TOOK = """
SELECT extract(epoch FROM max(published_at) - (SELECT min(started_at) FROM attempts_told))::float8 AS seconds,
    count(*) FILTER (WHERE status = 'published') AS published
FROM routes
"""
"""From the first call, were it in vain, to the last message taken."""


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Text messages through Twilio, with SNS behind it; both are an nginx that answers at once."""
    with nginx(TWILIO) as twilio, nginx(SNS) as sns, nginx(DOWN, 503) as down:
        outcome = _synchronous(postgres, progress, rounds, _environment(twilio, sns))
        homes = {HEALTHY: twilio, STORM: down, REFUSED: f"http://127.0.0.1:{free_port()}/", SECOND: twilio}
        spent: dict[str, list[float]] = {name: [] for name in homes}
        subjects = {
            name: _drain(postgres, _environment(home, sns), "AWS_SNS" if name == SECOND else "Twilio", spent[name])
            for name, home in homes.items()
        }
        outcome.figures += interleaved(PART, "messages/s", subjects, rounds, progress)
    outcome.figures += [Figure(PART, f"{name}: processor time", "s", each) for name, each in spent.items()]
    storm = min(outcome.median(STORM), outcome.median(REFUSED))
    outcome.ratios = [Ratio("listo/failover-storm", storm / outcome.median(HEALTHY), 0.5)]
    outcome.settings = {
        PART: f"{rounds} x {CALLS} synchronous sends, each beside a bare call; {MESSAGES:,} queued text messages,"
        f" waits at {SCALE:g} of their length, open breakers at their full; the ratio is of the slower storm"
    }
    return outcome


def _environment(twilio: str, sns: str) -> dict[str, str]:
    return {
        "CARILLON_ALLOW_SANDBOX": "1",
        "CARILLON_DRILL__TIME_SCALE": str(SCALE),
        "CARILLON_POLICY__BREAKER__TWILIO__OPEN_SECONDS": str(OPEN_SECONDS / SCALE),
        "TWILIO_BASE_URL": _root(twilio),
        "TWILIO_ACCOUNT_SID": "AC00000000000000000000000000000001",
        "TWILIO_AUTH_TOKEN": "bench",
        "TWILIO_FROM": "+15005550006",
        "AWS_SNS_ENDPOINT_URL": _root(sns),
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIABENCH",
        "AWS_SECRET_ACCESS_KEY": "bench",
    }


def _root(url: str) -> str:
    return url.rpartition("/")[0]


def _synchronous(
    postgres: Postgres, progress: Callable[[str], None], rounds: int, environment: dict[str, str]
) -> Outcome:
    ours: list[float] = []
    bare: list[float] = []
    # The two seconds of a synchronous send are meant as they are.
    env = {**environment, "CARILLON_DRILL__TIME_SCALE": "1"}
    for number in range(rounds):
        progress(f"{PART}: synchronous sends, round {number + 1} of {rounds}")
        with carillon({**env, "DATABASE_URL": postgres.database()}, "--blueprint", "listo") as (_, address):
            found = run("synchronous", address, env["TWILIO_BASE_URL"], str(CALLS))
        ours += found["ours_ms"]
        bare += found["bare_ms"]
    figures = [
        Figure(PART, f"{who}, {name}", "ms", [percentile(values, share)])
        for who, values in (("synchronous send", ours), ("bare provider call", bare))
        for name, share in (("p50", 50), ("p99", 99))
    ]
    p50 = [percentile(values, 50) for values in (ours, bare)]
    return Outcome(
        [
            *figures,
            Figure(PART, "synchronous send to bare call, p50", "times", [p50[0] / p50[1]]),
        ]
    )


def _drain(postgres: Postgres, environment: dict[str, str], provider: str, spent: list[float]) -> Callable[[], float]:
    def drained() -> float:
        dsn = postgres.database()
        run("fill", dsn, str(MESSAGES), "sms", provider, PHONE)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with carillon({**environment, "DATABASE_URL": dsn}, "--blueprint", "listo"):
            rate = asyncio.run(_finished(dsn))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return rate

    return drained


async def _finished(dsn: str) -> float:
    connection = await asyncpg.connect(dsn)
    until = time.monotonic() + LIMIT_SECONDS
    try:
        while await connection.fetchval(LEFT):
            if time.monotonic() > until:
                raise RuntimeError("the backlog was not drained in time")
            await asyncio.sleep(0.1)
        row = await connection.fetchrow(TOOK)
        if row is None or row["published"] != MESSAGES:
            raise RuntimeError(f"{row} instead of {MESSAGES} messages")
        return MESSAGES / float(row["seconds"])
    finally:
        await connection.close()
