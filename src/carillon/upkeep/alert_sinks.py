"""Who can be told of alerts without a library of their own: the log, a Redis stream, a webhook."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.alerts import Alert
from carillon.upkeep.logs.sink import ERROR, active

_LONGEST_ERROR = 500

Post = Callable[[bytes, Mapping[str, str]], Awaitable[str | None]]
"""POST a body with headers; None when the other side confirmed, otherwise what went wrong."""

Sign = Callable[[str, bytes], Mapping[str, str]]
"""The headers that sign a body under a message's id."""


class LogAlerts:
    """One line for each alert."""

    name = "log"

    async def tell(self, alert: Alert) -> str | None:
        fields = msgspec.to_builtins(alert)
        said = f"{alert.channel} of {alert.template_key} was given up: {alert.last_error}"
        active().emit(ERROR, "NotificationFailed", said, fields)
        return None

    async def aclose(self) -> None:
        """Nothing is held."""


class RedisAlerts:
    """One entry of a stream for each alert, its JSON in the field `event`."""

    name = "redis"

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis = redis
        self._stream = stream

    async def tell(self, alert: Alert) -> str | None:
        try:
            await self._redis.xadd(self._stream, {"event": msgspec.json.encode(alert)})
        except (RedisError, OSError) as error:
            return (str(error) or "Redis did not answer in time")[:_LONGEST_ERROR]
        return None

    async def aclose(self) -> None:
        await self._redis.aclose()


class WebhookAlerts:
    """One signed POST for each alert; a repeat carries the same id."""

    name = "webhook"

    def __init__(self, post: Post, sign: Sign, service: str) -> None:
        self._post = post
        self._sign = sign
        self._service = service

    async def tell(self, alert: Alert) -> str | None:
        body = msgspec.json.encode(alert)
        message_id = f"{self._service}/{alert.notification_id}/{alert.alert_id}"
        return await self._post(body, self._sign(message_id, body))

    async def aclose(self) -> None:
        """Connections belong to the shared client."""
