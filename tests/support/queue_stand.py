"""Everything around a program that works on list queues: Redis, a database, and what its handlers did."""

import json
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from tests.support import tables
from tests.support.blueprint_stand import ProgramStand
from tests.support.process import Program
from tests.support.servers import Redis
from tests.support.waiting import wait_until

QUEUE = "q:test:work"
LOG = "q:log:jobs"
QUICK: dict[str, Any] = {"max_retries": 2, "base_delay_seconds": 0.05, "jitter_seconds": 0.0, "lock_ttl_seconds": 30.0}
"""Short waits; locks long enough for a machine that is busy with other things."""
BEAT: dict[str, Any] = {"pump_seconds": 0.05, "sweep_seconds": 0.2, "grace_seconds": 0.3, "busy_pause_seconds": 0.1}


class QueueStand(ProgramStand):
    """A stand; `start()` runs the program of tests/support/queue_program.py with these queues."""

    def __init__(
        self,
        folder: Path,
        *,
        redis_server: Redis,
        url: str = "",
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        beat: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(folder, url)
        self.redis_server = redis_server
        self.diary = folder / f"diary-{uuid.uuid4().hex}.jsonl"
        self.redis: Any = redis.Redis.from_url(redis_server.url())
        self._settings = {
            "diary": str(self.diary),
            "queues": dict(queues or {QUEUE: QUICK}),
            "beat": {**BEAT, **(beat or {})},
            **settings,
        }

    def __enter__(self) -> Self:
        self._stack.callback(self.redis.close)
        self.redis_server.flush()
        return self

    def launch(self, *, mutant: str | None = None, **environment: str) -> Program:
        """A process that may never become ready."""
        module = "tests.support.queue_program" if mutant is None else "tests.support.queue_mutant"
        program = Program(
            *([] if mutant is None else [mutant]),
            command=[sys.executable, "-m", module],
            env={
                "REDIS_URL": self.redis_server.url(),
                "QUEUES": json.dumps(self._settings),
                **({"DATABASE_URL": self.url} if self.url else {}),
                **environment,
            },
        )
        self.programs.append(program)
        return program

    def start(self, **how: Any) -> Program:
        program = self.launch(**how)
        program.wait_ready()
        return program

    def gate(self) -> Path:
        """What a handler waits for whose payload names it as `gate`; `touch()` opens it."""
        return self.folder / f"gate-{uuid.uuid4().hex}"

    def until(self, condition: Callable[[], bool], *, what: str, timeout: float = 40) -> None:
        wait_until(condition, timeout=timeout, what=what)

    def put(self, *messages: Mapping[str, Any] | bytes, queue: str = QUEUE) -> None:
        """As any producer would: LPUSH, one by one."""
        for message in messages:
            self.redis.lpush(queue, message if isinstance(message, bytes) else json.dumps(message))

    def notes(self, what: str | None = None, message_id: str | None = None) -> list[dict[str, Any]]:
        """What handlers did, in order."""
        if not self.diary.exists():
            return []
        # The last line may be half written at the moment.
        lines = self.diary.read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines]
        return [
            note
            for note in found
            if (what is None or note["what"] == what) and (message_id is None or note["id"] == message_id)
        ]

    def ran(self, what: str = "end") -> Counter[str]:
        return Counter(note["id"] for note in self.notes(what))

    def until_ran(self, number: int, what: str = "end", timeout: float = 40) -> None:
        self.until(lambda: len(self.notes(what)) >= number, what=f"{number} times {what}", timeout=timeout)

    def main(self, queue: str = QUEUE) -> list[bytes]:
        """From the next to the last."""
        return list(reversed(self.redis.lrange(queue, 0, -1)))

    def processing(self, queue: str = QUEUE) -> list[bytes]:
        return list(self.redis.lrange(f"{queue}:processing", 0, -1))

    def delayed(self, queue: str = QUEUE) -> list[tuple[bytes, float]]:
        return list(self.redis.zrange(f"{queue}:delayed", 0, -1, withscores=True))

    def failed(self, queue: str = QUEUE) -> list[bytes]:
        return list(self.redis.lrange(f"{queue}:failed", 0, -1))

    def logs(self, message_id: str | None = None) -> list[dict[str, Any]]:
        """Job log entries, oldest first."""
        entries = [json.loads(entry) for entry in self.redis.lrange(LOG, 0, -1)]
        return [entry for entry in reversed(entries) if message_id is None or entry["message_id"] == message_id]

    def until_logged(self, message_id: str, status: str, timeout: float = 40) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [entry for entry in self.logs(message_id) if entry["status"] == status]

        self.until(lambda: bool(found()), what=f"{message_id} logged as {status}", timeout=timeout)
        return found()[-1]

    def locks(self) -> list[bytes]:
        return sorted(self.redis.keys("lock:*"))

    def until_empty(self, queue: str = QUEUE, timeout: float = 40) -> None:
        """Nothing waits, is in hand or delayed."""

        def empty() -> bool:
            return not (self.main(queue) or self.processing(queue) or self.delayed(queue))

        self.until(empty, what=f"{queue} empty", timeout=timeout)

    def rows(self, statement: str = "SELECT * FROM job_logs ORDER BY id") -> list[tables.Row]:
        return super().rows(statement)

    def until_row(self, message_id: str, status: str, timeout: float = 40) -> tables.Row:
        def found() -> list[tables.Row]:
            return [row for row in self.rows() if (row["message_id"], row["status"]) == (message_id, status)]

        self.until(lambda: bool(found()), what=f"a row {status} of {message_id}", timeout=timeout)
        (row,) = found()
        return row


def envelope(**changes: Any) -> dict[str, Any]:
    """The billing blueprint's envelope."""
    return {
        "id": str(uuid.uuid4()),
        "action": "renewal",
        "correlation_id": None,
        "idempotency_key": None,
        "created_at": "2025-01-01T00:00:00+00:00",
        "attempts": 0,
        "max_attempts": None,
        "payload": {},
        **changes,
    }


def job(**payload: Any) -> dict[str, Any]:
    """An envelope whose payload says what its handler is to do."""
    return envelope(payload=payload)


def stand_fixture(*, start: bool = True, sql: bool = False, module: bool = False, **settings: Any) -> Any:
    """Assigned to `stand` in a module: a stand of each test's own, or one for all of them that tell messages apart."""

    def stand(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_server: Redis
    ) -> Iterator[QueueStand]:
        folder = tmp_path_factory.mktemp("queues")
        postgres = request.getfixturevalue("postgres") if sql else None
        url = postgres.database() if postgres else ""
        with QueueStand(folder, redis_server=redis_server, url=url, **settings) as made:
            if start:
                made.start()
            yield made
        if postgres:
            postgres.drop(url)

    return pytest.fixture(scope="module" if module else "function", name="stand")(stand)
