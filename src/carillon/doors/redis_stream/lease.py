"""The lease of a stream's one active reader; it saves work, and nothing depends on it."""

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
    """Ours by token, and alive by this process's own clock counted from before it was asked for."""

    def __init__(self, redis: Redis, key: str, *, token: str, seconds: float, clock: Clock) -> None:
        self._script = redis.register_script(_SCRIPT)
        self._key = key
        self._token = token
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0

    @property
    def alive(self) -> bool:
        return self._clock.monotonic() < self._until

    async def take(self) -> float | None:
        """Take or renew it; None when it is ours, otherwise the seconds after which asking again makes sense."""
        asked_at = self._clock.monotonic()
        left: int | None = await self._run("take")
        if left is None:
            self._until = asked_at + self._seconds
            return None
        self._until = 0.0
        third = self._seconds / 3
        return third if left < 0 else min(third, max(_SHORTEST_WAIT, left / 1000))

    async def keep(self) -> None:
        """Renew at a third of the lease; returns when it is lost."""
        while self.alive:
            await asyncio.sleep(self._seconds / 3)
            with suppress(*AWAY):
                await self.take()

    async def release(self) -> None:
        """Give it back if it is ours; what cannot be given back ends with its time."""
        self._until = 0.0
        with suppress(*AWAY):
            await self._run("release")

    async def _run(self, verb: str) -> Any:  # noqa: ANN401 - a script's answer
        async with asyncio.timeout(self._seconds / 3):
            return await self._script(keys=[self._key], args=[verb, self._token, round(self._seconds * 1000)])
