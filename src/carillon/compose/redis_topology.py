"""Which forms of Redis a part works on: one server, also under Sentinel, or a Redis Cluster."""

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose.redis_resets import replaced_after_resets
from carillon.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from redis.asyncio import Redis

Client: TypeAlias = "Redis | RedisCluster"

SINGLE = "keep them in a Redis without cluster mode, alone or under Sentinel"
REASONS = {
    "marks": f"idempotency marks are set by scripts over keys of many slots; {SINGLE}",
    "queues": f"messages move between lists of many slots in one step; {SINGLE}",
    "streams": f"intents, leases and outgoing streams are handled together over keys of many slots; {SINGLE}",
}
"""Why a part does not work on a Redis Cluster, and what to do."""


def cluster_client(url: str, connections: int, seconds: float) -> RedisCluster:
    """A client that follows the slots; like the other clients it repeats no call that a node may have carried out."""
    client = RedisCluster.from_url(
        url,
        max_connections=connections,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),
    )
    kept: Any = client.connection_kwargs
    for each in (kept, *client.nodes_manager.startup_nodes.values()):
        _outlive(each)
    return client


def _outlive(place: Any) -> None:  # noqa: ANN401 - the client's dictionary of options, or one of its nodes
    plain = place.get("connection_class", Connection) if isinstance(place, dict) else place.connection_class
    better = replaced_after_resets(cast("type[Connection | SSLConnection]", plain))
    if isinstance(place, dict):
        place["connection_class"] = better
    else:
        place.connection_class = better


async def is_cluster(redis: "Redis") -> bool:
    """Whether the server is a node of a Redis Cluster; False for a server that does not say."""
    try:
        found: dict[str, Any] = await redis.info("cluster")
    except (RedisError, OSError, TimeoutError):
        return False
    return str(found.get("cluster_enabled", 0)) == "1"


async def refuse_cluster(redis: "Redis", part: str) -> None:
    """Raise ConfigurationError if the server is a node of a Redis Cluster, on which this part does not work."""
    if await is_cluster(redis):
        raise ConfigurationError(f"redis.url: this is a Redis Cluster: {REASONS[part]}")


def undeclared_cluster() -> ConfigurationError:
    """For a Redis Cluster that the settings do not know of: its nodes would refuse most keys."""
    return ConfigurationError("redis.url: this is a Redis Cluster: set redis.cluster = true")
