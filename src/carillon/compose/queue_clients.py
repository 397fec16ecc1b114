"""What producers and workers of list queues share: settings, Redis clients, scripts and job logs."""

import asyncio

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose.deadline import STEP_SECONDS
from carillon.domain.errors import ConfigurationError, Unavailable
from carillon.domain.job_rows import Effects, JobLedger
from carillon.domain.ports import Clock, Dice, Ids, Observer
from carillon.domain.queue_policy import Beat
from carillon.ending import ended
from carillon.ledger.job_logs import JobLogs
from carillon.ledger.redis.effects import RedisEffects
from carillon.ledger.redis.lists_admin import Desk
from carillon.ledger.redis.lists_scripts import Scripts
from carillon.outbound.shutdown import CANCEL_SECONDS

CONNECTIONS = 16
PATIENCE_SECONDS = 5.0


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a process with list queues."""

    redis_url: str
    service: str = "carillon"
    beat: Beat = Beat()
    concurrency: int = 200
    """Messages in hand at once."""
    batch: int = 100
    threads: int = 16
    """Runs at once of each handler that is a plain function."""
    poll_seconds: float = 1.0
    drain_seconds: float = 20.0
    first_claims: int = 1
    """The claim limit of a new process: a message that kills it also kills every claim beside it."""
    allow_unsafe: bool = False
    """True accepts a Redis that may throw messages away when its memory is full."""


class QueueTools(msgspec.Struct, frozen=True, kw_only=True):
    """The clock, the dice, the ids and the observer of one process."""

    clock: Clock
    dice: Dice
    new_id: Ids
    observe: Observer


class QueueParts:
    """What producers and workers of one process share: clients, scripts, job logs."""

    def __init__(self, settings: QueueSettings, tools: QueueTools, ledger: JobLedger | None) -> None:
        self.settings = settings
        self.tools = tools
        self.redis = client(settings.redis_url, CONNECTIONS, PATIENCE_SECONDS)
        self.scripts = Scripts(self.redis, log_keeps=settings.beat.job_log_keeps)
        self.desk = Desk(self.redis, self.scripts)
        self.ledger = ledger
        self.effects: Effects = ledger or RedisEffects(self.redis)
        self.logs = JobLogs(
            service=settings.service,
            clock=tools.clock,
            observer=tools.observe,
            sink=self.scripts,
            ledger=ledger,
        )
        self._telling: asyncio.Task[None] | None = None
        self._end_at: float | None = None

    async def check(self) -> None:
        """Refuse a Redis that forgets on purpose; Unavailable while it cannot be reached."""
        try:
            found = await self.redis.info("memory")
        except (RedisError, OSError) as error:
            raise Unavailable(f"redis.url: {error}; the queues are there") from None
        policy = str(found.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction" and not self.settings.allow_unsafe:
            raise ConfigurationError(
                f"Redis runs with maxmemory-policy {policy} and may throw messages away; set noeviction, or allow it"
            )

    def start(self) -> None:
        """Begin to write job logs; producers tell of messages as well as workers."""
        self._telling = asyncio.create_task(self.logs.run())

    def begin_end(self) -> None:
        """From now on the time to drain counts, the cut included."""
        self._end_at = self.tools.clock.monotonic() + self.settings.drain_seconds + CANCEL_SECONDS

    async def tell_last(self) -> None:
        """Write the last job logs; a silent server gets no more than the time that is left."""
        left = self.settings.drain_seconds
        if self._end_at is not None:
            left = self._end_at - self.tools.clock.monotonic()
        await self.logs.leave(max(STEP_SECONDS, left))

    async def aclose(self) -> None:
        # What is on its way is waited for, not cut off.
        await self.tell_last()
        if self._telling is not None:
            await ended(self._telling)
        await self.redis.aclose()


def client(url: str, connections: int, patience_seconds: float) -> Redis:
    """A client that waits for a free connection and repeats no call."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=patience_seconds,
        socket_timeout=patience_seconds,
        socket_connect_timeout=PATIENCE_SECONDS,
        # A step that may have been carried out is never repeated behind our back.
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)
