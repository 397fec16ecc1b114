"""Everything around a running push worker: RabbitMQ, Redis, a database, a Template Service, FCM, and the processes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from tests.support import tables
from tests.support.blueprint_stand import BlueprintStand, database
from tests.support.client import Client
from tests.support.fcm_stub import SERVER_KEY, FcmStub
from tests.support.process import Line, Program
from tests.support.push_broker import Broker, reset
from tests.support.push_messages import SEED_MESSAGE, SEED_TEMPLATE, TemplateStub, message
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.vendor import Entry, Reply
from tests.support.waiting import wait_until

__all__ = ["DOWN", "FAST", "SEED_MESSAGE", "SEED_TEMPLATE", "Push", "message", "shared_fixtures", "stand_fixture"]

FAST = 0.05
"""The time scale of most stands: a wait of one second takes a twentieth of one, an open breaker 1.5 s."""
PATIENCE = 40
"""Seconds that anything may take on a machine that is busy with other things."""
DOWN = Reply(500, body={"error": "down"})


class Push(BlueprintStand):
    """A stand; `start()` runs `carillon serve --blueprint push-worker` with the launch contract's environment."""

    def __init__(
        self,
        folder: Path,
        *,
        rabbit: RabbitMQ,
        redis_server: Redis,
        url: str,
        settings: str = "",
        scale: float = FAST,
        **environment: str,
    ) -> None:
        drill = f"[drill]\ntime_scale = {scale}\n"
        super().__init__(folder, url, "push", f'extends = "push-worker"\n{drill}{settings}', environment)
        self.rabbit = rabbit
        self.redis_server = redis_server
        self.fcm = FcmStub(folder / "fcm.jsonl")
        self.template_service = TemplateStub(folder / "templates.jsonl")
        self.broker = Broker(rabbit.url)
        self.redis = redis.Redis.from_url(redis_server.url(), decode_responses=True)

    def __enter__(self) -> Self:
        for each in (self.fcm, self.template_service, self.broker):
            self._stack.enter_context(each)
        self._stack.callback(self.redis.close)
        self.redis_server.flush()
        reset(self.broker)
        return self

    def contract(self) -> dict[str, str]:
        """With FCM's legacy form."""
        return {
            "RABBITMQ_URL": self.rabbit.url,
            "REDIS_URL": self.redis_server.url(),
            "TEMPLATE_SERVICE_URL": self.template_service.url,
            "FCM_API": "legacy",
            "FCM_BASE_URL": self.fcm.url,
            "FCM_SERVER_KEY": SERVER_KEY,
        }

    def start(self, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        """A process that is ready and consumes."""
        program = super().start(*arguments, mutant=mutant, **environment)
        consuming(program)
        return program

    @property
    def client(self) -> Client:
        """The newest process's listener."""
        return Client(str(self.programs[-1].wait_ready()["addresses"][0]))

    def until(self, condition: Callable[[], bool], *, what: str, timeout: float = PATIENCE) -> None:
        wait_until(condition, timeout=timeout, what=what)

    def publish(self, *messages: Any) -> None:
        self.broker.publish(*messages)

    def posts(self, holding: str = "") -> list[Entry]:
        """What FCM was asked to send, in order; `holding` chooses those whose body holds a text."""
        return [entry for entry in self.fcm.sends if holding in entry["body"]]

    def pushed(self, sent: dict[str, Any]) -> int:
        """How often FCM was asked about one message."""
        return len(self.posts(sent["trace_id"]))

    def mark(self, sent: dict[str, Any]) -> str | None:
        value = self.redis.get(f"idempotency:{sent['idempotency_key']}")
        return None if value is None else str(value)

    def until_mark(self, sent: dict[str, Any], value: str, timeout: float = PATIENCE) -> None:
        key = sent["idempotency_key"]
        self.until(lambda: self.mark(sent) == value, what=f"{key} to be {value}", timeout=timeout)

    def rows(self, statement: str = "SELECT * FROM audit_logs ORDER BY audit_id") -> list[tables.Row]:
        return super().rows(statement)

    def audit(self, sent: dict[str, Any]) -> list[tables.Row]:
        """The audit rows of one message."""
        found = [row for row in self.rows() if row["trace_id"] == sent["trace_id"]]
        return [{**row, "metadata": json.loads(row["metadata"])} for row in found]

    def until_audited(self, sent: dict[str, Any], status: str, timeout: float = PATIENCE) -> tables.Row:
        self.until(
            lambda: [row["status"] for row in self.audit(sent)][-1:] == [status],
            what=f"an audit row {status}",
            timeout=timeout,
        )
        return self.audit(sent)[-1]

    def until_empty(self, timeout: float = PATIENCE) -> None:
        """Nothing ready and nothing held: what is held would come back to a queue without consumers."""
        self.until(lambda: self.broker.ready() == 0 and self.unacked() == 0, what="push.queue empty", timeout=timeout)

    def unacked(self, queue: str = "push.queue") -> int:
        """As the broker itself counts."""
        return self.rabbit.unacknowledged(queue)

    def breaker(self, part: str = "state", name: str = "fcm") -> str | None:
        value = self.redis.get(f"circuit:push_worker:{name}:{part}")
        return None if value is None else str(value)

    def set_breaker(self, state: str, name: str = "fcm") -> None:
        """As an operator would, by hand."""
        self.redis.set(f"circuit:push_worker:{name}:state", state)

    def fresh(self) -> None:
        """What an earlier test of the same process told the stubs and did to the breakers is forgotten."""
        self.fcm.forget()
        self.fcm.devices.clear()
        self.template_service.forget()
        self.template_service.templates.clear()
        for key in self.redis.keys("circuit:*"):
            self.redis.delete(key)
        if self.broker.exists("failed.queue"):
            self.broker.take("failed.queue")

    def scripts_run(self) -> int:
        """How many scripts Redis ran: each look at a mark or a breaker is one.

        A script that looks at targets reads their hash once, and is left out.
        """
        stats = self.redis.info("commandstats")

        def calls(*names: str) -> int:
            return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in names)

        return calls("eval", "evalsha") - calls("hget", "hgetall")

    def finished(self, sent: dict[str, Any], timeout: float = PATIENCE) -> Line:
        """The newest process's line about the end of one message."""
        return self.programs[-1].wait_for(
            "message_finished", lambda line: bool(line["trace_id"] == sent["trace_id"]), timeout
        )

    def dead(self, sent: dict[str, Any], timeout: float = PATIENCE) -> Any:
        """The only body in failed.queue, which must be about this message."""
        (body,) = self.failed(1, timeout)
        assert body["original_message"] == sent
        return body

    def failed(self, number: int = 1, timeout: float = PATIENCE) -> list[Any]:
        """That many bodies of failed.queue, taken out."""
        self.until(lambda: self.broker.ready("failed.queue") >= number, what=f"{number} dead letters", timeout=timeout)
        return self.broker.bodies("failed.queue")


def consuming(program: Program) -> None:
    """Its own word: the broker may for a while count a consumer among the living that has died."""
    program.wait_for("part_started", lambda line: bool(line["part"] == "rabbitmq"), PATIENCE)


def stand_fixture(
    settings: str = "",
    *,
    name: str = "push",
    start: bool = True,
    params: tuple[str, ...] = (),
    **given: Any,
) -> Any:
    """Assigned to `push` in a module, it gives every test a stand of its own on PostgreSQL, or on each of `params`."""

    def push(request: pytest.FixtureRequest, tmp_path: Path, rabbitmq: RabbitMQ, redis_server: Redis) -> Iterator[Push]:
        for url in database(request, tmp_path):
            with Push(
                tmp_path, rabbit=rabbitmq, redis_server=redis_server, url=url, settings=settings, **given
            ) as stand:
                if start:
                    stand.start()
                yield stand

    return pytest.fixture(params=params or None, name=name)(push)


def shared_fixtures(settings: str = "", **given: Any) -> tuple[Any, Any]:
    """Assigned to `shared_push, push`, one process serves a module's tests, which tell their messages apart."""

    def shared_push(
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        rabbitmq: RabbitMQ,
        redis_server: Redis,
    ) -> Iterator[Push]:
        folder = tmp_path_factory.mktemp("push")
        for url in database(request, folder):
            with Push(folder, rabbit=rabbitmq, redis_server=redis_server, url=url, settings=settings, **given) as stand:
                stand.start()
                yield stand

    def push(shared_push: Push) -> Push:
        shared_push.fresh()
        return shared_push

    return pytest.fixture(scope="module", name="shared_push")(shared_push), pytest.fixture(name="push")(push)
