"""`carillon queues`, as an operator uses it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from carillon.cli import main
from carillon.queues import Job, Permanent, Policy, Queues
from tests.support import tables
from tests.support.ports import free_port
from tests.support.process import carillon_command
from tests.support.servers import Redis
from tests.support.waiting import until

REFUND, UPDATE = "q:pay:refund_initiation", "q:pay:subscription_update"
Command = Callable[..., Any]


class Lived:
    """Queues in which something happened, and what it left behind."""

    def __init__(self, url: str, database: str) -> None:
        self.url = url
        self.database = database
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True)
        self.ids: list[str] = []

    async def live(self) -> None:
        """Three refunds fail for good, the oldest first, one update is done, one waits for a worker."""
        policies = {REFUND: Policy(max_retries=0, concurrency=1)}
        stop = asyncio.Event()
        async with Queues(self.url, database_url=self.database, policies=policies, service="payment") as queues:

            @queues.handler(REFUND, action="refund")
            async def refuse(job: Job) -> None:
                raise Permanent(f"the gateway refuses {job.payload['number']}")

            @queues.handler(UPDATE)
            async def done(job: Job) -> None:
                pass

            for number in range(3):
                self.ids.append(
                    await queues.enqueue(REFUND, {"number": number}, action="refund", correlation_id=f"sub-{number}")
                )
            await queues.enqueue(UPDATE, {"event_id": "e"}, action="initial", idempotency_key="evt-1")
            running = asyncio.create_task(queues.run(stop))

            async def settled() -> bool:
                depths = await queues.inspect()
                return depths[REFUND].failed == 3 and not (depths[UPDATE].main or depths[UPDATE].processing)

            await until(settled, what="three failed and one done", timeout=40)
            stop.set()
            await running
            await queues.enqueue(UPDATE, {"event_id": "later"}, action="initial")


@pytest.fixture(scope="module")
def once(redis_server: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lived, dict[str, bytes]]]:
    redis_server.flush()
    lived = Lived(redis_server.url(), f"sqlite:///{tmp_path_factory.mktemp('queues')}/carillon.db")
    asyncio.run(lived.live())
    kept: Any = redis.Redis.from_url(lived.url)
    dumps = {str(key, "ascii"): kept.dump(key) for key in kept.keys("q:*")}
    kept.close()
    yield lived, dumps
    lived.redis.close()


@pytest.fixture
def lived(once: tuple[Lived, dict[str, bytes]]) -> Lived:
    """As it was left, whatever another test did to it."""
    lived, dumps = once
    lived.redis.flushdb()
    for key, dump in dumps.items():
        lived.redis.restore(key, 0, dump)
    return lived


@pytest.fixture
def command(lived: Lived, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; JSON comes back decoded."""
    environment = {"REDIS_URL": lived.url, "DATABASE_URL": lived.database, "WEBHOOK_SIGNING_SECRET": "s" * 32}
    for name, value in {**environment, "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)

    def run(*words: str, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["carillon", "queues", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said
        return json.loads(said.out) if "--json" in words and not code else said.err if code else said.out

    return run


@pytest.mark.req("S3-92", "S3-96")
def test_list_shows_every_queue_of_the_settings(command: Command, lived: Lived) -> None:
    found = {each["queue"]: each for each in command("list", "--json")["queues"]}
    assert len(found) == 6
    assert (found[REFUND]["failed"], found[UPDATE]["main"]) == (3, 1)
    assert found[UPDATE]["oldestSeconds"] >= 0
    shown = command("list", UPDATE)
    assert UPDATE in shown
    assert REFUND not in shown
    # Of a Redis without settings, whatever is there.
    known = [each["queue"] for each in command("list", "--redis", lived.url, "--json")["queues"]]
    assert known == [REFUND, UPDATE]


@pytest.mark.req("S3-16", "S3-93")
def test_show_tells_depth_policy_and_the_newest_failures(command: Command, lived: Lived) -> None:
    found = command("show", REFUND, "--json")
    assert (found["failed"], found["policy"]["maxRetries"], found["policy"]["baseDelaySeconds"]) == (3, 3, 60)
    assert [each["messageId"] for each in found["newestFailed"]] == lived.ids[::-1]
    shown = command("show", REFUND)
    assert "lock_ttl_seconds" in shown
    assert lived.ids[0] in shown


@pytest.mark.req("S3-93")
def test_failed_shows_messages_as_they_were_last_claimed(command: Command, lived: Lived) -> None:
    found = command("failed", REFUND, "--limit", "2", "--json")
    assert (found["total"], [each["payload"] for each in found["messages"]]) == (3, [{"number": 2}, {"number": 1}])
    shown = command("failed", REFUND)
    assert "3 of 3 failed messages" in shown
    assert all(one in shown for one in lived.ids)
    lived.redis.lpush(f"{REFUND}:failed", "no message at all")
    assert "no message at all" in command("failed", REFUND, "--limit", "1")


@pytest.mark.req("S3-93")
def test_requeue_counts_first_and_takes_the_oldest(command: Command, lived: Lived) -> None:
    assert command("requeue", REFUND, "--all", "--dry-run") == "3 failed messages found, 0 requeued (dry run)\n"
    assert lived.redis.llen(f"{REFUND}:failed") == 3
    done = command("requeue", REFUND, lived.ids[1], "unknown", "--json", "--reason", "gateway mended")
    assert done == {"queue": REFUND, "found": 1, "requeued": 1, "dryRun": False}
    assert command("requeue", REFUND, "--limit", "1") == "2 failed messages found, 1 requeued\n"
    waiting = [json.loads(text) for text in reversed(lived.redis.lrange(REFUND, 0, -1))]
    assert [(each["id"], each["attempts"]) for each in waiting] == [(lived.ids[1], 0), (lived.ids[0], 0)]
    assert command("requeue", REFUND, "--all", "--yes") == "1 failed message found, 1 requeued\n"
    actions = asyncio.run(tables.read(lived.database, "SELECT * FROM admin_actions ORDER BY action_id"))
    assert [(row["action"], row["subject"]) for row in actions] == [("requeue", REFUND)] * 3
    assert actions[0]["reason"] == "gateway mended"
    assert actions[0]["actor"].startswith("cli:")


def test_requeue_of_many_goes_on_in_pieces(command: Command, lived: Lived) -> None:
    lived.redis.rpush(f"{REFUND}:failed", *(json.dumps({"id": f"m-{at}"}) for at in range(1200)))
    done = command("requeue", REFUND, "--limit", "1100", "--json", "--redis", lived.url)
    assert (done["found"], done["requeued"]) == (1203, 1100)
    assert (lived.redis.llen(REFUND), lived.redis.llen(f"{REFUND}:failed")) == (1100, 103)
    assert json.loads(lived.redis.lindex(REFUND, -1))["id"] == "m-1199"


@pytest.mark.req("S3-85", "S3-80")
def test_logs_are_rows_in_sql_and_steps_in_redis(command: Command, lived: Lived) -> None:
    rows = command("logs", "--queue", REFUND, "--status", "failed", "--json")["jobLogs"]
    assert {row["messageId"] for row in rows} == set(lived.ids)
    (row,) = command("logs", "--correlation-id", "sub-1", "--json")["jobLogs"]
    assert "the gateway refuses 1" in row["lastError"]
    (row,) = command("logs", "--idempotency-key", "evt-1", "--json")["jobLogs"]
    assert (row["queue"], row["status"]) == (UPDATE, "success")
    assert "the gateway refuses 2" in command("logs", "--limit", "10")
    lived.redis.lpush("q:log:jobs", "not an entry", "[]")
    steps = command("logs", "--entries", "--queue", REFUND, "--json")["jobLogs"]
    assert [step["status"] for step in steps].count("start") == 3
    assert [step["status"] for step in command("logs", "--redis", lived.url, "--status", "failed", "--json")["jobLogs"]]
    assert "start" in command("logs", "--entries")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "q:pay:refunds"), "there is no queue q:pay:refunds; `carillon queues list` shows all"),
        (("failed", f"{REFUND}:failed"), f"name {REFUND}"),
        (("requeue", REFUND), "name ids of messages, --limit, or --all"),
        (("requeue", REFUND, "an-id", "--all"), "name ids of messages"),
        (("logs", "--status", "lost"), "choose among received, processing, success, retry, skipped, failed, dead"),
        (("logs", "--entries", "--correlation-id", "a"), "leave out --entries"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(command: Command, words: tuple[str, ...], said: str) -> None:
    error = command(*words, code=1)
    assert error.startswith("carillon: ")
    assert error.count("\n") == 1
    assert said in error


def test_without_redis_or_ledger_it_says_so(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    assert "Redis" in command("list", "--redis", nowhere, code=1)
    assert "Redis" in command("logs", "--redis", nowhere, code=1)
    assert "Redis" in command("show", REFUND, "--redis", nowhere, code=1)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    assert "--entries" in command("logs", code=1)
    assert command("requeue", REFUND, "--limit", "1", "--json")["requeued"] == 1
    assert not (tmp_path / "none.db").exists()


def test_it_is_a_command_of_the_program(lived: Lived) -> None:
    words = [*carillon_command(), "queues", "list", "--redis", lived.url, "--json"]
    done = subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60, check=True)
    assert [each["failed"] for each in json.loads(done.stdout)["queues"]] == [3, 0]
