"""The push worker and its queues, from outside."""

import json
import os
import threading
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.process import run_carillon
from tests.support.push_stand import Push, message, stand_fixture
from tests.support.vendor import Reply

push: Any = stand_fixture(start=False)
rehearsal: Any = stand_fixture(
    '[channels]\npush = ["sandbox"]\n[providers.sandbox]\nkind = "sandbox"\n', name="rehearsal", start=False
)


@pytest.mark.req("S0-01", "S0-02", "S0-03")
def test_ten_messages_are_held_and_sent_at_once_and_no_more(push: Push) -> None:
    push.start()
    gate = threading.Event()
    push.fcm.answer(*[Reply(gate=gate)] * 25)
    messages = [message() for _ in range(25)]
    push.publish(*messages)
    push.fcm.wait_for(10)
    push.until(lambda: push.broker.ready() == 15, what="fifteen left in the queue")
    # The broker's own tool takes two seconds: enough time for an eleventh call, if there were one.
    assert push.unacked() == 10
    assert (len(push.posts()), push.broker.ready()) == (10, 15)
    gate.set()
    for sent in messages:
        push.until_mark(sent, "sent")
    push.until_empty()
    assert sorted(push.pushed(sent) for sent in messages) == [1] * 25


@pytest.mark.req("S0-03")
def test_messages_that_come_one_by_one_are_sent_ten_at_once(push: Push) -> None:
    push.start()
    gate = threading.Event()
    push.fcm.answer(*[Reply(gate=gate)] * 12)
    for number in range(1, 11):
        push.publish(message())
        push.fcm.wait_for(number)
    push.publish(message(), message())
    push.until(lambda: push.broker.ready() == 2, what="two left in the queue")
    assert len(push.posts()) == 10
    gate.set()
    push.fcm.wait_for(12)


@pytest.mark.req("S0-04")
def test_queues_that_are_not_there_are_made_durable_and_plain(push: Push) -> None:
    push.start()
    # A declaration with other arguments would be refused.
    push.broker.declare("push.queue", durable=True)
    push.broker.declare("failed.queue", durable=True)


@pytest.mark.req("S0-04")
def test_queues_that_are_there_stay_as_they_were_made(push: Push) -> None:
    push.broker.declare("push.queue", durable=False, x_max_priority=5)
    push.broker.declare("failed.queue", durable=True, x_queue_type="quorum")
    push.start()
    push.fcm.answer(Reply(404))
    lost, sent = message(), message()
    push.publish(lost)
    assert push.dead(lost)["failure_reason"] == "FCM rejected: HTTP 404"
    push.publish(sent)
    push.until_mark(sent, "sent")


@pytest.mark.req("S0-04")
def test_a_quorum_queue_is_worked_on_like_any_other(push: Push) -> None:
    push.broker.declare("push.queue", durable=True, x_queue_type="quorum")
    push.start()
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    push.until_empty()


@pytest.mark.req("S0-05")
def test_a_queue_that_is_deleted_is_made_and_consumed_again(push: Push) -> None:
    push.start()
    push.broker.delete("push.queue")
    push.until(lambda: push.broker.exists("push.queue") and push.broker.consumers() == 1, what="a new consumer")
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")


@pytest.mark.req("S0-04")
def test_ready_is_said_once_there_is_a_queue(push: Push) -> None:
    program = push.start()
    program.wait_ready()
    said = [line["event"] for line in program.lines if line["event"] == "ready" or line.get("part") == "rabbitmq"]
    assert said[:2] == ["part_started", "ready"]


@pytest.mark.req("S0-04")
def test_messages_of_one_claim_are_rendered_also_for_a_provider_of_batches(rehearsal: Push) -> None:
    rehearsal.broker.declare("push.queue")
    messages = [message(variables={"name": "Ada"}) for _ in range(10)]
    rehearsal.publish(*messages)
    rehearsal.start()
    reasons = [body["failure_reason"] for body in rehearsal.failed(10)]
    assert reasons == ["missing template variables: link"] * 10


@pytest.mark.req("S0-37")
def test_the_start_warns_of_googles_legacy_host(push: Push) -> None:
    program = push.start(FCM_BASE_URL="https://fcm.googleapis.com")
    line = program.wait_for("remark")
    assert (line["level"], "legacy" in line["message"]) == ("warning", True)
    quiet = push.start()
    assert quiet.events("remark") == []


@pytest.mark.req("S0-33")
@pytest.mark.parametrize("variable", ["RABBITMQ_URL", "REDIS_URL", "DATABASE_URL", "FCM_SERVER_KEY"])
def test_what_is_needed_is_asked_for_at_the_start(push: Push, variable: str) -> None:
    program = push.launch(**{variable: ""})
    assert program.wait() == 2
    assert variable.lower().removeprefix("fcm_") in program.tail().lower()


@pytest.mark.req("S0-01", "S0-22")
@pytest.mark.parametrize(
    ("variable", "value"), [("RABBITMQ_URL", "http://127.0.0.1"), ("TEMPLATE_SERVICE_URL", "127.0.0.1:8084")]
)
def test_addresses_that_cannot_be_right_stop_the_start(push: Push, variable: str, value: str) -> None:
    program = push.launch(**{variable: value})
    assert program.wait() == 2
    assert variable in program.tail()


def test_the_doctor_asks_the_broker(push: Push) -> None:
    push.broker.declare("push.queue")
    push.publish(message(), message())
    told = doctor(push)
    assert told["RabbitMQ"] == ("ok", "push.queue: 2 waiting, failed.queue: not there yet")
    assert told["Provider fcm"][0] == "ok"
    assert doctor(push, RABBITMQ_URL=f"amqp://127.0.0.1:{free_port()}/")["RabbitMQ"][0] == "ill"
    assert push.broker.ready() == 2


def doctor(push: Push, **environment: str) -> dict[str, tuple[str, str]]:
    given = {"PATH": os.environ["PATH"], **push.environment(**environment)}
    done = run_carillon(["doctor", "--json", "--blueprint", "push-worker"], env=given, timeout=60)
    assert done.stderr == "", "the findings say it, and no client says it once more"
    return {each["part"]: (each["verdict"], each["words"]) for each in json.loads(done.stdout)}


@pytest.mark.req("S0-80")
def test_one_line_for_each_message_that_ended(push: Push) -> None:
    program = push.start()
    push.fcm.answer(Reply(503), path="/fcm")
    sent = message()
    push.publish(sent)
    line = push.finished(sent)
    assert {name: line[name] for name in ("idempotency_key", "user_id", "template_code")} == {
        name: sent[name] for name in ("idempotency_key", "user_id", "template_code")
    }
    assert (line["status"], line["attempts"], line["level"]) == ("sent", 2, "info")
    assert line["duration_ms"] > 0
    push.fcm.answer(Reply(404), path="/fcm")
    lost = message()
    push.publish(lost)
    assert (push.finished(lost)["status"], push.finished(lost)["attempts"]) == ("failed", 1)
    push.until_empty()
    assert len(program.events("message_finished")) == 2


bound: Any = stand_fixture('[push]\nexchange = "notifications.direct"\n', name="bound")


@pytest.mark.req("S0-04")
def test_both_queues_can_be_bound_to_an_exchange(bound: Push) -> None:
    sent = message()
    bound.broker.publish(sent, exchange="notifications.direct", queue="push")
    bound.until_mark(sent, "sent")
    bound.broker.publish({"by": "a sibling"}, exchange="notifications.direct", queue="failed")
    assert bound.failed() == [{"by": "a sibling"}]
