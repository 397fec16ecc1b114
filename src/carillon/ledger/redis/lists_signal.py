"""Waiting for the next message of many queues without taking it: each queue's tail is moved onto itself."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.ending import ended

BLOCK_SECONDS = 1.0
AGAIN_SECONDS = 0.5


class ListSignal:
    """Satisfies Signal; `redis` must bear a connection that blocks for each queue."""

    def __init__(self, redis: Redis, queues: Iterable[str]) -> None:
        self._redis = redis
        self._queues = tuple(queues)
        self._rung = asyncio.Event()
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._paused: dict[str, float] = {}

    def ring(self) -> None:
        self._rung.set()

    def pause(self, queue: str, seconds: float) -> None:
        """What is in that queue cannot be claimed for a while: its presence is no news."""
        self._paused[queue] = asyncio.get_running_loop().time() + seconds

    def paused(self, queue: str) -> bool:
        """Whether that while is not over yet."""
        until = self._paused.get(queue)
        if until is not None and until <= asyncio.get_running_loop().time():
            del self._paused[queue]
            until = None
        return until is not None

    async def wait(self, timeout_seconds: float) -> None:
        for queue in self._queues:
            if queue not in self._looking and not self.paused(queue):
                self._looking[queue] = asyncio.create_task(self._look(queue))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._rung.wait()
        self._rung.clear()

    async def aclose(self) -> None:
        """Leave the connections that block."""
        await ended(*self._looking.values())

    async def _look(self, queue: str) -> None:
        """One look, which ends with the first message or its time; the message stays where it is."""
        try:
            if await self._redis.blmove(queue, queue, BLOCK_SECONDS, "RIGHT", "RIGHT") is not None:  # type: ignore[arg-type]
                self._rung.set()
        except (RedisError, OSError, TimeoutError):
            # The claim that follows will say what is wrong; here only the hurry must be taken out of it.
            await asyncio.sleep(AGAIN_SECONDS)
        finally:
            del self._looking[queue]
