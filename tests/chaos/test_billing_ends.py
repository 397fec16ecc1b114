"""SIGTERM while something else is silent: billing ends all the same, in time, and each subscription is paid once."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.chaos.properties import ViolationError, hold
from tests.support.billing_stand import Billing
from tests.support.daemon import Daemon
from tests.support.process import Program
from tests.support.servers import Postgres, Redis

# A statement may take far longer than the end; the steps of leaving have a second each, a busy machine has its share.
DRAIN, STEPS, BUSY = 3.0, 5.0, 15.0
PATIENCE = {"CARILLON_WORK__DRAIN_SECONDS": f"{DRAIN}", "CARILLON_LEDGER__OPERATION_TIMEOUT_SECONDS": "300"}
# A dead worker's locks end soon, so that the sweeper finds its messages.
LOCKS = {f"CARILLON_QUEUE__{queue}__LOCK_TTL_SECONDS": "3" for queue in ("DEFAULT", "Q_SUB_TRIAL_PAYMENT")}
NUMBER = 20
PAYING, SYNCING = "q:sub:payment_initiation", "q:sub:usage_sync"
USAGE = {"user_id": "ada", "feature_name": "calls", "delta": 1}
# Payments last, so that there are some in hand whenever something falls silent.
SLOW = "[gateway]\ndelay_seconds = 0.5"


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def billing(tmp_path: Path, own_postgres: Postgres, own_redis: Redis) -> Iterator[Billing]:
    dsn = own_postgres.database()
    with Billing(tmp_path, redis_server=own_redis, url=dsn, settings=SLOW, **PATIENCE, **LOCKS) as stand:
        yield stand


def ended(program: Program, server: Daemon) -> float:
    """How long it took; the server answers again only when that is known."""
    began = time.monotonic()
    program.terminate()
    try:
        code: int | None = program.wait(DRAIN + STEPS + BUSY)
    except TimeoutExpired:
        code = None
    finally:
        server.resume()
    took = time.monotonic() - began
    hold("ends_in_time", code == 0, f"exit code {code} after {took:.1f} s")
    return took


def in_hand(billing: Billing, queue: str) -> None:
    billing.until(lambda: bool(billing.redis.llen(f"{queue}:processing")), what=f"a message of {queue} in hand")


def end_while_paying(billing: Billing, server: Daemon) -> float:
    """In the midst of payments and what they tell each other, which an heir then brings to their end."""
    program = billing.start()
    made = [billing.create() for _ in range(NUMBER)]
    in_hand(billing, PAYING)
    server.pause()
    took = ended(program, server)
    billing.start()
    for subscription_id in made:
        billing.until_status(subscription_id, "active")
    billing.until_idle()
    paid = sorted(row["subscription_id"] for row in billing.found("payments"))
    hold("paid_once", paid == sorted(made), f"{len(paid)} payments of {len(made)} subscriptions")
    return took


def end_with_something_to_write(billing: Billing, server: Postgres, mutant: str | None = None) -> float:
    """A message that a silent PostgreSQL is asked about, on connections that were good a moment ago."""
    program = billing.start(mutant=mutant)
    billing.until_status(billing.create(), "active")
    billing.until_idle()
    server.pause()
    billing.push(SYNCING, {"id": "late", "action": "usage_sync", "payload": USAGE})
    in_hand(billing, SYNCING)
    took = ended(program, server)
    billing.start()
    billing.logged("success", message_id="late")
    counted = [row["usage_count"] for row in billing.found("usage_counters")]
    hold("counted_once", counted == [1], f"counted {counted}")
    return took


@pytest.mark.req("G-06")
@pytest.mark.parametrize("away", ["own_redis", "own_postgres"])
def test_billing_ends_in_time(
    billing: Billing, request: pytest.FixtureRequest, away: str, figures: Callable[..., None]
) -> None:
    took = end_while_paying(billing, request.getfixturevalue(away))
    figures(away=away, drain=DRAIN, ended_after=round(took, 1))


def test_billing_ends_in_time_with_something_to_write(
    billing: Billing, own_postgres: Postgres, figures: Callable[..., None]
) -> None:
    took = end_with_something_to_write(billing, own_postgres)
    figures(drain=DRAIN, ended_after=round(took, 1))


def test_billing_that_waits_for_the_silent_is_missed(billing: Billing, own_postgres: Postgres) -> None:
    with pytest.raises(ViolationError) as caught:
        end_with_something_to_write(billing, own_postgres, "silence_waited_out")
    assert caught.value.promise == "ends_in_time"
