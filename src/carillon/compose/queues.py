"""Workers and upkeep of list queues, built from plain values: the same for a blueprint and for any program."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from carillon.compose.queue_beat import loops
from carillon.compose.queue_clients import PATIENCE_SECONDS, QueueParts, client
from carillon.domain.events import PartStarted, Trouble
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.ports import Observer, Provider
from carillon.domain.queue_policy import Policy
from carillon.ending import ended
from carillon.ledger.redis.lists import ListRules, RedisLists
from carillon.ledger.redis.lists_beat import BeatRules, ListBeat
from carillon.ledger.redis.lists_signal import BLOCK_SECONDS, ListSignal
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers.memory import NoBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.worker import Worker, WorkerRules
from carillon.providers.handlers import Handler, Handlers
from carillon.providers.threads import Threads

AGAIN_SECONDS = 1.0
CLAIM_DOUBLING_SECONDS = 0.5
"""Handlers may take long: one that takes minutes must not keep a young process from everything else."""
LANE = Lane(rank=1, queue_name="jobs")
LANES = Lanes({"jobs": LANE})


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
            blocking = client(self._parts.settings.redis_url, len(self._handlers) + 1, BLOCK_SECONDS + PATIENCE_SECONDS)
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


def _keep(stack: AsyncExitStack, name: str, work: Awaitable[None], observe: Observer) -> None:
    """Let a loop live until the stack ends; one that dies says so."""

    async def supervised() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - told, because nobody waits for it
            observe(Trouble(where=name, error=f"{type(error).__name__}: {error}"))

    task = asyncio.create_task(supervised())

    stack.push_async_callback(ended, task)
