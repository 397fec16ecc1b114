"""A push worker and the failures of those around it: every message ends pushed, in failed.queue or in push.queue."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.push_faults import events, whereabouts
from tests.support.push_stand import Push, message, stand_fixture
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

# A call that FCM holds must not time out meanwhile: it would be repeated, and open the breaker.
PATIENT = "[policy.retry.fcm]\ntimeout_seconds = 26\n"
push: Any = stand_fixture(PATIENT, start=False)
REFUSED = Reply(400, body={"error": "InvalidRegistration"})


def messages(number: int) -> list[dict[str, Any]]:
    return [message() for _ in range(number)]


def hold_fcm(push: Push) -> threading.Event:
    """FCM takes requests and answers none before the event is set."""
    gate = threading.Event()
    serve = push.fcm.default
    assert callable(serve)
    answered = serve

    def held(entry: dict[str, Any]) -> Reply:
        reply = answered(entry)
        return Reply(reply.status, reply.headers, reply.body, gate=gate)

    push.fcm.default = held
    return gate


def each_once(push: Push, sent: list[dict[str, Any]], timeout: float = 60) -> None:
    """All of them are pushed and marked, each once, and nothing is left anywhere."""
    push.until(lambda: all(push.mark(each) == "sent" for each in sent), what="every mark sent", timeout=timeout)
    push.until(lambda: push.broker.ready() == 0, what="nothing ready", timeout=timeout)
    push.until(lambda: events(push, "message_finished") >= len(sent), what="every message finished", timeout=timeout)
    found = whereabouts(push, sent)
    assert found.lost(sent) == []
    assert found.twice() == []
    assert (found.failed, found.waiting) == ({}, {})
    assert sorted(row["trace_id"] for row in push.rows()) == sorted(each["trace_id"] for each in sent)


@pytest.mark.req("S0-05", "G-04")
def test_a_connection_killed_with_unacknowledged_messages(push: Push) -> None:
    push.start()
    gate = hold_fcm(push)
    sent = messages(25)
    push.publish(*sent)
    push.fcm.wait_for(10)
    push.rabbit.close_all_connections("a fault test")
    gate.set()
    each_once(push, sent)


@pytest.mark.req("S0-05")
def test_a_broker_killed_and_restarted(
    own_rabbit: RabbitMQ, redis_server: Redis, postgres_dsn: str, tmp_path: Path
) -> None:
    with Push(tmp_path, rabbit=own_rabbit, redis_server=redis_server, url=postgres_dsn, settings=PATIENT) as push:
        push.broker.declare("push.queue")
        push.start()
        gate = hold_fcm(push)
        sent = messages(25)
        push.publish(*sent)
        push.fcm.wait_for(10)
        own_rabbit.kill()
        gate.set()
        own_rabbit.start()
        each_once(push, sent, timeout=40)


@pytest.mark.req("S0-21")
def test_redis_down(own_redis: Redis, rabbitmq: RabbitMQ, postgres_dsn: str, tmp_path: Path) -> None:
    with Push(tmp_path, rabbit=rabbitmq, redis_server=own_redis, url=postgres_dsn, settings=PATIENT) as push:
        program = push.start()
        own_redis.kill()
        before = program.mark()
        sent = messages(25)
        push.publish(*sent)
        program.wait_for("trouble", since=before)
        assert push.posts() == []
        assert push.template_service.gets == []
        assert program.returncode is None
        own_redis.start()
        each_once(push, sent)


@pytest.mark.req("S0-47", "S0-48")
def test_postgresql_down(own_postgres: Postgres, rabbitmq: RabbitMQ, redis_server: Redis, tmp_path: Path) -> None:
    url = own_postgres.database()
    with Push(tmp_path, rabbit=rabbitmq, redis_server=redis_server, url=url, settings=PATIENT) as push:
        program = push.start()
        gate = hold_fcm(push)
        sent = messages(25)
        push.publish(*sent)
        push.fcm.wait_for(10)
        own_postgres.stop()
        before = program.mark()
        gate.set()
        program.wait_for("trouble", since=before)
        own_postgres.start()
        each_once(push, sent)


def die_inside_the_call(push: Push, takeover: str) -> tuple[list[dict[str, Any]], int]:
    """A worker dies while FCM has ten of its requests; another one is there."""
    first = push.start()
    gate = hold_fcm(push)
    sent = messages(25)
    push.publish(*sent)
    push.fcm.wait_for(10)
    first.kill()
    gate.set()
    push.start(CARILLON_PUSH__TAKEOVER_AFTER=takeover)
    return sent, 10


@pytest.mark.req("S0-18", "G-05")
def test_a_worker_killed_inside_the_call_is_taken_over_from(push: Push) -> None:
    sent, held = die_inside_the_call(push, "2")
    push.until(lambda: all(push.mark(each) == "sent" for each in sent), what="every mark sent", timeout=30)
    push.until(lambda: events(push, "message_finished") >= len(sent), what="every message finished")
    found = whereabouts(push, sent)
    assert found.lost(sent) == []
    assert len(found.twice()) <= held, "only what was under way at the death"
    assert max(found.pushed.values()) <= 2
    assert (found.failed, found.waiting) == ({}, {})


@pytest.mark.req("S0-13", "S0-18")
def test_control_without_takeover_they_wait_and_are_not_lost(push: Push) -> None:
    sent, held = die_inside_the_call(push, "86400")
    push.until(lambda: push.unacked() > 0, what="deliveries in the second worker's hands")
    found = whereabouts(push, sent)
    assert found.lost(sent) == []
    assert found.twice() == []
    assert len(found.waiting) >= held


@pytest.mark.req("S0-12", "S0-17")
def test_two_workers_and_the_same_key_a_thousand_times(push: Push) -> None:
    push.start()
    push.start()
    one = message()
    push.publish(*[one] * 1000)
    push.until(lambda: events(push, "message_finished") >= 1000, what="a thousand finished", timeout=60)
    found = whereabouts(push, [one])
    assert found.pushed == {one["trace_id"]: 1}
    assert (found.failed, found.waiting) == ({}, {})
    assert len(push.audit(one)) == 1


@pytest.mark.req("S0-17")
def test_control_without_marks_the_same_key_is_pushed_again(push: Push) -> None:
    push.start(mutant="no_marks")
    one = message()
    push.publish(*[one] * 20)
    push.until(lambda: push.pushed(one) > 1, what="a second push")


def refuse_confirms(push: Push) -> list[dict[str, Any]]:
    """Everything fails, and the failed queue takes two of five."""
    push.broker.declare("failed.queue", x_max_length=2, x_overflow="reject-publish")
    push.fcm.default = REFUSED
    sent = messages(5)
    push.publish(*sent)
    return sent


@pytest.mark.req("S0-52", "S0-53", "S0-56")
def test_a_broker_that_refuses_confirms(push: Push) -> None:
    program = push.start()
    push.broker.delete("failed.queue")
    sent = refuse_confirms(push)
    program.wait_for("trouble", lambda line: line["where"] == "park")
    push.until(lambda: push.broker.ready("failed.queue") == 2, what="two dead letters")
    taken: list[str] = []

    def all_taken() -> bool:
        taken.extend(body["original_message"]["trace_id"] for body in push.broker.bodies("failed.queue"))
        return len(taken) >= 5

    push.until(all_taken, what="five dead letters, as there was room for them")
    assert sorted(taken) == sorted(each["trace_id"] for each in sent)
    found = whereabouts(push, sent)
    assert (found.waiting, found.twice()) == ({}, [])


@pytest.mark.req("S0-53")
def test_a_worker_that_ends_while_confirms_are_refused_leaves_them(push: Push) -> None:
    program = push.start()
    push.broker.delete("failed.queue")
    sent = refuse_confirms(push)
    program.wait_for("trouble", lambda line: line["where"] == "park")
    push.until(lambda: push.broker.ready("failed.queue") == 2, what="two dead letters")
    program.kill()
    found = whereabouts(push, sent)
    assert found.lost(sent) == []
    assert len(found.waiting) == 3


@pytest.mark.req("S0-53")
def test_control_an_acknowledgement_before_the_confirm_loses_them(push: Push) -> None:
    program = push.start(mutant="ack_before_confirm")
    push.broker.delete("failed.queue")
    sent = refuse_confirms(push)
    push.until(lambda: all(push.mark(each) == "failed" for each in sent), what="every mark failed")
    push.until(lambda: push.broker.ready("failed.queue") == 2, what="two dead letters")
    program.terminate()
    program.wait()
    taken = {body["original_message"]["trace_id"] for body in push.broker.bodies("failed.queue")}
    assert len(taken) == 2
    assert push.broker.ready() == 0, "the other three are nowhere"
