"""The Lua scripts of list queues and of effects that run once; nothing else writes to their keys in Redis."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.jobs import LOG_KEY, Effect, text_id

NAMES = (
    *("claim", "cleanup", "depths", "enqueue", "extend", "forget"),
    *("log", "look", "pump", "requeue", "settle", "sweep"),
)
LOG_KEEPS = 10_000
_pack = msgspec.msgpack.encode


def script_texts() -> dict[str, str]:
    """Every script by its name, the shared rules before each."""
    folder = files("carillon.ledger.redis")
    rules = (folder / "lists_rules.lua").read_text()
    return {name: rules + (folder / f"lists_{name}.lua").read_text() for name in NAMES}


class Scripts:
    """Runs scripts; an error of the network or the server raises LedgerUnavailable, and the script may have run."""

    def __init__(self, redis: Redis, *, log_key: str = LOG_KEY, log_keeps: int = LOG_KEEPS) -> None:
        self._redis = redis
        self._texts = script_texts()
        self._digests = {name: _digest(text) for name, text in self._texts.items()}
        self.log = {"log": log_key, "log_keeps": log_keeps}

    async def run(self, name: str, given: Mapping[str, Any], texts: Iterable[bytes] = ()) -> Any:  # noqa: ANN401 - what the script answers
        """Run one script once; it is not repeated after an error, because it may have run."""
        packed, joined = _pack(given), b"".join(texts)
        try:
            try:
                return await self._redis.evalsha(self._digests[name], 0, packed, joined)
            except NoScriptError:
                return await self._redis.eval(self._texts[name], 0, packed, joined)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def logged(self, entries: Sequence[str]) -> None:
        """Write job log entries with a script of their own."""
        if entries:
            await self.run("log", {"entries": list(entries), **self.log})


def hints_for(texts: Iterable[bytes]) -> dict[str, str]:
    """The ids of messages without one, which Lua cannot compute, by the SHA-1 of each message."""
    return {_digest(text): text_id(text) for text in texts}


def seconds(time: Sequence[bytes]) -> float:
    """The server's time in an answer of a script."""
    return int(time[0]) + int(time[1]) / 1_000_000


def unavailable(error: BaseException) -> LedgerUnavailable:
    """The error for a Redis that cannot be reached or refuses."""
    return LedgerUnavailable(f"Redis is not available: {type(error).__name__}: {error}")


def _digest(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    # Not for security: Redis names scripts by their SHA-1.
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()


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
