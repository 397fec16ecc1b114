"""List queues: the clients that producers and workers share, the workers, and the upkeep loops."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeAlias

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose.redis_resets import outliving_resets
from carillon.compose.redis_topology import refuse_cluster
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.errors import ConfigurationError, LedgerUnavailable, ServerUnavailable
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.jobs import Effects, JobLedger
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.ports import Clock, Dice, Ids, Observer, Provider
from carillon.domain.queue_events import QueueDeep, QueueLooked
from carillon.domain.queues import Policy, QueueUpkeep
from carillon.ending import ended
from carillon.ledger.jobs import JobLogs
from carillon.ledger.redis.lists import BLOCK_SECONDS, ListRules, ListSignal, RedisLists
from carillon.ledger.redis.lists_upkeep import ListQueues, ListUpkeep, ListUpkeepRules
from carillon.ledger.redis.scripts import RedisEffects, Scripts
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import NoBreakers
from carillon.outbound.breakers.redis import RedisTargets
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.shutdown import CANCEL_SECONDS, STEP_SECONDS
from carillon.outbound.targets import Targets
from carillon.outbound.worker import Worker, WorkerRules
from carillon.providers.handlers import Handler, Handlers, Threads

CONNECTIONS = 16
PATIENCE_SECONDS = 5.0
FIRST_SECONDS, LONGEST_WAIT = 1.0, 5.0
PRUNE_BATCH = 500
MOST_PRUNES = 1000
Step: TypeAlias = Callable[[], Awaitable[object]]
Loop: TypeAlias = Callable[[], Awaitable[None]]
AGAIN_SECONDS = 1.0
CLAIM_DOUBLING_SECONDS = 0.5
"""Short, because handlers may take minutes: the claim limit of a new process grows without waiting for them."""
PAUSES = "queues"
"""The name under which Redis keeps the pauses of its queues."""
LANE = Lane(rank=1, queue_name="jobs")
LANES = Lanes({"jobs": LANE})


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a process with list queues."""

    redis_url: str
    service: str = "carillon"
    beat: QueueUpkeep = QueueUpkeep()
    concurrency: int = 200
    """Messages that the process works on at once."""
    batch: int = 100
    threads: int = 16
    """Simultaneous runs of each handler that is a plain function."""
    poll_seconds: float = 1.0
    drain_seconds: float = 20.0
    first_claims: int = 1
    """The claim limit of a new process: a message that kills it also kills every claim beside it."""
    allow_unsafe: bool = False
    """True accepts a Redis that may drop messages when its memory is full."""
    allow_migration: int = 0
    """The newest unknown migration of the database that is accepted, as `ledger.allow_migration` of the settings."""


class QueueTools(msgspec.Struct, frozen=True, kw_only=True):
    """The clock, the dice, the ids and the observer of one process."""

    clock: Clock
    dice: Dice
    new_id: Ids
    observe: Observer


class QueueParts:
    """The clients, scripts and job logs that producers and workers of one process share."""

    def __init__(self, settings: QueueSettings, tools: QueueTools, ledger: JobLedger | None) -> None:
        self.settings = settings
        self.tools = tools
        self.redis = client(settings.redis_url, CONNECTIONS, PATIENCE_SECONDS)
        self.scripts = Scripts(self.redis, log_keeps=settings.beat.job_log_keeps)
        self.desk = ListQueues(self.redis, self.scripts)
        self.ledger = ledger
        self.effects: Effects = ledger or RedisEffects(self.redis)
        self.logs = JobLogs(
            service=settings.service,
            clock=tools.clock,
            observer=tools.observe,
            sink=self.scripts,
            ledger=ledger,
        )
        self.targets = Targets(
            RedisTargets(self.redis),
            {"*": BreakerPolicy()},
            service=PAUSES,
            clock=tools.clock,
            observer=tools.observe,
        )
        """What operators keep back: queues belong to a Redis, so every program on it reads the same pauses."""
        self._telling: asyncio.Task[None] | None = None
        self._end_at: float | None = None

    async def check(self) -> None:
        """Refuse a Redis that may evict messages; raises ServerUnavailable while Redis cannot be reached."""
        try:
            found = await self.redis.info("memory")
            await refuse_cluster(self.redis, "queues")
        except (RedisError, OSError) as error:
            raise ServerUnavailable(f"redis.url: Redis, which holds the queues, cannot be reached: {error}") from None
        policy = str(found.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction" and not self.settings.allow_unsafe:
            raise ConfigurationError(
                f"Redis runs with maxmemory-policy {policy} and may drop messages; set noeviction, or allow it"
            )

    def start(self) -> None:
        """Begin to write job logs, for producers and workers."""
        self._telling = asyncio.create_task(self.logs.run())

    def begin_end(self) -> None:
        """Start the drain time, including the time to cancel calls."""
        self._end_at = self.tools.clock.monotonic() + self.settings.drain_seconds + CANCEL_SECONDS

    async def tell_last(self) -> None:
        """Write the last job logs within the time that is left, even if a server does not answer."""
        left = self.settings.drain_seconds
        if self._end_at is not None:
            left = self._end_at - self.tools.clock.monotonic()
        await self.logs.leave(max(STEP_SECONDS, left))

    async def aclose(self) -> None:
        # Wait for job logs under way; do not cancel them.
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
        # The client must not repeat a step that Redis may have carried out.
        retry=Retry(NoBackoff(), 0),
    )
    return outliving_resets(Redis.from_pool(pool))


def loops(parts: QueueParts, upkeep: ListUpkeep, queues: Sequence[str]) -> list[tuple[str, Loop]]:
    """The loops by name; the pump of the subscription service has a name of its own."""
    times = parts.settings.beat
    pump = "process_delayed_queues" if parts.settings.service == "subscription" else "pump_delayed_queues"
    steps: list[tuple[str, float, Step]] = [
        (pump, times.pump_seconds, upkeep.pump),
        ("sweep_processing_queues", times.sweep_seconds, upkeep.sweep),
        ("cleanup_failed_queues", times.cleanup_seconds, partial(_cleanup, parts, upkeep)),
        # The blueprint's cleanup looks at depths too, so a short cleanup interval shortens this one.
        ("monitor_queue_depths", min(times.depth_seconds, times.cleanup_seconds), partial(_look, parts, queues)),
    ]
    clock, observe = parts.tools.clock, parts.tools.observe
    return [(name, partial(_again, name, seconds, step, clock, observe)) for name, seconds, step in steps]


async def _again(name: str, every_seconds: float, step: Step, clock: Clock, observe: Observer) -> None:
    """Repeat a step; report an error and try again soon."""
    observe(PartStarted(part=name, detail=f"every {every_seconds:g} s"))
    # The first run comes soon after the start: an operator who restarts a worker to clear a queue waits for it.
    wait = min(every_seconds, FIRST_SECONDS)
    while True:
        await clock.sleep(wait)
        try:
            await step()
            wait = every_seconds
        except LedgerUnavailable as error:
            wait = min(max(every_seconds, wait * 2), max(every_seconds, LONGEST_WAIT))
            observe(Trouble(where=name, error=str(error), retry_in_seconds=wait))
        except Exception as error:  # noqa: BLE001 - one strange message must not end the upkeep of all others
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}", retry_in_seconds=wait))


async def _cleanup(parts: QueueParts, upkeep: ListUpkeep) -> None:
    await upkeep.cleanup()
    if parts.ledger is None:
        return
    for _ in range(MOST_PRUNES):
        if await parts.ledger.prune_jobs(parts.settings.beat.job_log_seconds, PRUNE_BATCH) < PRUNE_BATCH:
            return


async def _look(parts: QueueParts, queues: Sequence[str]) -> None:
    limit, observe = parts.settings.beat.depth_limit, parts.tools.observe
    for queue, depth in (await parts.desk.depths(queues)).items():
        observe(
            QueueLooked(
                queue=queue,
                main=depth.main,
                processing=depth.processing,
                delayed=depth.delayed,
                failed=depth.failed,
                oldest_seconds=depth.oldest_seconds,
            )
        )
        if depth.main > limit:
            observe(QueueDeep(queue=queue, depth=depth.main, limit=limit))


class QueueRuntime:
    """Runs the handlers of all queues, and the upkeep of these queues."""

    def __init__(self, parts: QueueParts, policies: Mapping[str, Policy], handlers: Mapping[str, Handler]) -> None:
        """`policies` has a policy for every queue with a handler."""
        self._parts = parts
        self._policies = {queue: policies[queue].checked(queue) for queue in handlers}
        self._handlers = handlers
        self._actions = {queue: handler.action for queue, handler in handlers.items()}

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Work until told to stop, drain, and write the last job logs."""
        await self._parts.check()
        async with AsyncExitStack() as stack:
            blocking = client(self._parts.settings.redis_url, len(self._handlers) + 1, BLOCK_SECONDS + PATIENCE_SECONDS)
            stack.push_async_callback(blocking.aclose)
            idle = self._parts.logs.idle if self._parts.settings.beat.log_no_message else _quiet
            signal = ListSignal(blocking, self._handlers, idle)
            stack.push_async_callback(signal.aclose)
            backlog = self._backlog(signal)
            worker = self._worker(backlog)
            # After the worker's end: the last settlements write job logs too.
            stack.push_async_callback(self._parts.tell_last)
            for name, loop in loops(self._parts, self._upkeep(), list(self._handlers)):
                _keep(stack, name, loop(), self._parts.tools.observe)
            self._announce()
            working = asyncio.create_task(self._work(worker))
            ready()
            await stop.wait()
            self._parts.begin_end()
            worker.stop()
            backlog.hurry(self._parts.settings.drain_seconds)
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
        # Unique to this process, so that it recognises its own locks.
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

    def _upkeep(self) -> ListUpkeep:
        parts, beat = self._parts, self._parts.settings.beat
        rules = ListUpkeepRules(
            policies=self._policies,
            actions=self._actions,
            grace_seconds=beat.grace_seconds,
            failed_over=beat.failed_over,
            failed_keep=beat.failed_keep,
        )
        return ListUpkeep(
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
            targets=self._parts.targets,
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
            targets=self._parts.targets,
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


def _quiet(queue: str) -> None:
    """A tick without a message is no news."""


def _keep(stack: AsyncExitStack, name: str, work: Awaitable[None], observe: Observer) -> None:
    """Run a loop until the stack closes; report a loop that fails."""

    async def supervised() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - told, because nobody waits for it
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}"))

    task = asyncio.create_task(supervised())

    stack.push_async_callback(ended, task)
