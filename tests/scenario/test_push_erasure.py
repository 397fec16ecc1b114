"""What a push worker keeps about a person outside its database: gone after an erasure, or named with its end."""

import json
from typing import Any

import pytest

from tests.support.process import run_carillon
from tests.support.push_stand import DOWN, Push, message, stand_fixture

push: Any = stand_fixture(params=("sqlite", "postgres"))
PERSON, TOKEN = "canary-person", "canary-device-token"


def kept(push: Push) -> list[dict[str, Any]]:
    """The messages in the failed queue, in their order; they stay there."""
    found = push.broker.bodies("failed.queue")
    push.broker.publish(*found, queue="failed.queue")
    return found


def until_dead(push: Push, number: int) -> None:
    push.until(lambda: push.broker.ready("failed.queue") >= number, what=f"{number} dead letters")


def erase(push: Push, *, code: int = 0, **environment: str) -> dict[str, Any]:
    command = ["people", "erase", PERSON, "--yes", "--json", "--config", str(push.folder / "push.toml")]
    done = run_carillon(command, env={**push.environment(), **environment}, cwd=push.folder)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.req("P-534", "P-222")
def test_the_failed_queue_forgets_a_person_and_keeps_the_others_in_order(push: Push) -> None:
    push.fcm.answer(*[DOWN] * 40)
    mine = [message(user_id=PERSON, recipient=TOKEN, variables={"name": "Ada", "link": "x"}) for _ in range(2)]
    others = [message(user_id=f"other-{number}") for number in range(3)]
    for number, sent in enumerate((others[0], mine[0], others[1], mine[1], others[2]), 1):
        push.publish(sent)
        until_dead(push, number)
    assert PERSON in json.dumps(kept(push))
    away = erase(push, code=1, RABBITMQ_URL="amqp://127.0.0.1:1/")
    assert (away["finished"], away["unfinished"]) == (False, ["failed.queue"])
    done = erase(push)
    assert (done["finished"], done["unfinished"]) == (True, [])
    push.until(lambda: push.broker.ready("failed.queue") == len(others), what="the others are back")
    left = kept(push)
    assert [each["original_message"]["user_id"] for each in left] == [each["user_id"] for each in others]
    assert "canary" not in json.dumps(left)
    assert "canary" not in json.dumps(push.rows(), default=str)
    # What Redis keeps is named by the producer's key alone, and ends by itself.
    for key in map(str, push.redis.keys("*")):
        assert "canary" not in key
        if key.startswith(("idempotency:", "push_worker:")):
            assert 0 < push.redis.ttl(key) <= 86_400
            assert "canary" not in str(push.redis.get(key))
