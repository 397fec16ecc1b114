"""How a program on queues behaves: order, twins, long and hanging handlers, upkeep, stopping, refusing to start."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.queue_stand import LOG, QUEUE, QUICK, QueueStand, envelope, job, stand_fixture
from tests.support.servers import Redis

PLAIN = "q:test:work_plain"
stand: Any = stand_fixture(start=False)


@pytest.fixture
def make(tmp_path: Path, redis_server: Redis) -> Iterator[Any]:
    made: list[QueueStand] = []

    def make(**settings: Any) -> QueueStand:
        made.append(QueueStand(tmp_path, redis_server=redis_server, **settings).__enter__())
        return made[-1]

    yield make
    for each in made:
        each.__exit__(None, None, None)


@pytest.mark.req("S3-06")
def test_one_worker_keeps_to_the_order(make: Any) -> None:
    stand = make(queues={QUEUE: {**QUICK, "concurrency": 1}})
    sent = [job(n=n) for n in range(100)]
    stand.put(*sent)
    stand.start()
    stand.until_ran(100)
    assert [note["id"] for note in stand.notes("begin")] == [each["id"] for each in sent]


@pytest.mark.req("S3-25")
def test_a_preset_lock_keeps_a_message_waiting_at_no_cost(stand: QueueStand) -> None:
    sent = job()
    lock = f"lock:{QUEUE}:{sent['id']}"
    stand.redis.set(lock, "an operator")
    stand.put(sent)
    stand.start()

    def busy() -> list[dict[str, Any]]:
        return [entry for entry in stand.logs(sent["id"]) if entry["info"] == {"reason": "lock_unavailable"}]

    stand.until(lambda: len(busy()) >= 2, what="two looks at it")
    assert stand.main() == [json.dumps(sent).encode()]
    assert {(entry["status"], entry["attempts"]) for entry in busy()} == {("retry", 0)}
    # A pause of 0.1 s stands between two looks.
    first, last = (entry["timestamp"] for entry in (busy()[0], busy()[-1]))
    assert first < last
    assert stand.notes() == []
    assert stand.redis.get(lock) == b"an operator"
    stand.redis.delete(lock)
    stand.until_logged(sent["id"], "success")


@pytest.mark.req("S3-33")
def test_equal_messages_run_one_after_the_other(stand: QueueStand) -> None:
    raw = json.dumps({"transaction_id": "t-1", "sleep": 0.3}).encode()
    stand.put(raw, raw)
    stand.start()
    stand.until_ran(2)
    assert [note["what"] for note in stand.notes()] == ["begin", "end"] * 2
    stand.until_empty()


@pytest.mark.req("S3-34", "S3-46", "S3-44")
def test_a_lock_is_renewed_for_as_long_as_its_handler_runs(make: Any) -> None:
    """Under a sweeper that looks all the time; a raw dict in the loop, an envelope in a thread."""
    # A process that was not let run for seconds on end still comes in time to renew.
    policy = {**QUICK, "lock_ttl_seconds": 10.0}
    stand = make(queues={QUEUE: policy, PLAIN: policy}, beat={"sweep_seconds": 0.05, "grace_seconds": 0.1})
    stand.start()
    stand.put({"sleep": 14.0})
    stand.put(job(sleep=14.0), queue=PLAIN)
    stand.until_ran(2, timeout=90)
    stand.until_empty()
    stand.until_empty(PLAIN)
    assert [note["what"] for note in stand.notes()] == ["begin", "begin", "end", "end"]
    assert not stand.programs[0].events("message_swept")


@pytest.mark.parametrize("queue", [QUEUE, PLAIN])
def test_a_handler_that_hangs_has_failed_at_its_deadline(make: Any, queue: str) -> None:
    stand = make(queues={queue: {**QUICK, "max_retries": 1, "timeout_seconds": 0.5}})
    sent, other = job(sleep=600), envelope(max_attempts=10)
    stand.start()
    stand.put(sent, queue=queue)
    entry = stand.until_logged(sent["id"], "failed")
    assert "deadline" in entry["info"]["error"]
    assert len(stand.notes("begin", sent["id"])) == 2
    stand.put(other, queue=queue)
    stand.until_logged(other["id"], "success")
    # Threads that hang keep nobody from leaving.
    stand.programs[0].terminate()
    assert stand.programs[0].wait(60) == 0


@pytest.mark.req("S3-43")
def test_a_message_put_into_processing_by_hand_is_swept(stand: QueueStand) -> None:
    sent = job()
    stand.start()
    stand.redis.lpush(f"{QUEUE}:processing", json.dumps(sent))
    stand.until_logged(sent["id"], "success")
    (note,) = stand.notes("end")
    assert note["attempts"] == 1
    stand.programs[0].wait_for("message_swept")
    assert [line["verdict"] for line in stand.programs[0].events("message_swept")] == ["retry"]


@pytest.mark.req("S3-45")
def test_what_is_locked_for_too_long_is_reported(make: Any) -> None:
    stand = make(queues={QUEUE: {**QUICK, "visibility_timeout_seconds": 0.3, "timeout_seconds": 60.0}})
    stand.start()
    sent = job()
    stand.redis.set(f"lock:{QUEUE}:{sent['id']}", "somebody")
    stand.redis.lpush(f"{QUEUE}:processing", json.dumps(sent))
    line = stand.programs[0].wait_for("message_overdue", timeout=40)
    assert (line["queue"], line["message_id"]) == (QUEUE, sent["id"])
    assert len(stand.processing()) == 1


@pytest.mark.req("S3-49", "S3-48")
def test_depth_and_failures_are_looked_after(make: Any) -> None:
    stand = make(beat={"depth_seconds": 0.1, "cleanup_seconds": 0.1})
    stand.redis.set(f"lock:{QUEUE}:m", "nobody works here")
    stand.put(*[envelope(id="m") for _ in range(1001)])
    stand.redis.lpush(f"{QUEUE}:failed", *[json.dumps(envelope(id=f"f{n}")) for n in range(1500)])
    stand.start()
    line = stand.programs[0].wait_for("queue_deep", timeout=40)
    assert (line["queue"], line["limit"]) == (QUEUE, 1000)
    assert line["depth"] > 1000
    looked = stand.programs[0].wait_for("queue_looked", timeout=40)
    assert looked["oldest_seconds"] > 0
    stand.until(lambda: len(stand.failed()) == 100, what="a hundred failures left")
    assert [json.loads(text)["id"] for text in stand.failed()] == [f"f{n}" for n in range(1499, 1399, -1)]


@pytest.mark.req("S3-41", "S3-42", "S3-47")
@pytest.mark.parametrize(
    ("service", "pump"), [("payment", "pump_delayed_queues"), ("subscription", "process_delayed_queues")]
)
def test_the_schedule_has_the_documents_names(make: Any, service: str, pump: str) -> None:
    stand = make(service=service, beat={})
    stand.start()
    started = {pump, "sweep_processing_queues", "cleanup_failed_queues", "monitor_queue_depths", "waiting"}
    for part in started:
        stand.programs[0].wait_for("part_started", lambda line, part=part: line["part"] == part, timeout=40)
    assert {line["part"] for line in stand.programs[0].events("part_started")} == started


@pytest.mark.req("S3-83")
def test_a_job_log_of_another_kind_affects_no_message(stand: QueueStand) -> None:
    stand.redis.set(LOG, "no list")
    stand.start()
    stand.put(job(), job(do="raise"), job(do="permanent"))
    stand.until_ran(1)
    stand.until(lambda: len(stand.failed()) == 2, what="two failures")
    stand.until_empty()


@pytest.mark.req("G-06")
def test_on_sigterm_runs_finish_and_nothing_stays_in_hand(stand: QueueStand) -> None:
    stand.start()
    stand.put(*[job(sleep=0.5, n=n) for n in range(30)])
    stand.until_ran(5, "begin")
    stand.programs[0].terminate()
    assert stand.programs[0].wait(60) == 0
    assert (stand.processing(), stand.locks()) == ([], [])
    begun = set(stand.ran("begin"))
    assert set(stand.ran("end")) == begun
    assert len(begun) + len(stand.main()) == 30


@pytest.mark.req("G-03")
def test_a_redis_that_forgets_on_purpose_is_refused(tmp_path: Path) -> None:
    with Redis(settings={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        with QueueStand(tmp_path, redis_server=server, allow_unsafe=False) as stand:
            program = stand.launch()
            assert program.wait(60) != 0
        assert "maxmemory-policy allkeys-lru" in "\n".join(program.noise)


def test_an_idle_program_hears_of_a_message_without_polling_for_it(make: Any) -> None:
    stand = make(options={"poll_seconds": 600.0})
    stand.start()
    for _ in range(3):
        sent = job()
        stand.put(sent)
        stand.until_logged(sent["id"], "success")


@pytest.mark.req("S3-38", "S3-39")
def test_five_workers_run_a_thousand_messages_once_each(make: Any) -> None:
    stand = make(options={"concurrency": 20})
    for _ in range(5):
        stand.launch()
    sent = [job(n=n) for n in range(1000)]
    stand.put(*sent)
    for program in stand.programs:
        program.wait_ready(90)
    stand.until_ran(1000, timeout=90)
    stand.until_empty()
    assert set(stand.ran("begin").values()) == {1}
    assert stand.ran("end") == stand.ran("begin")
    assert {each["id"] for each in sent} == set(stand.ran())
