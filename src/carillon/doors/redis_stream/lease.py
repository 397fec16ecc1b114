"""The lease of the one active reader of a Redis stream; it saves duplicate work, and no guarantee depends on it."""

import asyncio
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis

from carillon.domain.ports import Clock
from carillon.doors.redis_stream.wire import AWAY

_SCRIPT = (files("carillon.doors.redis_stream") / "lease.lua").read_text()
_SHORTEST_WAIT = 0.01


class ReaderLease:
    """Held by token; its time counts on the local monotonic clock, from just before the request."""

    def __init__(self, redis: Redis, key: str, *, token: str, seconds: float, clock: Clock) -> None:
        self._script = redis.register_script(_SCRIPT)
        self._key = key
        self._token = token
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0

    @property
    def alive(self) -> bool:
        """Whether this process holds the lease; a process that was suspended sees here that it has expired."""
        return self._clock.monotonic() < self._until

    async def take(self) -> float | None:
        """Take or renew the lease; None on success, otherwise the seconds until the next attempt makes sense."""
        asked_at = self._clock.monotonic()
        left: int | None = await self._run("take")
        if left is None:
            self._until = asked_at + self._seconds
            return None
        self._until = 0.0
        third = self._seconds / 3
        return third if left < 0 else min(third, max(_SHORTEST_WAIT, left / 1000))

    async def keep(self) -> None:
        """Renew every third of the lease; return when it is lost."""
        # An absent Redis does not end the lease: its time does.
        while self.alive:
            await asyncio.sleep(self._seconds / 3)
            with suppress(*AWAY):
                await self.take()

    async def release(self) -> None:
        """Release the lease if this process holds it; if Redis is away, the lease expires."""
        self._until = 0.0
        with suppress(*AWAY):
            await self._run("release")

    async def _run(self, verb: str) -> Any:  # noqa: ANN401 - a script's answer
        async with asyncio.timeout(self._seconds / 3):
            return await self._script(keys=[self._key], args=[verb, self._token, round(self._seconds * 1000)])
