"""Every backlog behind one face: how work gets in, what became of it, and how a claim is lost."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from redis.asyncio import Redis as Client

from carillon.blueprints.push_worker import wire
from carillon.domain.claims import Claim, Want
from carillon.domain.ports import Backlog
from carillon.ledger.rabbitmq.backlog import QueueRules, RabbitBacklog
from carillon.ledger.rabbitmq.connection import BrokerRules
from carillon.ledger.rabbitmq.deliveries import ClaimRules
from carillon.ledger.rabbitmq.marks import MarkRules, Marks
from carillon.system import SystemClock, system_dice
from tests.support.ledger_builders import LANE, PROVIDER, enrolment, route
from tests.support.ledger_engines import Engine
from tests.support.push_broker import Broker
from tests.support.push_messages import message
from tests.support.queue_lists import Lists
from tests.support.queue_stand import QUEUE, envelope
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.waiting import until

TAKEOVER_SECONDS = 0.5


class Kept:
    """One backlog under test, with what it can and cannot do declared instead of skipped."""

    counts_crashes: bool
    """A worker that died holding a claim has spent an attempt."""
    tells_abandoned: bool = True
    """A claim says that the one before it ran out unsettled."""
    fails_over: bool = True
    """Work may go to another provider."""
    adopts_from_heirs: bool = True
    """A lost claim's success closes what another has begun; else only what nobody has."""
    provider: str

    async def put(self, number: int) -> None:
        """So much new work."""
        raise NotImplementedError

    async def claimer(self) -> Backlog:
        """One more process's view of the same work."""
        raise NotImplementedError

    async def lose(self, backlog: Backlog) -> None:
        """Let everything this claimer holds become another's."""
        raise NotImplementedError

    async def ended(self) -> tuple[int, int]:
        """The number of finished and of dead-lettered messages."""
        raise NotImplementedError

    async def upkeep(self) -> None:
        """One step of the upkeep, for a backlog that does not run it by itself."""

    async def claim(self, backlog: Backlog, number: int = 1) -> list[Claim]:
        """That much work, as soon as it can be had."""
        found: list[Claim] = []

        async def enough() -> bool:
            await self.upkeep()
            left = number - len(found)
            found.extend(await backlog.claim([Want(LANE, self.provider, left)], left, "worker"))
            return len(found) >= number

        await until(enough, timeout=40, what=f"{number} claims")
        return found

    async def nothing_comes(self, backlog: Backlog, looks: int = 12) -> None:
        """So many looks in a row find nothing to claim."""
        for _ in range(looks):
            await self.upkeep()
            assert await backlog.claim([Want(LANE, self.provider, 10)], 10, "other") == []
            await asyncio.sleep(0.05)


class SqlKept(Kept):
    counts_crashes = True
    provider = PROVIDER

    def __init__(self, engine: Engine, stack: AsyncExitStack) -> None:
        self._engine = engine
        self._stack = stack

    async def put(self, number: int) -> None:
        ledger = await self._stack.enter_async_context(self._engine.ledger())
        await ledger.enrol([enrolment(route(f"r{n}"), trace_id="trace") for n in range(number)])

    async def claimer(self) -> Backlog:
        return await self._stack.enter_async_context(self._engine.ledger())

    async def lose(self, backlog: Backlog) -> None:  # noqa: ARG002 - every claimer loses
        await self._engine.expire_leases()

    async def ended(self) -> tuple[int, int]:
        states = [row["status"] for row in await self._engine.rows("routes")]
        return states.count("published"), states.count("dead_letter")


class RabbitKept(Kept):
    counts_crashes = False
    tells_abandoned = False
    provider = "fcm"

    def __init__(self, engine: Engine, rabbit: RabbitMQ, redis: Redis, broker: Broker, stack: AsyncExitStack) -> None:
        self._engine = engine
        self._rabbit = rabbit
        self._redis = redis
        self._broker = broker
        self._stack = stack

    async def put(self, number: int) -> None:
        await asyncio.to_thread(self._broker.publish, *[message() for _ in range(number)])

    async def claimer(self) -> Backlog:
        audit = await self._stack.enter_async_context(self._engine.ledger())
        redis = Client.from_url(self._redis.url())
        self._stack.push_async_callback(redis.aclose)
        backlog = RabbitBacklog(
            rules=QueueRules(
                broker=BrokerRules(url=self._rabbit.url, prefetch=400),
                claims=ClaimRules(channel="push", provider="fcm", policy="fcm", lane=LANE, max_attempts=3),
                pause_seconds=0.1,
            ),
            decode=wire.decode,
            reason=wire.reason,
            marks=Marks(redis, uuid.uuid4().hex, MarkRules(takeover_after_seconds=TAKEOVER_SECONDS)),
            audit=audit,
            clock=SystemClock(),
            observer=lambda _: None,
            dice=system_dice,
        )
        holding = asyncio.create_task(backlog.connection.run())
        self._stack.push_async_callback(_ended, holding)
        self._stack.push_async_callback(backlog.aclose)
        return backlog

    async def lose(self, backlog: Backlog) -> None:
        assert isinstance(backlog, RabbitBacklog)
        await backlog.stop()
        await backlog.connection.aclose()

    async def ended(self) -> tuple[int, int]:
        rows = await self._engine.execute("SELECT status FROM audit_logs")
        parked = await asyncio.to_thread(self._broker.ready, "failed.queue")
        states = [row["status"] for row in rows]
        assert states.count("failed") >= parked
        return states.count("sent"), parked


class ListsKept(Kept):
    counts_crashes = True
    # The document's bytes have no room for it.
    tells_abandoned = False
    # The heir's bytes are others, and its lock is another's: a script that touched them would double or lose messages.
    adopts_from_heirs = False
    # A queue has one handler.
    fails_over = False
    provider = QUEUE

    def __init__(self, redis: Redis, stack: AsyncExitStack) -> None:
        self._redis = redis
        self._stack = stack
        self._lists: list[Lists] = []

    async def put(self, number: int) -> None:
        lists = await self._view()
        await lists.put(*[envelope(payload={"n": n}) for n in range(number)])

    async def claimer(self) -> Backlog:
        return (await self._view()).backlog

    async def upkeep(self) -> None:
        await self._lists[0].upkeep.pump()

    async def lose(self, backlog: Backlog) -> None:  # noqa: ARG002 - every claimer loses
        lists = await self._view()
        await lists.expire()
        await lists.sweep_all()
        await lists.make_due()

    async def ended(self) -> tuple[int, int]:
        for lists in self._lists:
            await lists.logs.flush()
        entries = await self._lists[0].log_entries()
        failed = await self._lists[0].failed()
        return sum(entry["status"] == "success" for entry in entries), len(failed)

    async def _view(self) -> Lists:
        client = Client.from_url(self._redis.url())
        self._stack.push_async_callback(client.aclose)
        self._lists.append(Lists(client, lane=LANE))
        return self._lists[-1]


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def in_words(claim: Claim) -> dict[str, Any]:
    """What a worker reads of a claim."""
    return {"payload": json.loads(claim.payload_json), "metadata": claim.metadata(), "address": claim.address}


async def opened(
    kind: str, engine: Engine, rabbit: RabbitMQ | None, redis: Redis | None, broker: Broker | None
) -> AsyncIterator[Kept]:
    async with AsyncExitStack() as stack:
        if kind in {"postgres", "sqlite"}:
            yield SqlKept(engine, stack)
            return
        if kind in {"redis", "valkey"}:
            assert redis is not None
            yield ListsKept(redis, stack)
            return
        assert rabbit is not None
        assert redis is not None
        assert broker is not None
        yield RabbitKept(engine, rabbit, redis, broker, stack)
