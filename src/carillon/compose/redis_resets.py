"""Redis clients that outlive a reset: a connection that the server has reset is replaced before it is used again."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError

if TYPE_CHECKING:
    from redis.asyncio import Connection, Redis

    Base = Connection
else:
    Base = object


class _OutlivesResets(Base):
    """The client notices that a server has closed a connection, but not that it has reset one.

    A write to such a connection raises RuntimeError with uvloop. Nobody takes a RuntimeError for a Redis that is away:
    a settlement would not be repeated, and its message would stay locked until the lock expires.
    """

    @property
    def is_connected(self) -> bool:
        return self._reader is not None and self._writer is not None and not self._writer.is_closing()

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - the client's signature
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            # The reset came between the look and the write.
            raise RedisConnectionError(str(error)) from error


def outliving_resets(redis: "Redis") -> "Redis":
    """The same client; its new connections are replaced after a reset."""
    pool: Any = redis.connection_pool
    pool.connection_class = replaced_after_resets(pool.connection_class)
    return redis


def replaced_after_resets(plain: Any) -> Any:  # noqa: ANN401 - a class of connections
    """The same class of connections, which are replaced after a reset."""
    return plain if issubclass(plain, _OutlivesResets) else type(plain.__name__, (_OutlivesResets, plain), {})
