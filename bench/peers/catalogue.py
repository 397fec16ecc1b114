"""Which peers there are, and the settings each is measured at."""

from dataclasses import dataclass, field
from typing import Any, Literal

from bench.peers.peer import Kind


@dataclass(frozen=True)
class Entry:
    """A peer as it is before anything is installed; jobs are sized for a drain of three to eight seconds."""

    name: str
    kind: Kind
    runtime: Literal["python", "node"]
    package: str
    needs: tuple[str, ...]
    runner: str
    jobs: int
    settings: dict[str, Any] = field(default_factory=dict)
    posts: bool = False
    parts: tuple[str, ...] = ("drain",)
    venv: str = "venv"

    @property
    def packages(self) -> tuple[str, ...]:
        return (self.package, *self.needs)


# graphile-worker's performance page: concurrency 24, a local queue and batched completion. It shows a queue of 500;
# a longer one drains faster.
_GRAPHILE = {
    "concurrentJobs": 24,
    "maxPoolSize": 26,
    "localQueue": {"size": 1_500, "refetchDelay": {"durationMs": 10}},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}
# Where each job waits for an answer, more of them at once pay, and a longer local queue no longer does.
_GRAPHILE_HTTP = {
    **_GRAPHILE,
    "concurrentJobs": 100,
    "localQueue": {"size": 500, "refetchDelay": {"durationMs": 10}},
}

CATALOGUE = (
    Entry(
        name="graphile-worker",
        kind="postgres",
        runtime="node",
        package="graphile-worker",
        needs=("pg",),
        runner="graphile_run.mjs",
        jobs=150_000,
        settings={"worker": _GRAPHILE},
    ),
    Entry(
        name="graphile-worker http",
        kind="postgres",
        runtime="node",
        package="graphile-worker",
        needs=("pg", "undici"),
        runner="graphile_http_run.mjs",
        jobs=25_000,
        settings={"worker": _GRAPHILE_HTTP, "http": {"client": "undici", "connections": 100, "pipelining": 1}},
        posts=True,
    ),
    Entry(
        name="pg-boss",
        kind="postgres",
        runtime="node",
        package="pg-boss",
        needs=("pg",),
        runner="pgboss_run.mjs",
        jobs=120_000,
        settings={
            "boss": {"max": 10},
            "work": {
                "batchSize": 500,
                "burstWhenBatchFull": True,
                "localConcurrency": 2,
                "pollingIntervalSeconds": 0.5,
                "priority": False,
            },
        },
    ),
    Entry(
        name="pgqueuer",
        kind="postgres",
        runtime="python",
        package="pgqueuer",
        needs=("asyncpg", "pydantic", "uvloop"),
        runner="pgqueuer_run",
        jobs=50_000,
        settings={"managers": 3, "batch_size": 200, "dequeue_timeout": 1.0, "loop": "uvloop", "driver": "asyncpg"},
    ),
    Entry(
        name="procrastinate",
        kind="postgres",
        runtime="python",
        package="procrastinate",
        needs=("asyncpg", "psycopg", "uvloop"),
        runner="procrastinate_run",
        jobs=3_000,
        settings={
            "pool_size": 10,
            "worker": {"concurrency": 50, "delete_jobs": "always", "listen_notify": False},
            "loop": "uvloop",
        },
    ),
    Entry(
        name="celery",
        kind="redis",
        runtime="python",
        package="celery",
        needs=("hiredis", "kombu", "redis"),
        runner="celery_run",
        jobs=5_000,
        parts=("drain", "queues"),
        settings={
            "conf": {
                "task_ignore_result": True,
                "task_acks_late": False,
                "worker_prefetch_multiplier": 128,
                "worker_disable_rate_limits": True,
                "worker_send_task_events": False,
            },
            "worker": ["--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        },
    ),
    Entry(
        name="dramatiq",
        kind="redis",
        runtime="python",
        package="dramatiq",
        needs=("hiredis", "redis"),
        runner="dramatiq_run",
        jobs=20_000,
        settings={"worker_threads": 8, "middleware": "none", "environment": {"dramatiq_queue_prefetch": "1000"}},
    ),
    # arq polls: its own default waits half a second between two looks at the queue.
    Entry(
        name="arq",
        kind="redis",
        runtime="python",
        package="arq",
        needs=("hiredis", "redis", "uvloop"),
        runner="arq_run",
        jobs=3_000,
        settings={
            "worker": {"max_jobs": 500, "poll_delay": 0.01, "keep_result": 0},
            "loop": "uvloop",
        },
        parts=("queues",),
        venv="venv-lists",
    ),
    Entry(
        name="saq",
        kind="redis",
        runtime="python",
        package="saq",
        needs=("hiredis", "redis", "typing_extensions", "uvloop"),
        runner="saq_run",
        jobs=3_000,
        settings={"queue": {"max_concurrent_ops": 100}, "worker": {"concurrency": 30}, "ttl": -1, "loop": "uvloop"},
        parts=("queues",),
        venv="venv-lists",
    ),
    Entry(
        name="bullmq",
        kind="redis",
        runtime="node",
        package="bullmq",
        needs=("ioredis",),
        runner="bullmq_run.mjs",
        jobs=5_000,
        settings={"worker": {"concurrency": 100}, "job": {"removeOnComplete": True, "removeOnFail": True}},
        parts=("queues",),
    ),
)
