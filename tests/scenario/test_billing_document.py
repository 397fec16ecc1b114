"""What the document of the billing blueprint says of queues and schedules, seen in each service's own process."""

import json
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.queues import QueueUpkeep
from tests.support.billing_stand import QUEUES, Billing, event, stand_fixture
from tests.support.process import Program
from tests.support.queue_stand import QUICK, QueueStand, job
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

billing: Any = stand_fixture()

INITIATION, TRIAL, UPDATE = QUEUES[0], QUEUES[1], QUEUES[4]
REFUND = "q:pay:refund_initiation"
OF_PAYMENT = {queue for queue in QUEUES if queue.startswith("q:pay:")}
OF_SUBSCRIPTION = set(QUEUES) - OF_PAYMENT
DOWN = Reply(500)
PARTS = ("", ":delayed", ":processing")


def order(queue: str) -> dict[str, Any]:
    """A message that its queue's handler understands, and cannot carry out."""
    payload = {"subscription_id": f"sub-{queue}", "amount": 1, "transaction_id": f"t-{queue}", "event_id": "e"}
    return {"id": f"of {queue}", "action": "renewal", "payload": payload}


@pytest.mark.req("S3-20")
@pytest.mark.parametrize(
    ("service", "quick", "patient"),
    [
        ("subscription", INITIATION, TRIAL),
        ("subscription", TRIAL, INITIATION),
        ("payment", UPDATE, REFUND),
        ("payment", REFUND, UPDATE),
    ],
)
def test_a_variable_shortens_the_drill_of_one_queue_alone(
    billing: Billing, service: str, quick: str, patient: str
) -> None:
    """The settings' file allows a thousand retries of every queue: the variable stands over it."""
    billing.payment_stub.default = billing.subscription_stub.default = DOWN
    name = f"CARILLON_QUEUE__{quick.upper().replace(':', '_')}"
    start = billing.start_payment if service == "payment" else billing.start_subscription
    start(
        **{
            f"{name}__MAX_RETRIES": "1",
            f"{name}__BASE_DELAY_SECONDS": "0.05",
            "CARILLON_GATEWAY__REFUNDS": "unavailable",
        }
    )
    for queue in (quick, patient):
        billing.push(queue, order(queue))
    billing.until(lambda: billing.redis.llen(f"{quick}:failed") == 1, what="the end of the drill")
    told = [(entry["status"], entry["attempts"]) for entry in reversed(billing.told(f"of {quick}", 4))]
    assert [status for status, _ in told] == ["start", "retry", "start", "failed"]
    assert [attempts for _, attempts in told] == sorted(attempts for _, attempts in told)
    # The other has failed more often by then, and has lost nothing.
    billing.told(f"of {patient}", 8)
    assert billing.redis.llen(f"{patient}:failed") == 0
    assert [each["id"] for each in billing.waiting(patient)] == [f"of {patient}"]


@pytest.mark.req("S3-35", "S3-36")
def test_a_service_waits_as_its_policy_says(billing: Billing) -> None:
    """With the numbers of the document for one queue: what is logged, and what is in the score."""
    billing.subscription_stub.default = DOWN
    numbers = {"BASE_DELAY_SECONDS": "60", "MAX_DELAY_SECONDS": "3600", "JITTER_SECONDS": "10"}
    billing.start_payment(
        **{f"CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__{name}": text for name, text in numbers.items()}
    )
    wanted = {f"failed {times}": min(60 * 2**times, 3600) for times in range(8)}
    for times, message_id in enumerate(wanted):
        billing.push(UPDATE, {**order(UPDATE), "id": message_id, "attempts": times})
    billing.until(lambda: billing.redis.zcard(f"{UPDATE}:delayed") == len(wanted), what="every message delayed")
    delayed: Any = billing.redis.zrange(f"{UPDATE}:delayed", 0, -1, withscores=True)
    scores = {json.loads(text)["id"]: score for text, score in delayed}
    extra = []
    for message_id, seconds in wanted.items():
        entry = billing.told(message_id, 2)[0]
        delay = entry["info"]["delay"]
        assert entry["status"] == "retry"
        assert seconds <= delay <= seconds + 10
        failed_at = datetime.fromisoformat(entry["timestamp"]).timestamp()
        assert scores[message_id] - failed_at == pytest.approx(delay, abs=1)
        extra.append(round(delay - seconds, 3))
    assert len(set(extra)) > 4, "each draws its own"


@pytest.mark.req("S3-42")
def test_a_service_hears_of_messages_and_looks_for_due_ones_often(billing: Billing) -> None:
    """The origin polls every 10 to 15 s and pumps every 5 s. The payment service pumps here as the origin does."""
    billing.payment_stub.default = billing.subscription_stub.default = DOWN
    billing.start_subscription(CARILLON_BEAT__PUMP_SECONDS=str(QueueUpkeep().pump_seconds))
    billing.start_payment(CARILLON_BEAT__PUMP_SECONDS="5", CARILLON_GATEWAY__REFUNDS="unavailable")
    for queue in (INITIATION, REFUND):
        sent = time.time()
        billing.push(queue, {**order(queue), "id": f"now {queue}"})
        assert began(billing, f"now {queue}") - sent < 5, "nobody polls"
    first = time.time()
    for queue in (INITIATION, REFUND):
        due = {json.dumps({**order(queue), "id": f"{n} of {queue}"}): first + n / 2 for n in range(20)}
        billing.redis.zadd(f"{queue}:delayed", due)
    late = {
        queue: sorted(began(billing, f"{n} of {queue}") - first - n / 2 for n in range(20))
        for queue in (INITIATION, REFUND)
    }
    # Half of those that wait for the next beat wait for at least half of it; a busy machine delays both alike.
    ours, origin = (late[queue][10] for queue in (INITIATION, REFUND))
    assert min(late[INITIATION]) >= 0
    assert ours < origin - 1, late


def began(billing: Billing, message_id: str) -> float:
    """When a handler had the message for the first time."""
    return datetime.fromisoformat(billing.told(message_id, 1)[-1]["timestamp"]).timestamp()


BOTH = {"sweep_processing_queues", "cleanup_failed_queues", "monitor_queue_depths"}
BEATS = {
    "payment": BOTH | {"pump_delayed_queues", "process_webhook_processing", "process_refund_initiation"},
    "subscription": BOTH
    | {"process_delayed_queues", "process_payment_initiation", "process_trial_payment", "process_plan_change"}
    | {"process_usage_sync", "renew_subscriptions", "end_subscription_periods"},
}
"""By the document's names; the last two are the subscription's own life."""


def few_failed(billing: Billing, queue: str) -> bool:
    return int(billing.redis.llen(f"{queue}:failed")) < 200


def looked_at(program: Program, queue: str) -> bool:
    return any(line["queue"] == queue for line in program.events("queue_looked"))


@pytest.mark.req("S3-47", "S3-41", "S3-05")
@pytest.mark.parametrize(
    ("service", "own"), [("payment", OF_PAYMENT), ("subscription", OF_SUBSCRIPTION)], ids=["payment", "subscription"]
)
def test_each_service_keeps_its_own_schedule(billing: Billing, service: str, own: set[str]) -> None:
    """Everything that waits for a beat waits before the start, in the queues of both services."""
    billing.payment_stub.default = billing.subscription_stub.default = DOWN
    for queue in QUEUES:
        billing.redis.zadd(f"{queue}:delayed", {json.dumps({**order(queue), "id": f"due {queue}"}): time.time() - 1})
        billing.redis.lpush(f"{queue}:processing", json.dumps({**order(queue), "id": f"orphan {queue}"}))
        billing.redis.lpush(f"{queue}:failed", *(json.dumps({**order(queue), "n": n}) for n in range(1200)))
    legacy = [name.replace("q:sub:", "queue:").replace("q:pay:", "queue:") for name in QUEUES]
    for name in legacy:
        billing.redis.lpush(name, json.dumps(order(name)))
        billing.redis.zadd(f"{name}:delayed", {json.dumps(order(name)): time.time() - 1})
        billing.redis.lpush(f"{name}:processing", json.dumps(order(name)))
    settings = {
        "CARILLON_BEAT__CLEANUP_SECONDS": "0.2",
        "CARILLON_BEAT__DEPTH_SECONDS": "0.2",
        "CARILLON_LOG__LEVEL": "debug",
        "CARILLON_GATEWAY__REFUNDS": "unavailable",
    }
    start = billing.start_payment if service == "payment" else billing.start_subscription
    program = start(**settings)
    for queue in own:
        # Pollers, the pump and the sweeper: each message was run.
        assert billing.told(f"due {queue}", 2)[-1]["status"] == "start"
        assert billing.told(f"orphan {queue}", 2)[-1]["status"] in {"start", "retry"}
        # The cleanup and the watch over depths.
        billing.until(partial(few_failed, billing, queue), what=f"{queue}:failed trimmed")
        billing.until(partial(looked_at, program, queue), what=f"a look at {queue}")
    assert {line["part"] for line in program.events("part_started")} == BEATS[service]
    for queue in set(QUEUES) - own:
        assert billing.redis.zcard(f"{queue}:delayed") == 1
        assert billing.redis.llen(f"{queue}:processing") == 1
        assert billing.redis.llen(f"{queue}:failed") == 1200
    assert {line["queue"] for line in program.events("queue_looked")} == own
    # Nor is anything of the old names touched, and none is made beside them.
    assert set(billing.redis.keys("queue:*")) == {f"{name}{part}" for name in legacy for part in PARTS}
    assert [billing.redis.llen(name) + billing.redis.llen(f"{name}:processing") for name in legacy] == [2] * 6
    assert [billing.redis.zcard(f"{name}:delayed") for name in legacy] == [1] * 6


@pytest.mark.req("S3-65")
def test_the_runtime_carries_out_whatever_is_registered_for_a_queue(tmp_path: Path, redis_server: Redis) -> None:
    """Another program's functions on a queue of the document: the runtime knows no handler of its own."""
    other = "q:pay:another"
    with QueueStand(tmp_path, redis_server=redis_server, queues={REFUND: QUICK, other: QUICK}) as stand:
        # Two processes of the same program share the work.
        for _ in range(2):
            stand.start()
        sent = {queue: [job(n=n) for n in range(20)] for queue in (REFUND, other)}
        failing = job(do="raise")
        for queue, messages in sent.items():
            stand.put(*messages, queue=queue)
        stand.put(failing, queue=other)
        stand.put(job(), queue=UPDATE)
        stand.until_ran(40)
        stand.until_logged(failing["id"], "failed")
        ran = {(note["queue"], note["id"]) for note in stand.notes("end")}
        assert ran == {(queue, each["id"]) for queue, messages in sent.items() for each in messages}
        assert set(stand.ran("end").values()) == {1}
        # Nobody registered anything for this queue, and the failure of one handler is its own queue's.
        assert (len(stand.main(UPDATE)), len(stand.failed(other)), len(stand.failed(REFUND))) == (1, 1, 0)


@pytest.mark.req("S3-74")
def test_a_webhook_has_its_effect_at_the_answer_while_no_queue_can_be_reached(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.database()
    with Redis() as redis_server, Billing(tmp_path, redis_server=redis_server, url=url) as billing:
        billing.start_subscription()
        replica = billing.start_subscription()
        ids = [billing.create() for _ in range(4)]
        redis_server.stop()
        for number, subscription_id in enumerate(ids):
            program = billing.programs[number % 2]
            told = event(f"payment_{number}_1767225600", subscription_id, "success")
            reply = billing.deliver(told, program=program)
            # Read past the program, in the moment after the answer.
            (row,) = billing.found("subscriptions", subscription_id=subscription_id)
            assert (reply.status, reply.body["status"], row["status"]) == (200, "processed", "active")
            assert billing.subscription(subscription_id, replica)["status"] == "active"
            # The other process knows of it too.
            again = billing.deliver(told, program=billing.programs[(number + 1) % 2])
            assert (again.status, again.body["status"]) == (200, "duplicate")
        redis_server.start()
    postgres.drop(url)
