"""SIGTERM while something else is silent: billing ends all the same, in time, and each subscription is paid once."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.properties import ViolationError, ends_in_time, hold
from tests.support.billing_stand import Billing
from tests.support.daemon import Daemon
from tests.support.ending import DRAIN, MOST, PATIENCE, Ending
from tests.support.servers import Postgres, Redis

# A dead worker's locks end soon, so that the sweeper finds its messages.
LOCKS = {f"CARILLON_QUEUE__{queue}__LOCK_TTL_SECONDS": "3" for queue in ("DEFAULT", "Q_SUB_TRIAL_PAYMENT")}
NUMBER = 20
PAYING, SYNCING = "q:sub:payment_initiation", "q:sub:usage_sync"
USAGE = {"user_id": "ada", "feature_name": "calls", "delta": 1}
# Payments last, so that there are some in hand whenever something falls silent.
SLOW = "[gateway]\ndelay_seconds = 0.5"


@pytest.fixture
def billing(tmp_path: Path, own_postgres: Postgres, own_redis: Redis) -> Iterator[Billing]:
    dsn = own_postgres.database()
    with Billing(tmp_path, redis_server=own_redis, url=dsn, settings=SLOW, **PATIENCE, **LOCKS) as stand:
        yield stand


def in_hand(billing: Billing, queue: str) -> None:
    billing.until(lambda: bool(billing.redis.llen(f"{queue}:processing")), what=f"a message of {queue} in hand")


def end_while_paying(billing: Billing, server: Daemon) -> Ending:
    """In the midst of payments and what they tell each other, which an heir then brings to their end."""
    program = billing.start()
    made = [billing.create() for _ in range(NUMBER)]
    in_hand(billing, PAYING)
    server.pause()
    ending = ends_in_time(program, MOST, server)
    billing.start()
    for subscription_id in made:
        billing.until_status(subscription_id, "active")
    billing.until_idle()
    paid = sorted(row["subscription_id"] for row in billing.found("payments"))
    hold("paid_once", paid == sorted(made), f"{len(paid)} payments of {len(made)} subscriptions")
    return ending


def end_with_something_to_write(billing: Billing, server: Postgres, mutant: str | None = None) -> Ending:
    """A message that a silent PostgreSQL is asked about, on connections that were good a moment ago."""
    program = billing.start(mutant=mutant)
    billing.until_status(billing.create(), "active")
    billing.until_idle()
    server.pause()
    billing.push(SYNCING, {"id": "late", "action": "usage_sync", "payload": USAGE})
    in_hand(billing, SYNCING)
    ending = ends_in_time(program, MOST, server)
    billing.start()
    billing.logged("success", message_id="late")
    counted = [row["usage_count"] for row in billing.found("usage_counters")]
    hold("counted_once", counted == [1], f"counted {counted}")
    return ending


@pytest.mark.req("G-06")
@pytest.mark.parametrize("away", ["own_redis", "own_postgres"])
def test_billing_ends_in_time(
    billing: Billing, request: pytest.FixtureRequest, away: str, figures: Callable[..., None]
) -> None:
    ending = end_while_paying(billing, request.getfixturevalue(away))
    figures(away=away, drain=DRAIN, **ending.figures())


@pytest.mark.req("G-06")
def test_billing_ends_in_time_in_the_midst_of_a_claim(
    billing: Billing, own_redis: Redis, figures: Callable[..., None]
) -> None:
    """A worker that misses its Redis asks again and again: the signal finds it waiting for an answer, and paying."""
    program = billing.start()
    for _ in range(NUMBER):
        billing.create()
    in_hand(billing, PAYING)
    since = program.mark()
    own_redis.pause()
    missed = program.wait_for("trouble", lambda line: line["where"] == "claim", since=since)
    # Nobody tells when the next question begins; it lasts for seconds.
    time.sleep(missed["retry_in_seconds"] + 0.5)
    ending = ends_in_time(program, MOST, own_redis)
    figures(drain=DRAIN, **ending.figures())


def test_billing_ends_in_time_with_something_to_write(
    billing: Billing, own_postgres: Postgres, figures: Callable[..., None]
) -> None:
    ending = end_with_something_to_write(billing, own_postgres)
    figures(drain=DRAIN, **ending.figures())


def test_billing_that_waits_for_the_silent_is_missed(billing: Billing, own_postgres: Postgres) -> None:
    with pytest.raises(ViolationError) as caught:
        end_with_something_to_write(billing, own_postgres, "left_late")
    assert caught.value.promise == "ends_in_time"
