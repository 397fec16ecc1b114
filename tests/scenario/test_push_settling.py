"""How the push worker ends a message: the order of effects, audit rows and dead letters, from outside."""

import datetime as dt
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.push_stand import Push, message, stand_fixture
from tests.support.servers import find_binary
from tests.support.vendor import Reply

push: Any = stand_fixture(start=False)
REFUSAL = Reply(400, body="Error=InvalidParameters")
REASON = "FCM rejected: InvalidParameters"


@contextmanager
def audit_log_locked(push: Push) -> Iterator[None]:
    """Nobody can write to the audit log, and everybody can read it."""
    psql = subprocess.Popen([find_binary("psql"), "-X", "-q", push.url], stdin=subprocess.PIPE, text=True)
    assert psql.stdin is not None
    psql.stdin.write("BEGIN; LOCK TABLE audit_logs IN EXCLUSIVE MODE;\n")
    psql.stdin.flush()
    held = "SELECT 1 AS n FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation = 'audit_logs'::regclass AND granted"
    push.until(lambda: bool(push.rows(held)), what="the lock")
    try:
        yield
    finally:
        psql.stdin.write("ROLLBACK;\n")
        psql.stdin.close()
        psql.wait(timeout=60)


@pytest.mark.req("S0-47")
def test_success_is_marked_then_audited_then_acknowledged(push: Push) -> None:
    push.start()
    sent = message()
    with audit_log_locked(push):
        push.publish(sent)
        push.until_mark(sent, "sent")
        waits = "SELECT 1 AS n FROM pg_locks WHERE relation = 'audit_logs'::regclass AND NOT granted"
        push.until(lambda: bool(push.rows(waits)), what="the insert waiting")
        assert (push.audit(sent), push.unacked()) == ([], 1)
    push.until_audited(sent, "sent")
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent))) == (1, 1)


@pytest.mark.req("S0-48")
def test_a_row_that_was_not_written_is_completed_without_a_second_push(push: Push) -> None:
    program = push.start(CARILLON_FAULTPOINTS="after_settled_mark=exit9")
    sent = message()
    push.publish(sent)
    program.wait()
    assert (push.mark(sent), push.audit(sent)) == ("sent", [])
    push.start()
    row = push.until_audited(sent, "sent")
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent)), row["template_id"]) == (1, 1, "welcome_notification")


@pytest.mark.req("S0-48")
def test_a_row_that_was_written_is_not_written_twice(push: Push) -> None:
    program = push.start(CARILLON_FAULTPOINTS="after_audit=exit9")
    sent = message()
    push.publish(sent)
    program.wait()
    assert len(push.audit(sent)) == 1
    push.start()
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent))) == (1, 1)


@pytest.mark.req("S0-49")
def test_the_seeds_insert_runs_as_it_is(push: Push) -> None:
    push.start()
    name = push.url.rpartition("/")[2]
    psql = [find_binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", push.url, "-c"]
    statement = """INSERT INTO audit_logs (
      trace_id, user_id, notification_type, template_id, status, metadata, created_at
    ) VALUES (
      'a3f5b9c1-2d4e-4a5f-9b2c-7e8d9f1a2b3c', '550e8400-e29b-41d4-a716-446655440000', 'push',
      'welcome_notification', 'sent', '{"campaign_id": "summer_2024"}', NOW()
    );"""
    subprocess.run([*psql, statement], check=True, timeout=60)
    subprocess.run([*psql, statement], check=True, timeout=60)
    kind = push.rows(
        "SELECT data_type FROM information_schema.columns WHERE column_name = 'metadata' AND table_name = 'audit_logs'"
    )
    assert (kind[0]["data_type"], len(push.rows()), name != "") == ("jsonb", 2, True)


@pytest.mark.req("S0-50", "S0-51")
def test_audit_rows_carry_the_messages_metadata(push: Push) -> None:
    push.start()
    metadata = {"campaign_id": "summer_2024", "deep": [1, {"x": None}]}
    sent = message(metadata=metadata)
    push.publish(sent)
    before = dt.datetime.now(dt.UTC)
    row = push.until_audited(sent, "sent")
    assert row["metadata"] == metadata
    assert abs((row["created_at"] - before).total_seconds()) < 60
    push.fcm.answer(REFUSAL)
    sent = message(metadata=metadata)
    push.publish(sent)
    row = push.until_audited(sent, "failed")
    assert row["metadata"] == {**metadata, "failure_reason": REASON}
    assert (row["user_id"], row["notification_type"]) == (sent["user_id"], "push")


@pytest.mark.req("S0-52", "S0-53")
def test_failure_is_marked_audited_dead_lettered_and_acknowledged_in_this_order(push: Push) -> None:
    # A queue that takes one message and refuses the confirm of every other.
    push.broker.declare("failed.queue", x_max_length=1, x_overflow="reject-publish")
    push.broker.publish({"filler": True}, queue="failed.queue")
    push.start()
    push.fcm.answer(REFUSAL)
    sent = message()
    with audit_log_locked(push):
        push.publish(sent)
        push.until_mark(sent, "failed")
        assert push.audit(sent) == []
    push.until_audited(sent, "failed")
    push.programs[-1].wait_for("trouble", lambda line: line["where"] == "park")
    assert push.unacked() == 1
    # As soon as there is room the dead letter takes it.
    assert push.broker.bodies("failed.queue", 1) == [{"filler": True}]
    assert push.dead(sent)["failure_reason"] == REASON
    push.until_empty()
    assert (push.pushed(sent), len(push.audit(sent))) == (1, 1)


@pytest.mark.req("S0-53", "S0-54", "S0-56", "S0-57")
def test_the_dead_letter_is_exactly_the_documents(push: Push) -> None:
    push.start()
    push.fcm.answer(REFUSAL)
    sent = message(unknown={"big": 12345678901234567, "float": 1.10, "text": "ü \u2603"})
    push.publish(sent)
    push.until(lambda: push.broker.ready("failed.queue") == 1, what="a dead letter")
    (letter,) = push.broker.take("failed.queue")
    assert (letter.delivery_mode, letter.content_type) == (2, "application/json")
    push.broker.publish(letter.body, queue="failed.queue")
    body = push.dead(sent)
    assert set(body) == {"original_message", "failure_reason", "failed_at"}
    assert body["failure_reason"] == REASON
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", body["failed_at"])
    failed_at = dt.datetime.fromisoformat(body["failed_at"])
    assert abs((failed_at - dt.datetime.now(dt.UTC)).total_seconds()) < 60
    push.until_empty()
    assert push.broker.consumers("failed.queue") == 0


@pytest.mark.req("S0-53")
def test_a_worker_that_dies_before_the_confirm_loses_nothing(push: Push) -> None:
    program = push.start(CARILLON_FAULTPOINTS="after_audit=exit9")
    push.fcm.answer(REFUSAL)
    sent = message()
    push.publish(sent)
    program.wait()
    assert (push.mark(sent), push.broker.ready("failed.queue")) == ("failed", 0)
    push.fcm.answer(REFUSAL)
    push.start()
    assert push.dead(sent)["failure_reason"] == REASON
    push.until_empty()
