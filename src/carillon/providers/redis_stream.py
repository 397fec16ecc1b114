"""Messages as entries of a Redis stream, a batch in one round trip."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import hiredis
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.outcomes import Outcome, Sent, Unavailable, Unknown
from carillon.providers import Tools

CHANNELS = None
TELLS: frozenset[str] = frozenset()
"""The service that reads the stream reports nothing."""
AT_ONCE = 500
_LONGEST_ERROR = 1000

Encoder = Callable[[Claim], Mapping[str, str | bytes]]
"""Returns the fields of a claim's entry; may raise."""


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which Redis stream, and how its entries are encoded."""

    stream: Annotated[str, msgspec.Meta(min_length=1)]
    encoder: str
    """The name of one of the blueprint's encoders."""
    max_len: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Redis trims the stream to about this many entries; without it the reader of the stream must trim it."""
    failure: str = "stream_publish_failed"
    """The classification of an entry that Redis refused."""


class RedisStream:
    """Satisfies BatchProvider; never repeats an XADD by itself, so that each attempt adds at most one entry."""

    def __init__(self, name: str, settings: Settings, redis: Redis, encode: Encoder) -> None:
        self.name = name
        # Not the client's pipeline: it costs three times as much per entry, and repeats the batch after an error.
        self._pool: Any = redis.connection_pool
        self._encode = encode
        self._failure = settings.failure
        trim = () if settings.max_len is None else ("MAXLEN", "~", str(settings.max_len))
        self._head = ("XADD", settings.stream, *trim, "*")

    async def send(self, dispatch: Dispatch) -> Outcome:
        return (await self.send_many([dispatch]))[0]

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(dispatches), AT_ONCE):
            outcomes += await self._send_some(dispatches[start : start + AT_ONCE])
        return outcomes

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    async def _send_some(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        packed = [self._pack(dispatch.claim) for dispatch in dispatches]
        ready = [entry for entry in packed if isinstance(entry, bytes)]
        seconds = min(dispatch.timeout_seconds for dispatch in dispatches)
        answers = iter(await self._publish(ready, seconds) if ready else ())
        return [next(answers) if isinstance(entry, bytes) else entry for entry in packed]

    def _pack(self, claim: Claim) -> bytes | Unavailable:
        try:
            fields = self._encode(claim)
            entry: bytes = hiredis.pack_command((*self._head, *(part for field in fields.items() for part in field)))
        except Exception as error:  # noqa: BLE001 - an error of one payload must end in its own route's history
            said = f"{type(error).__name__}: {error}"
            return Unavailable(said[:_LONGEST_ERROR], classification="payload_encoding_failed")
        return entry

    async def _publish(self, packed: Sequence[bytes], seconds: float) -> list[Outcome]:
        answers: list[Outcome] = []
        sending = False
        try:
            async with asyncio.timeout(seconds):
                connection = await self._pool.get_connection()
                sending = True
                try:
                    await self._exchange(connection, packed, answers)
                finally:
                    if len(answers) < len(packed):
                        # Otherwise the connection's next user would read our answers.
                        await connection.disconnect(nowait=True)
                    await asyncio.shield(self._pool.release(connection))
        except (RedisError, OSError) as error:
            said = (str(error) or "Redis did not answer in time")[:_LONGEST_ERROR]
            # An entry that was sent and not answered may be in the stream.
            lost = Unknown(said, self._failure) if sending else Unavailable(said, self._failure)
            answers += [lost] * (len(packed) - len(answers))
        return answers

    async def _exchange(self, connection: Any, packed: Sequence[bytes], answers: list[Outcome]) -> None:  # noqa: ANN401 - redis-py types its connections as a union nothing can be called on
        await connection.send_packed_command(b"".join(packed))
        for _ in packed:
            try:
                # One deadline for all answers: the client's own timeout costs more than reading an answer.
                entry_id = await connection.read_response(timeout=math.inf)
            except ResponseError as error:
                answers.append(Unavailable(str(error)[:_LONGEST_ERROR], self._failure))
            else:
                answers.append(Sent(entry_id.decode() if isinstance(entry_id, bytes) else entry_id))


def create(name: str, settings: Settings, tools: Tools) -> RedisStream:
    if tools.redis is None:
        raise ValueError("a Redis stream needs Redis; set redis.url")
    if settings.encoder not in tools.encoders:
        known = ", ".join(sorted(tools.encoders)) or "none"
        raise ValueError(f"encoder: no encoder {settings.encoder[:64]!r}; known: {known}")
    return RedisStream(name, settings, tools.redis, tools.encoders[settings.encoder])
