"""`carillon push replay-dlq`: it counts first, and removes a message from the failed queue after its confirmation."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from carillon.system import SystemClock
from carillon.upkeep.push_replay import Replay, ReplayStopped
from tests.support.process import run_carillon
from tests.support.push_broker import Broker, reset
from tests.support.push_stand import Push, message, stand_fixture
from tests.support.rabbitmq import RabbitMQ
from tests.support.vendor import Reply

pytestmark = pytest.mark.slow

push: Any = stand_fixture(start=False)
QUEUES = ("push.queue", "failed.queue")


@pytest.fixture
def broker(rabbitmq: RabbitMQ) -> Iterator[Broker]:
    with Broker(rabbitmq.url) as found:
        reset(found)
        for queue in QUEUES:
            found.declare(queue)
        yield found
        reset(found)


def dead(original: Any) -> dict[str, Any]:
    return {"original_message": original, "failure_reason": "FCM rejected: 400", "failed_at": "2026-01-01T00:00:00Z"}


def replay_dlq(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "RABBITMQ_URL": url,
        "REDIS_URL": "redis://127.0.0.1:9/0",
        "DATABASE_URL": "postgresql://127.0.0.1:9/none",
        "TEMPLATE_SERVICE_URL": "http://127.0.0.1:9",
    }
    return run_carillon(["push", "replay-dlq", *options], env=environment, timeout=60)


@pytest.mark.req("S0-58")
def test_a_dead_letter_is_delivered_once_fcm_has_healed(push: Push) -> None:
    push.start()
    push.fcm.answer(Reply(400, body={"error": "InvalidRegistration"}))
    one = message()
    push.publish(one)
    push.until(lambda: push.broker.ready("failed.queue") == 1, what="a dead letter")
    done = replay_dlq(push.broker.url)
    assert (done.returncode, done.stdout.strip()) == (0, "1 dead letter found, 1 put back"), done.stderr
    push.until_mark(one, "sent")
    assert push.pushed(one) == 2
    assert push.broker.ready("failed.queue") == 0


@pytest.mark.req("S0-58")
def test_counts_limits_and_leaves_what_never_was_a_message(broker: Broker) -> None:
    originals = [message(metadata={"n": place, "text": "ä €"}) for place in range(5)]
    broker.publish(dead("not json"), b"nonsense", *map(dead, originals), queue="failed.queue")
    counted = json.loads(replay_dlq(broker.url, "--dry-run", "--json").stdout)
    assert counted == {"found": 7, "replayed": 0, "left": 0, "dryRun": True}
    assert broker.ready() == 0
    some = json.loads(replay_dlq(broker.url, "--limit", "4", "--json").stdout)
    assert some == {"found": 7, "replayed": 2, "left": 2, "dryRun": False}
    every = json.loads(replay_dlq(broker.url, "--json").stdout)
    assert every == {"found": 5, "replayed": 3, "left": 2, "dryRun": False}
    assert broker.ready("failed.queue") == 2
    taken = broker.take("push.queue")
    assert [json.loads(each.body) for each in taken] == originals
    assert {each.delivery_mode for each in taken} == {aio_pika.DeliveryMode.PERSISTENT}


def test_the_message_is_the_same_byte_by_byte(broker: Broker) -> None:
    odd = b'{ "n" : 1.0e2,\n "text":"\\u00e4" , "n2":12345678901234567890123}'
    broker.publish(b'{"original_message":' + odd + b',"failure_reason":"x","failed_at":"y"}', queue="failed.queue")
    assert replay_dlq(broker.url).returncode == 0
    assert [each.body for each in broker.take("push.queue")] == [odd]


def test_at_most_so_many_a_second(broker: Broker) -> None:
    broker.publish(*(dead(message()) for _ in range(6)), queue="failed.queue")
    began = time.monotonic()
    assert json.loads(replay_dlq(broker.url, "--rate", "5/s", "--json").stdout)["replayed"] == 6
    assert time.monotonic() - began >= 1.0
    assert replay_dlq(broker.url, "--rate", "fast").returncode == 1


def test_no_queue_is_no_dead_letter_and_no_broker_is_said(broker: Broker) -> None:
    broker.delete("failed.queue")
    assert replay_dlq(broker.url).stdout.startswith("0 dead letters found")
    done = replay_dlq("amqp://guest:guest@127.0.0.1:9/")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "failed.queue" in done.stderr


class HastyReplay(Replay):
    """The guard switched off: the copy leaves before its message is confirmed."""

    async def _move(self, channel: AbstractChannel, dead: AbstractIncomingMessage) -> bool:
        await dead.ack()
        return await super()._move(channel, dead)


async def into_a_full_queue(broker: Broker, kind: type[Replay]) -> int:
    """How many of five messages are in either queue after the broker refused to confirm more than three."""
    broker.delete("push.queue")
    broker.declare("push.queue", x_max_length=3, x_overflow="reject-publish")
    broker.publish(*(dead(message()) for _ in range(5)), queue="failed.queue")
    replay = kind(broker.url, *QUEUES, SystemClock())
    with pytest.raises(ReplayStopped, match="took no more"):
        await replay.run(await replay.count(), 5, None, lambda _: None)
    await replay.aclose()
    return len(broker.take("push.queue")) + len(broker.take("failed.queue"))


@pytest.mark.req("S0-58")
async def test_what_is_not_confirmed_stays_in_the_failed_queue(broker: Broker) -> None:
    assert await into_a_full_queue(broker, Replay) == 5


async def test_control_a_copy_that_leaves_first_is_lost(broker: Broker) -> None:
    assert await into_a_full_queue(broker, HastyReplay) == 3
