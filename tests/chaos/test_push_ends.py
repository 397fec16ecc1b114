"""SIGTERM while something else is silent: a push worker ends all the same, in time, and loses no message."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.properties import ViolationError, ends_in_time, hold
from tests.support.daemon import Daemon
from tests.support.ending import DRAIN, MOST, PATIENCE, Ending
from tests.support.push_faults import whereabouts
from tests.support.push_stand import Push, message
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply

NUMBER, FINISHED = 300, 20
AWAY = Reply(503, body={"error": "Unavailable"})


@pytest.fixture
def push(tmp_path: Path, own_postgres: Postgres, own_redis: Redis, own_rabbit: RabbitMQ) -> Iterator[Push]:
    dsn = own_postgres.database()
    with Push(tmp_path, rabbit=own_rabbit, redis_server=own_redis, url=dsn, **PATIENCE) as stand:
        stand.broker.declare("push.queue")
        yield stand


def end_under_load(push: Push, server: Daemon, mutant: str | None = None) -> tuple[Ending, int]:
    """Some are being sent, some wait to be tried again, some come a second time."""
    sent = [message() for _ in range(NUMBER)]
    unwell = [each["trace_id"] for each in sent[FINISHED::7]]
    answered: Any = push.fcm.default
    push.fcm.default = lambda entry: (
        AWAY if any(trace in entry["body"] for trace in unwell) else Reply(200, body=answered(entry).body, delay=0.1)
    )
    program = push.start(mutant=mutant)
    push.publish(*sent[:FINISHED])
    push.until(lambda: len(program.events("message_finished")) >= FINISHED, what="the first ones finished")
    push.publish(*sent[:FINISHED], *sent[FINISHED:])
    push.until(lambda: bool(push.posts(unwell[0])), what="one that must be tried again")
    server.pause()
    ending = ends_in_time(program, MOST, server)
    found = whereabouts(push, sent)
    pushed = {trace for trace in found.pushed if trace not in unwell}
    lost = {each["trace_id"] for each in sent} - pushed - set(found.failed) - set(found.waiting)
    hold("nothing_lost", not lost, f"{len(lost)} messages are nowhere")
    return ending, len(found.waiting)


@pytest.mark.req("G-06")
@pytest.mark.parametrize("away", ["own_rabbit", "own_redis", "own_postgres"])
def test_a_push_worker_ends_in_time(
    push: Push, request: pytest.FixtureRequest, away: str, figures: Callable[..., None]
) -> None:
    ending, waiting = end_under_load(push, request.getfixturevalue(away))
    figures(away=away, drain=DRAIN, given_back=waiting, **ending.figures())


def test_a_push_worker_that_waits_for_the_silent_is_missed(push: Push, own_postgres: Postgres) -> None:
    with pytest.raises(ViolationError) as caught:
        end_under_load(push, own_postgres, "left_late")
    assert caught.value.promise == "ends_in_time"
