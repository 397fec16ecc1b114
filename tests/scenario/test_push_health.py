"""The push worker's health, and what it does while a neighbour is away, from outside; neighbours go and come back."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.push_stand import Push, message
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis


class Neighbours:
    """Servers that may be stopped."""

    def __init__(self, rabbit: RabbitMQ, redis: Redis, postgres: Postgres) -> None:
        self.rabbit, self.redis, self.postgres = rabbit, redis, postgres

    def behind(self, check: str) -> Daemon:
        return {"database": self.postgres, "cache_service": self.redis, "message_broker": self.rabbit}[check]

    def take_away(self, check: str) -> None:
        if check == "message_broker":
            self.rabbit.leave()
        else:
            self.behind(check).kill()

    def bring_back(self, check: str) -> None:
        if check == "message_broker":
            self.rabbit.come_back()
        else:
            self.behind(check).start()


@pytest.fixture(scope="module")
def neighbours(rabbitmq: RabbitMQ) -> Iterator[Neighbours]:
    with Redis(appendonly=True) as redis, Postgres() as postgres:
        yield Neighbours(rabbitmq, redis, postgres)


@pytest.fixture
def push(neighbours: Neighbours, tmp_path: Path) -> Iterator[Push]:
    url = neighbours.postgres.database()
    with Push(tmp_path, rabbit=neighbours.rabbit, redis_server=neighbours.redis, url=url) as stand:
        stand.start()
        yield stand


def health(push: Push) -> tuple[int, Any]:
    reply = push.client.get("/health")
    return reply.status, reply.body


@pytest.mark.req("S0-73", "S0-74", "S0-75", "S0-76")
def test_everything_is_well(push: Push) -> None:
    status, body = health(push)
    assert (status, body["status"]) == (200, "healthy")
    assert set(body) == {"status", "timestamp", "checks"}
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", body["timestamp"])
    checks = body["checks"]
    assert list(checks) == ["database", "cache_service", "message_broker", "fcm", "template_service"]
    for name in ("database", "cache_service", "message_broker"):
        assert set(checks[name]) == {"status", "response_time_ms"}
        assert checks[name]["status"] == "healthy"
        assert isinstance(checks[name]["response_time_ms"], int)
    for name in ("fcm", "template_service"):
        assert checks[name] == {"status": "healthy", "circuit_breaker": "closed"}


@pytest.mark.req("S0-75", "S0-76", "S0-77")
@pytest.mark.parametrize("name", ["fcm", "template_service"])
@pytest.mark.parametrize("state", ["open", "half_open"])
def test_an_open_breaker_degrades_nothing_but_itself(push: Push, name: str, state: str) -> None:
    push.set_breaker(state, name)
    status, body = health(push)
    assert (status, body["status"]) == (200, "healthy")
    assert body["checks"][name] == {"status": "degraded", "circuit_breaker": state}


@pytest.mark.req("S0-74", "S0-78")
@pytest.mark.parametrize("check", ["database", "cache_service", "message_broker"])
def test_a_neighbour_that_is_gone_is_told_and_missed_no_longer_when_it_is_back(
    push: Push, neighbours: Neighbours, check: str
) -> None:
    neighbours.take_away(check)
    try:
        push.until(lambda: health(push)[0] == 503, what="unhealthy")
        status, body = health(push)
        assert (status, body["status"], body["checks"][check]["status"]) == (503, "unhealthy", "unhealthy")
        assert len(body["checks"]) == 5
    finally:
        neighbours.bring_back(check)
    push.until(lambda: health(push)[0] == 200, what="healthy again", timeout=60)
    sent = message()
    push.publish(sent)
    push.until_audited(sent, "sent")
    assert push.pushed(sent) == 1


@pytest.mark.req("S0-79")
@pytest.mark.parametrize("check", ["database", "cache_service", "message_broker"])
def test_a_neighbour_that_hangs_delays_the_answer_by_two_seconds_at_most(
    push: Push, neighbours: Neighbours, check: str
) -> None:
    assert health(push)[0] == 200
    server = neighbours.behind(check)
    server.pause()
    try:

        def hangs() -> bool:
            """A server told to stop may answer once more before all of its threads have, and a busy machine be late."""
            began = time.monotonic()
            status, body = health(push)
            in_time = time.monotonic() - began < 3
            return in_time and (status, body["checks"][check]["status"]) == (503, "unhealthy")

        push.until(hangs, what="unhealthy, and said so within its two seconds")
    finally:
        server.resume()
    push.until(lambda: health(push)[0] == 200, what="healthy again", timeout=60)


@pytest.mark.req("S0-21")
def test_nothing_is_sent_without_redis_and_everything_once_it_is_back(push: Push, neighbours: Neighbours) -> None:
    neighbours.redis.kill()
    messages = [message() for _ in range(15)]
    try:
        push.publish(*messages)
        push.programs[-1].wait_for("trouble", lambda line: "Redis" in line["error"])
        push.until(lambda: health(push)[0] == 503, what="unhealthy")
        assert push.posts() == []
        assert push.broker.ready("failed.queue") == 0
    finally:
        neighbours.redis.start()
    for sent in messages:
        push.until_mark(sent, "sent", timeout=60)
    push.until_empty()
    assert [push.pushed(sent) for sent in messages] == [1] * 15


@pytest.mark.req("S0-05")
def test_a_broker_that_is_started_again_is_worked_on_again(push: Push, neighbours: Neighbours) -> None:
    before, after = message(), message()
    push.publish(before)
    push.until_audited(before, "sent")
    neighbours.rabbit.leave()
    neighbours.rabbit.come_back()
    push.publish(after)
    push.until_audited(after, "sent", timeout=60)
    assert (push.pushed(before), push.pushed(after)) == (1, 1)


@pytest.mark.req("S0-05", "S0-21")
def test_a_worker_that_is_started_before_its_neighbours_waits_for_them(push: Push, neighbours: Neighbours) -> None:
    push.programs[-1].terminate()
    assert push.programs[-1].wait() == 0
    sent = message()
    push.publish(sent)
    neighbours.rabbit.leave()
    neighbours.redis.kill()
    try:
        push.launch().wait_ready()
        status, body = health(push)
        assert (status, body["checks"]["database"]["status"]) == (503, "healthy")
        push.programs[-1].wait_for("trouble", lambda line: line["where"] == "rabbitmq")
    finally:
        neighbours.redis.start()
        neighbours.rabbit.come_back()
    push.until_audited(sent, "sent", timeout=60)
    push.until(lambda: health(push)[0] == 200, what="healthy", timeout=60)
    push.programs[-1].terminate()
    assert push.programs[-1].wait() == 0


@pytest.mark.req("S0-47", "S0-48")
def test_what_was_sent_while_the_audit_log_was_away_is_audited_and_acknowledged_later(
    push: Push, neighbours: Neighbours
) -> None:
    neighbours.postgres.kill()
    sent = message()
    try:
        push.publish(sent)
        push.until_mark(sent, "sent")
        push.programs[-1].wait_for("trouble", lambda line: line["where"] == "settle")
        assert push.unacked() == 1
    finally:
        neighbours.postgres.start()
    push.until_audited(sent, "sent", timeout=60)
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent))) == (1, 1)
