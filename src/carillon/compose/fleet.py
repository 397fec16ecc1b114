"""What a fleet shares through Redis; imported only where Redis is configured, because its client is slow to load."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from carillon.compose import parts
from carillon.config.settings import Settings
from carillon.domain.ports import Clock, Observer
from carillon.outbound.breakers.probe import RecoverableBreakers
from carillon.outbound.breakers.redis import RedisBreakers

PATIENCE_SECONDS = 2.0
CONNECTIONS = 20
REFRESH_SECONDS = 0.25


class Fleet:
    """One Redis client and what is built on it."""

    def __init__(self, url: str) -> None:
        # A pool that refuses the surplus would look like a Redis that is away, and counts would be lost.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=PATIENCE_SECONDS,
            socket_timeout=PATIENCE_SECONDS,
            socket_connect_timeout=PATIENCE_SECONDS,
        )
        self.redis = Redis.from_pool(pool)

    def breakers(
        self, settings: Settings, fallback: RecoverableBreakers, clock: Clock, observer: Observer
    ) -> RedisBreakers:
        """One state for every process, with this process's own behind it."""
        return RedisBreakers(
            self.redis,
            parts.breaker_policies(settings),
            prefix=f"circuit:{settings.service}:",
            fallback=fallback,
            clock=clock,
            observer=observer,
            refresh_seconds=REFRESH_SECONDS if settings.push is None else 0.0,
        )

    async def check(self) -> dict[str, Any]:
        """A health check: without Redis each process falls back to its own breakers, which is worse, not broken."""
        try:
            await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            return {"status": "degraded", "error": type(error).__name__}
        return {}

    async def version(self) -> str:
        """What the server is; OSError when it cannot be reached."""
        try:
            info = await self.redis.info("server")
        except RedisError as error:
            raise ConnectionError(str(error)) from error
        return str(info["redis_version"])

    async def aclose(self) -> None:
        await self.redis.aclose()
