"""The way of one message, seen from outside: its keys, its lock, its runs, its end, its logs."""

import hashlib
import json
import re
import time
import uuid
from typing import Any

import pytest

from tests.support.queue_stand import LOG, QUEUE, QUICK, QueueStand, envelope, job, stand_fixture

SLOW = "q:test:slow"
PLAIN = "q:test:work_plain"
stand: Any = stand_fixture(
    module=True,
    sql=True,
    queues={QUEUE: QUICK, SLOW: {**QUICK, "base_delay_seconds": 60.0, "max_retries": 5}, PLAIN: QUICK},
    service="payment",
    action="webhook",
)


def score_of(stand: QueueStand, message_id: str, queue: str = SLOW) -> tuple[dict[str, Any], float]:
    """The delayed message of this id."""

    def found() -> list[tuple[dict[str, Any], float]]:
        read = [(json.loads(text), score) for text, score in stand.delayed(queue)]
        return [(message, score) for message, score in read if message.get("id") == message_id]

    stand.until(lambda: bool(found()), what=f"{message_id} delayed")
    return found()[0]


@pytest.mark.req("S3-03", "S3-22", "S3-26", "S3-32", "S3-33")
def test_while_a_handler_runs_its_message_is_in_one_place_and_locked(stand: QueueStand) -> None:
    gate = stand.gate()
    sent = job(gate=str(gate))
    raw = json.dumps(sent).encode()
    stand.put(raw)
    stand.until(lambda: raw in stand.processing(), what="it in processing")
    lock = f"lock:{QUEUE}:{sent['id']}"
    token, left = stand.redis.get(lock), stand.redis.pttl(lock)
    assert raw not in stand.main()
    assert token
    assert 0 < left <= 30_000
    gate.touch()
    stand.until_logged(sent["id"], "success")
    assert raw not in stand.processing()
    assert stand.redis.get(lock) is None
    assert len(stand.notes("end", sent["id"])) == 1


@pytest.mark.req("S3-08", "S3-10", "S3-26")
def test_a_handler_is_given_what_the_envelope_says(stand: QueueStand) -> None:
    sent = envelope(
        action="something of our own",
        correlation_id="sub-7",
        idempotency_key="evt-7",
        max_attempts=4,
        payload={"a": [1, {"b": None}]},
    )
    stand.put(sent)
    stand.until_logged(sent["id"], "success")
    (note,) = stand.notes("end", sent["id"])
    for name in ("action", "correlation_id", "idempotency_key", "payload", "max_attempts"):
        assert note[name] == sent[name]
    assert note["attempts"] == 0


@pytest.mark.req("S3-11")
def test_a_raw_dict_runs_under_the_hash_of_its_text(stand: QueueStand) -> None:
    gate = stand.gate()
    raw = json.dumps({"transaction_id": str(uuid.uuid4()), "gate": str(gate)}).encode()
    own_id = hashlib.sha256(raw).hexdigest()
    stand.put(raw)
    stand.until(lambda: stand.redis.exists(f"lock:{QUEUE}:{own_id}") == 1, what="its lock")
    gate.touch()
    entry = stand.until_logged(own_id, "success")
    assert entry["action"] == "webhook"
    (note,) = stand.notes("end", own_id)
    assert note["payload"] == json.loads(raw)
    assert note["idempotency_key"] is None


@pytest.mark.req("S3-12", "S3-15", "S3-28")
@pytest.mark.parametrize(
    "sent",
    [
        {"id": "raw-1", "do": "raise", "amount": 1.5},
        {"id": "raw-2", "do": "raise", "attempts": 2},
        envelope(id="env-1", payload={"do": "raise"}, tenant="t-1", trace={"a": [1]}),
    ],
    ids=["raw", "raw with attempts", "envelope"],
)
def test_a_retry_changes_the_attempts_and_nothing_else(stand: QueueStand, sent: dict[str, Any]) -> None:
    before = time.time()
    stand.put(sent, queue=SLOW)
    message, score = score_of(stand, sent["id"])
    failed = sent.get("attempts", 0) + 1
    assert message == {**sent, "attempts": failed}
    wait = 60.0 * 2 ** (failed - 1)
    assert before + wait - 1 <= score <= time.time() + wait + 1
    stand.redis.delete(f"{SLOW}:delayed")


@pytest.mark.req("S3-30", "S3-31", "S3-97", "S3-29")
def test_the_failure_drill(stand: QueueStand) -> None:
    sent = job(do="raise", say="drill")
    stand.put(sent)
    failed = stand.until_logged(sent["id"], "failed")
    runs = [note["attempts"] for note in stand.notes("begin", sent["id"])]
    assert runs == [0, 1, 2]
    kept = [message for message in map(json.loads, stand.failed()) if message["id"] == sent["id"]]
    assert kept == [{**sent, "attempts": 2}]
    entries = stand.logs(sent["id"])
    assert [(entry["status"], entry["attempts"]) for entry in entries] == [
        *(("start", 0), ("retry", 1)),
        *(("start", 1), ("retry", 2)),
        *(("start", 2), ("failed", 3)),
    ]
    assert failed["info"] == {"error": "ValueError: drill"}
    assert entries[1]["info"] == {"error": "ValueError: drill", "delay": 0.05}


@pytest.mark.req("S3-21")
def test_a_message_brings_its_own_budget(stand: QueueStand) -> None:
    sent = envelope(max_attempts=1, payload={"do": "raise"})
    stand.put(sent)
    stand.until_logged(sent["id"], "failed")
    assert len(stand.notes("begin", sent["id"])) == 2


@pytest.mark.req("S3-37")
@pytest.mark.parametrize("queue", [QUEUE, PLAIN])
def test_a_permanent_failure_is_not_tried_again(stand: QueueStand, queue: str) -> None:
    sent = job(do="permanent")
    stand.put(sent, queue=queue)
    entry = stand.until_logged(sent["id"], "failed")
    assert entry["info"] == {"error": "Permanent: never"}
    assert len(stand.notes("begin", sent["id"])) == 1
    assert sent in [json.loads(text) for text in stand.failed(queue)]


@pytest.mark.req("S3-37")
@pytest.mark.parametrize("queue", [QUEUE, PLAIN])
@pytest.mark.parametrize("do", ["raise", "leave"])
def test_whatever_a_handler_raises_is_retried(stand: QueueStand, queue: str, do: str) -> None:
    sent = job(do=do)
    stand.put(sent, queue=queue)
    stand.until_logged(sent["id"], "failed")
    assert len(stand.notes("begin", sent["id"])) == 3


@pytest.mark.req("S3-14")
def test_garbage_ends_among_the_failed(stand: QueueStand) -> None:
    garbage = f"no json {uuid.uuid4()}".encode()
    stand.put(garbage)
    entry = stand.until_logged(hashlib.sha256(garbage).hexdigest(), "failed")
    assert garbage in stand.failed()
    assert entry["info"] == {"error": "invalid_message"}


@pytest.mark.req("S3-05")
def test_other_names_are_left_alone(stand: QueueStand) -> None:
    for name in ("queue:payment_initiation", "q:test:nobody", f"{QUEUE}x"):
        stand.put(job(), queue=name)
    sent = job()
    stand.put(sent)
    stand.until_logged(sent["id"], "success")
    for name in ("queue:payment_initiation", "q:test:nobody", f"{QUEUE}x"):
        assert len(stand.main(name)) == 1


@pytest.mark.req("S3-04", "S3-80", "S3-81", "S3-82")
def test_the_job_log_in_redis(stand: QueueStand) -> None:
    sent = envelope(action="trial", payload={"do": "raise_first", "times": 1})
    stand.put(sent)
    stand.until_logged(sent["id"], "success")
    newest_first = [json.loads(entry) for entry in stand.redis.lrange(LOG, 0, 50)]
    mine = [entry for entry in newest_first if entry["message_id"] == sent["id"]]
    assert [entry["status"] for entry in mine] == ["success", "start", "retry", "start"]
    for entry in mine:
        assert list(entry) == ["timestamp", "queue", "action", "status", "message_id", "attempts", "info"]
        assert (entry["queue"], entry["action"]) == (QUEUE, "trial")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", entry["timestamp"])
    statuses = {entry["status"] for entry in map(json.loads, stand.redis.lrange(LOG, 0, -1))}
    assert statuses <= {"start", "success", "retry", "failed"}


@pytest.mark.req("S3-85", "S3-87", "S3-88")
def test_the_job_log_in_sql_is_one_row(stand: QueueStand) -> None:
    sent = envelope(correlation_id="sub-9", idempotency_key="evt-9", payload={"do": "raise_first", "times": 1})
    stand.put(sent)
    row = stand.until_row(sent["id"], "success")
    assert (row["service"], row["queue"], row["action"]) == ("payment", QUEUE, "renewal")
    assert (row["correlation_id"], row["idempotency_key"]) == ("sub-9", "evt-9")
    assert (row["attempts"], row["last_error"]) == (1, "ValueError: not yet")
    assert row["created_at"] < row["updated_at"]
    assert len([each for each in stand.rows() if each["message_id"] == sent["id"]]) == 1


@pytest.mark.req("S3-89", "S3-88")
def test_the_row_of_a_delayed_message_says_its_score(stand: QueueStand) -> None:
    sent = job(do="raise")
    stand.put(sent, queue=SLOW)
    row = stand.until_row(sent["id"], "retry")
    _, score = score_of(stand, sent["id"])
    assert row["next_retry_at"].timestamp() == pytest.approx(score, abs=0.0005)
    stand.redis.delete(f"{SLOW}:delayed")


@pytest.mark.req("S3-88")
def test_strange_words_do_not_keep_others_from_being_logged(stand: QueueStand) -> None:
    strange = envelope(id=f"\x00{uuid.uuid4()}", correlation_id="c" * 5000, action="a" * 3000, attempts=2**40)
    sent = job()
    stand.put(strange, sent)
    stand.until_row(sent["id"], "success")

    def words() -> list[str]:
        return [row["status"] for row in stand.rows() if row["message_id"].startswith("\ufffd")]

    stand.until(lambda: words() == ["failed"], what="one row of the strange one, failed")


@pytest.mark.req("S3-90")
@pytest.mark.parametrize("queue", [QUEUE, PLAIN])
def test_an_effect_is_had_once_over_all_runs_and_messages(stand: QueueStand, queue: str) -> None:
    key = str(uuid.uuid4())
    sent = [job(once=key, do="raise_first", times=1), job(once=key)]
    for each in sent:
        stand.put(each, queue=queue)
    for each in sent:
        stand.until_logged(each["id"], "success")
    assert len([note for note in stand.notes("effect") if note["payload"]["once"] == key]) == 1
