"""Workers and upkeep of list queues, built from plain values: the same for a blueprint and for any program."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose.deadline import STEP_SECONDS
from carillon.compose.queue_beat import loops
from carillon.domain.errors import ConfigurationError, Unavailable
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.job_rows import Effects, JobLedger
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.ports import Clock, Dice, Ids, Observer, Provider
from carillon.domain.queue_policy import Beat, Policy
from carillon.ending import ended
from carillon.ledger.job_logs import JobLogs
from carillon.ledger.redis.effects import RedisEffects
from carillon.ledger.redis.lists import ListRules, RedisLists
from carillon.ledger.redis.lists_admin import Desk
from carillon.ledger.redis.lists_beat import BeatRules, ListBeat
from carillon.ledger.redis.lists_scripts import Scripts
from carillon.ledger.redis.lists_signal import BLOCK_SECONDS, ListSignal
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers.memory import NoBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.shutdown import CANCEL_SECONDS
from carillon.outbound.worker import Worker, WorkerRules
from carillon.providers.handlers import Handler, Handlers
from carillon.providers.threads import Threads

CONNECTIONS = 16
PATIENCE_SECONDS = 5.0
AGAIN_SECONDS = 1.0
CLAIM_DOUBLING_SECONDS = 0.5
"""Handlers may take long: one that takes minutes must not keep a young process from everything else."""
LANE = Lane(rank=1, queue_name="jobs")
LANES = Lanes({"jobs": LANE})


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process with list queues is told."""

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


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Time, dice, names and ears of one process."""

    clock: Clock
    dice: Dice
    new_id: Ids
    observe: Observer


class QueueParts:
    """What producers and workers of one process share: clients, scripts, job logs."""

    def __init__(self, settings: QueueSettings, tools: Tools, ledger: JobLedger | None) -> None:
        self.settings = settings
        self.tools = tools
        self.redis = _client(settings.redis_url, CONNECTIONS, PATIENCE_SECONDS)
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
        """Write down what is left to be told; whoever is silent when the time to drain is over gets no more of it."""
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


class QueueRuntime:
    """Works off every queue that has a handler, and keeps them in order."""

    def __init__(self, parts: QueueParts, policies: Mapping[str, Policy], handlers: Mapping[str, Handler]) -> None:
        """`policies` has one for every queue with a handler."""
        self._parts = parts
        self._policies = {queue: policies[queue].checked(queue) for queue in handlers}
        self._handlers = handlers
        self._actions = {queue: handler.action for queue, handler in handlers.items()}

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Work until told to stop, drain, write down what is left to be told."""
        await self._parts.check()
        async with AsyncExitStack() as stack:
            blocking = _client(
                self._parts.settings.redis_url, len(self._handlers) + 1, BLOCK_SECONDS + PATIENCE_SECONDS
            )
            stack.push_async_callback(blocking.aclose)
            signal = ListSignal(blocking, self._handlers)
            stack.push_async_callback(signal.aclose)
            backlog = self._backlog(signal)
            worker = self._worker(backlog)
            # Behind the worker's end: what its last settlements say is still to be written.
            stack.push_async_callback(self._parts.tell_last)
            for name, loop in loops(self._parts, self._beat(), list(self._handlers)):
                _keep(stack, name, loop(), self._parts.tools.observe)
            self._announce()
            working = asyncio.create_task(self._work(worker))
            ready()
            await stop.wait()
            self._parts.begin_end()
            worker.stop()
            await working

    async def _work(self, worker: Worker) -> None:
        while True:
            try:
                await worker.run()
            except Exception as error:  # noqa: BLE001 - a bug in the loop must not end the process
                said = f"{type(error).__name__}: {error}"
                self._parts.tools.observe(Trouble(where="worker", error=said, retry_in_seconds=AGAIN_SECONDS))
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _announce(self) -> None:
        for queue, handler in self._handlers.items():
            self._parts.tools.observe(PartStarted(part=handler.name, detail=queue))

    def _backlog(self, signal: ListSignal) -> RedisLists:
        parts = self._parts
        # Its alone: a lock with this name can only have been set by this very process.
        owner = f"{socket.gethostname()}/{os.getpid()}/{parts.tools.new_id()}"
        rules = ListRules(
            policies=self._policies,
            actions=self._actions,
            lane=LANE.rank,
            service=parts.settings.service,
            busy_pause_seconds=parts.settings.beat.busy_pause_seconds,
        )
        return RedisLists(
            scripts=parts.scripts,
            signal=signal,
            logs=parts.logs,
            rules=rules,
            owner=owner,
            observer=parts.tools.observe,
        )

    def _beat(self) -> ListBeat:
        parts, beat = self._parts, self._parts.settings.beat
        rules = BeatRules(
            policies=self._policies,
            actions=self._actions,
            grace_seconds=beat.grace_seconds,
            failed_over=beat.failed_over,
            failed_keep=beat.failed_keep,
        )
        return ListBeat(
            scripts=parts.scripts,
            logs=parts.logs,
            rules=rules,
            clock=parts.tools.clock,
            dice=parts.tools.dice,
            observer=parts.tools.observe,
        )

    def _worker(self, backlog: RedisLists) -> Worker:
        settings, tools = self._parts.settings, self._parts.tools
        shortest = min(policy.lock_ttl_seconds for policy in self._policies.values())
        leases = Leases(backlog, tools.clock, tools.observe, shortest)
        plain = sum(not handler.waits for handler in self._handlers.values())
        handlers = Handlers(self._handlers, self._parts.effects, Threads(max(1, plain * settings.threads)))
        backlog.lost = handlers.lose
        providers: dict[str, Provider] = dict.fromkeys(self._handlers, handlers)
        chains = {queue: (queue,) for queue in self._handlers}
        retries: dict[str, RetryPolicy] = {queue: policy.retry() for queue, policy in self._policies.items()}
        attempts = Attempts(
            providers=providers,
            breakers=NoBreakers(),
            leases=leases,
            rules=AttemptRules(chains, PolicyTable({**retries, "*/*": Policy().retry()}), LANES, outlive_leases=True),
            clock=tools.clock,
            dice=tools.dice,
        )
        return Worker(
            backlog=backlog,
            signal=backlog.signal,
            attempts=attempts,
            settler=Settler(backlog, tools.observe, settings.batch),
            leases=leases,
            breakers=NoBreakers(),
            rules=self._rules(chains),
            clock=tools.clock,
            observer=tools.observe,
            owner=settings.service,
        )

    def _rules(self, chains: Mapping[str, tuple[str, ...]]) -> WorkerRules:
        settings = self._parts.settings
        most: dict[str, int] = {}
        for queue, handler in self._handlers.items():
            bounds = [self._policies[queue].concurrency, None if handler.waits else settings.threads]
            given = [bound for bound in bounds if bound is not None]
            most |= {queue: min(given)} if given else {}
        return WorkerRules(
            lanes=LANES,
            chains=chains,
            concurrency=settings.concurrency,
            first_claims=settings.first_claims,
            claim_doubling_seconds=CLAIM_DOUBLING_SECONDS,
            batch=settings.batch,
            max_in_flight=most,
            poll_seconds=settings.poll_seconds,
            drain_seconds=settings.drain_seconds,
        )


def _client(url: str, connections: int, patience_seconds: float) -> Redis:
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


def _keep(stack: AsyncExitStack, name: str, work: Awaitable[None], observe: Observer) -> None:
    """Let a loop live until the stack ends; one that dies says so."""

    async def supervised() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - told, because nobody waits for it
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}"))

    task = asyncio.create_task(supervised())

    stack.push_async_callback(ended, task)
