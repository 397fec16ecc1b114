"""Redis as processes share it; imported only where Redis is configured, because its client is slow to load."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from carillon.compose import from_settings
from carillon.compose.part import Finding
from carillon.config.settings import Settings
from carillon.domain.ports import Clock, Observer
from carillon.outbound.breakers.probe import RecoverableBreakers
from carillon.outbound.breakers.redis import RedisBreakers

PATIENCE_SECONDS = 2.0
CONNECTIONS = 20
REFRESH_SECONDS = 0.25


class SharedRedis:
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
            from_settings.breaker_policies(settings),
            prefix=f"circuit:{settings.service}:",
            fallback=fallback,
            clock=clock,
            observer=observer,
            refresh_seconds=REFRESH_SECONDS if settings.push is None else 0.0,
        )

    async def check(self) -> dict[str, Any]:
        """A health check."""
        await self.redis.ping()
        return {}

    async def aclose(self) -> None:
        await self.redis.aclose()


async def examine_redis(location: str, use: str) -> Finding:
    """The doctor's question to a Redis; OSError when it cannot be reached."""
    shared = SharedRedis(location)
    try:
        info = await shared.redis.info("server")
    except RedisError as error:
        raise ConnectionError(str(error)) from error
    finally:
        await shared.aclose()
    return Finding("Redis", "ok", f"version {info['redis_version']}, {use}")
