"""Messages between replicas through Redis pub/sub."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
LISTEN_SECONDS = 5.0


class RedisBus:
    """Satisfies NotifyBus; each replica subscribes to a channel of its own."""

    def __init__(self, redis: Redis, *, prefix: str, clock: Clock, observer: Observer) -> None:
        self._redis = redis
        self._prefix = prefix
        self._clock = clock
        self._observe = observer

    async def send(self, messages: Mapping[str, Sequence[str]]) -> None:
        """Publish in one round trip; an error is reported and the messages are lost."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for replica, texts in messages.items():
                    for text in texts:
                        pipeline.publish(self._prefix + replica, text)
                await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            # A delivery that waits for the answer has a timeout, and is then tried again.
            self._observe(Trouble(where="stream_relay", error=f"{type(error).__name__}: {error}"))

    async def run(self, replica: str, receive: Callable[[str], None]) -> None:
        """Receive until cancelled; a broken connection is opened again."""
        wait = FIRST_WAIT
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(self._prefix + replica)
                    wait = FIRST_WAIT
                    while True:
                        await self._receive(pubsub, receive)
            except (RedisError, OSError, TimeoutError) as error:
                said = f"{type(error).__name__}: {error}"
                self._observe(Trouble(where="stream_relay", error=said, retry_in_seconds=wait))
                await self._clock.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)

    async def _receive(self, pubsub: PubSub, receive: Callable[[str], None]) -> None:
        message = await pubsub.get_message(timeout=LISTEN_SECONDS)
        if message is None:
            await asyncio.wait_for(pubsub.ping(), LISTEN_SECONDS)
        elif message["type"] == "message":
            data = message["data"]
            receive(data.decode() if isinstance(data, bytes) else data)
