"""What producers and operators do with list queues: put messages in, look, give failed ones another life."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.jobs import BadMessage, age_seconds, message_id, read_message, with_attempts
from carillon.domain.queues import Depth, FailedMessage
from carillon.ledger.redis.lists_scripts import Scripts, seconds, unavailable

WINDOW = 500


class Put(msgspec.Struct, frozen=True):
    """One message for one queue."""

    queue: str
    raw: bytes
    delay_seconds: float = 0.0
    """Not before so much later."""


class Desk:
    """Works on any queue, whether or not somebody here works it off."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    async def enqueue(self, puts: Sequence[Put]) -> list[float | BadMessage]:
        """Put all of them in; when each was, or why it cannot be."""
        given = {"items": [(put.queue, len(put.raw), put.delay_seconds) for put in puts]}
        time, errors = await self._scripts.run("enqueue", given, [put.raw for put in puts])
        now = seconds(time)
        return [
            BadMessage(f"{put.queue} takes no messages: {error.decode('utf-8', 'replace')}") if error else now
            for put, error in zip(puts, errors, strict=True)
        ]

    async def depths(self, queues: Sequence[str]) -> dict[str, Depth]:
        """How much waits where, all of it at one moment."""
        time, *found = await self._scripts.run("depths", {"queues": list(queues)})
        now = seconds(time)
        return {queue: _depth(found[5 * at : 5 * at + 5], now) for at, queue in enumerate(queues)}

    async def failed(self, queue: str, limit: int) -> list[FailedMessage]:
        """The newest failed messages."""
        return [_failed(queue, raw) for raw in await self._range(queue, 0, limit - 1)] if limit > 0 else []

    async def requeue(self, queue: str, ids: Collection[str] | None = None, limit: int | None = None) -> int:
        """Give failed messages their whole budget again, the oldest first; answers how many."""
        moved, skipped = 0, 0
        while limit is None or moved < limit:
            window = await self._range(queue, -WINDOW - skipped, -1 - skipped)
            chosen = [raw for raw in reversed(window) if ids is None or message_id(raw) in ids]
            chosen = chosen if limit is None else chosen[: limit - moved]
            gone = await self._requeue(queue, chosen)
            moved += gone
            skipped += len(window) - gone
            if len(window) < WINDOW:
                break
        return moved

    async def _requeue(self, queue: str, chosen: Sequence[bytes]) -> int:
        texts: list[bytes] = []
        for raw in chosen:
            # What was never a message stays as it is, and will fail again.
            texts += (raw, raw if read_message(raw, "", "") is None else with_attempts(raw, 0))
        items = [(queue, len(texts[at]), len(texts[at + 1])) for at in range(0, len(texts), 2)]
        if not items:
            return 0
        _, answers = await self._scripts.run("requeue", {"items": items}, texts)
        return sum(answers)

    async def _range(self, queue: str, first: int, last: int) -> list[bytes]:
        try:
            found = await self._redis.lrange(f"{queue}:failed", first, last)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error
        return [text.encode() if isinstance(text, str) else text for text in found]


def _depth(found: Sequence[Any], now: float) -> Depth:
    main, processing, delayed, failed, oldest = found
    message = read_message(oldest, "", "") if oldest else None
    age = None if message is None else age_seconds(message.created_at, now)
    return Depth(main, processing, delayed, failed, age)


def _failed(queue: str, raw: bytes) -> FailedMessage:
    own_id = message_id(raw)
    return FailedMessage(queue, own_id, read_message(raw, own_id, ""), raw)
