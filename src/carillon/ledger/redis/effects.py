"""Which effects were had, in Redis, for those who have no database: as durable as that Redis is."""

from importlib.resources import files
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.job_rows import Effect
from carillon.ledger.redis.lists_scripts import unavailable

KEPT_SECONDS = 30 * 86_400.0
_SCRIPT = (files("carillon.ledger.redis") / "effects.lua").read_text()


class RedisEffects:
    """Satisfies Effects."""

    def __init__(self, redis: Redis, prefix: str = "once:") -> None:
        self._script = redis.register_script(_SCRIPT)
        self._prefix = prefix

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        return cast("Effect", await self._run(key, "begin", holder, seconds))

    async def finish_effect(self, key: str, holder: str) -> None:
        await self._run(key, "finish", holder, KEPT_SECONDS)

    async def abandon_effect(self, key: str, holder: str) -> None:
        await self._run(key, "abandon", holder, 0.0)

    async def _run(self, key: str, verb: str, holder: str, seconds: float) -> str:
        try:
            answer = await self._script(keys=[self._prefix + key], args=[verb, holder, max(1, round(seconds * 1000))])
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error
        return answer.decode() if isinstance(answer, bytes) else str(answer)
