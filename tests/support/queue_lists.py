"""List queues without a program around them: the backlog, its upkeep and its operations on a private server."""

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis as Client

from carillon.domain.claims import Claim, Want
from carillon.domain.events import Event
from carillon.domain.queues import Policy
from carillon.ledger.jobs import JobLogs
from carillon.ledger.redis.lists import ListRules, ListSignal, RedisLists
from carillon.ledger.redis.lists_upkeep import ListQueues, ListUpkeep, ListUpkeepRules, Put
from carillon.ledger.redis.scripts import Scripts
from tests.support.clocks import ManualClock
from tests.support.queue_stand import LOG, QUEUE

LANE = 1
POLICY = Policy(max_retries=2, base_delay_seconds=60.0, jitter_seconds=0.0, lock_ttl_seconds=30.0)


class Lists:
    """One process's view of the queues of a server; `clock` is the sweeper's."""

    def __init__(
        self,
        client: Client,
        *,
        policies: Mapping[str, Policy] | None = None,
        lane: int = LANE,
        grace: float = 5.0,
        busy_pause: float = 0.05,
    ) -> None:
        self.redis: Any = client
        self.policies = dict(policies or {QUEUE: POLICY})
        self.events: list[Event] = []
        self.clock = ManualClock()
        self.lane = lane
        actions = dict.fromkeys(self.policies, "default")
        self.scripts = Scripts(client)
        self.logs = JobLogs(service="test", clock=self.clock, observer=self.events.append, sink=self.scripts)
        self.signal = ListSignal(client, self.policies)
        self.backlog = RedisLists(
            scripts=self.scripts,
            signal=self.signal,
            logs=self.logs,
            rules=ListRules(policies=self.policies, actions=actions, lane=lane, busy_pause_seconds=busy_pause),
            owner=uuid.uuid4().hex,
            observer=self.events.append,
        )
        self.upkeep = ListUpkeep(
            scripts=self.scripts,
            logs=self.logs,
            rules=ListUpkeepRules(policies=self.policies, actions=actions, grace_seconds=grace),
            clock=self.clock,
            dice=lambda: 0.0,
            observer=self.events.append,
        )
        self.desk = ListQueues(client, self.scripts)

    async def put(self, *messages: Mapping[str, Any] | bytes, queue: str = QUEUE) -> None:
        raws = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        await self.desk.enqueue([Put(queue, raw) for raw in raws])

    async def claim(self, most: int = 10, queue: str = QUEUE) -> list[Claim]:
        return await self.backlog.claim([Want(self.lane, queue, most)], most, "w")

    async def main(self, queue: str = QUEUE) -> list[bytes]:
        """From the next to the last."""
        return list(reversed(await self.redis.lrange(queue, 0, -1)))

    async def processing(self, queue: str = QUEUE) -> list[bytes]:
        return list(await self.redis.lrange(f"{queue}:processing", 0, -1))

    async def delayed(self, queue: str = QUEUE) -> list[tuple[bytes, float]]:
        return list(await self.redis.zrange(f"{queue}:delayed", 0, -1, withscores=True))

    async def failed(self, queue: str = QUEUE) -> list[bytes]:
        return list(await self.redis.lrange(f"{queue}:failed", 0, -1))

    async def locks(self) -> list[bytes]:
        return sorted(await self.redis.keys("lock:*"))

    async def log_entries(self) -> list[dict[str, Any]]:
        """Oldest first, those included that are still to be written."""
        await self.logs.flush()
        return [json.loads(entry) for entry in reversed(await self.redis.lrange(LOG, 0, -1))]

    async def expire(self) -> None:
        """Every worker died a lock's time ago."""
        for lock in await self.locks():
            await self.redis.delete(lock)

    async def make_due(self, queue: str = QUEUE) -> None:
        """Let every wait be over, the order kept."""
        for at, (text, _) in enumerate(await self.delayed(queue)):
            await self.redis.zadd(f"{queue}:delayed", {text: 1.0 + at})

    async def sweep_all(self) -> int:
        """Two looks with the grace between them."""
        before = await self.upkeep.sweep()
        self.clock.now += 60.0
        return before + await self.upkeep.sweep()

    def told(self, kind: type[msgspec.Struct]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def counted(texts: list[bytes]) -> list[int]:
    """The attempts each message carries."""
    return [int(json.loads(text).get("attempts", 0)) for text in texts]
