"""A process killed around the sending of an alert, and a sink that is away: the alert arrives, under one id."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.blueprint_stand import database
from tests.support.listo_stand import DOWN, Listo
from tests.support.servers import Redis
from tests.support.waiting import wait_until

STREAM = "listo-notifications-alerts"
# One attempt is enough to be given up, and the breaker stays closed: no message goes to the secondary, which is up.
SETTINGS = """
[policy.retry."*/email"]
max_attempts = 1
open_after_retries = false
[policy.breaker.sendgrid]
failure_threshold = 100000
"""


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis(appendonly=True) as own:
        yield own


@pytest.fixture(params=["sqlite", "postgres"], name="listo")
def stand(request: pytest.FixtureRequest, tmp_path: Path, server: Redis) -> Iterator[Listo]:
    for url in database(request, tmp_path):
        with Listo(tmp_path, url, SETTINGS, REDIS_URL=server.url()) as listo:
            listo.sendgrid.default = DOWN
            yield listo


def told(server: Redis) -> list[dict[str, Any]]:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        entries: Any = client.xrange(STREAM)
    return [json.loads(fields["event"]) for _, fields in entries]


def waiting(listo: Listo) -> int:
    return len(listo.rows("SELECT * FROM outbox"))


def give_up_and_die(listo: Listo, point: str) -> str:
    """A notification is given up and its process dies at the point; the notification's id."""
    # Claimed behind its acceptance: the caller shall have its answer before the process dies.
    program = listo.start(CARILLON_FAULTPOINTS=f"{point}=exit9", CARILLON_WORK__CLAIM_ON_ACCEPT="false")
    known = listo.sent("order_confirmed", "email", data={"orderNumber": "1"})
    assert program.wait(60) == -9
    (row,) = listo.rows("SELECT * FROM routes")
    assert row["status"] == "dead_letter"
    assert waiting(listo) == 1
    return known


@pytest.mark.req("S2-122")
def test_killed_after_the_burial_and_before_the_telling(listo: Listo, server: Redis) -> None:
    known = give_up_and_die(listo, "before_alert")
    assert told(server) == []
    listo.start()
    wait_until(lambda: waiting(listo) == 0, timeout=40, what="the alert to be told")
    (alert,) = told(server)
    assert (alert["notificationId"], alert["attemptCount"]) == (known, 1)


@pytest.mark.req("S2-122")
def test_killed_right_after_the_burial(listo: Listo, server: Redis) -> None:
    known = give_up_and_die(listo, "after_settle")
    listo.start()
    wait_until(lambda: waiting(listo) == 0, timeout=40, what="the alert to be told")
    assert [alert["notificationId"] for alert in told(server)] == [known]


@pytest.mark.req("S2-122")
def test_killed_between_telling_and_removing_repeats_under_the_same_id(listo: Listo, server: Redis) -> None:
    give_up_and_die(listo, "after_alert")
    (first,) = told(server)
    listo.start()
    wait_until(lambda: waiting(listo) == 0, timeout=40, what="the alert to be removed")
    assert told(server) == [first, first]


@pytest.mark.req("S2-122")
def test_a_sink_that_is_away_delays_and_loses_nothing(listo: Listo, server: Redis) -> None:
    program = listo.start()
    server.stop()
    ids = {listo.sent("order_confirmed", "email", data={"orderNumber": str(n)}) for n in range(5)}
    program.wait_for("alert_delayed")
    wait_until(lambda: waiting(listo) == 5, timeout=40, what="five alerts to wait")
    server.start()
    wait_until(lambda: waiting(listo) == 0, timeout=40, what="the alerts to be told")
    alerts = told(server)
    assert {alert["notificationId"] for alert in alerts} == ids
    assert len({alert["alertId"] for alert in alerts}) == len(ids)


@pytest.mark.req("S2-122")
def test_replicas_tell_each_alert_once(listo: Listo, server: Redis) -> None:
    listo.start()
    listo.start()
    ids = [listo.sent("order_confirmed", "email", data={"orderNumber": str(n)}) for n in range(20)]
    wait_until(lambda: len(told(server)) >= len(ids), timeout=40, what="every alert")
    wait_until(lambda: waiting(listo) == 0, timeout=40, what="the outbox to be empty")
    assert sorted(alert["notificationId"] for alert in told(server)) == sorted(ids)
