"""The scripts of the list queue: every step over its keys is one of them, and nothing else writes to Redis."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.jobs import LOG_KEY, text_id

NAMES = ("claim", "cleanup", "depths", "enqueue", "extend", "log", "look", "pump", "requeue", "settle", "sweep")
LOG_KEEPS = 10_000
_pack = msgspec.msgpack.encode


def script_texts() -> dict[str, str]:
    """Every script by its name, the shared rules before each."""
    folder = files("carillon.ledger.redis")
    rules = (folder / "lists_rules.lua").read_text()
    return {name: rules + (folder / f"lists_{name}.lua").read_text() for name in NAMES}


class Scripts:
    """Runs scripts; whatever the network or the server did is LedgerUnavailable, and the script may have run."""

    def __init__(self, redis: Redis, *, log_key: str = LOG_KEY, log_keeps: int = LOG_KEEPS) -> None:
        self._redis = redis
        self._texts = script_texts()
        self._digests = {name: _digest(text) for name, text in self._texts.items()}
        self.log = {"log": log_key, "log_keeps": log_keeps}

    async def run(self, name: str, given: Mapping[str, Any], texts: Iterable[bytes] = ()) -> Any:  # noqa: ANN401 - what the script answers
        """One script, once: what may have been carried out is never repeated here."""
        packed, joined = _pack(given), b"".join(texts)
        try:
            try:
                return await self._redis.evalsha(self._digests[name], 0, packed, joined)
            except NoScriptError:
                return await self._redis.eval(self._texts[name], 0, packed, joined)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def logged(self, entries: Sequence[str]) -> None:
        """Job log entries that belong to no other step."""
        if entries:
            await self.run("log", {"entries": list(entries), **self.log})


def hints_for(texts: Iterable[bytes]) -> dict[str, str]:
    """What a script cannot work out: the ids of texts that carry none, each under the text's SHA-1."""
    return {_digest(text): text_id(text) for text in texts}


def seconds(time: Sequence[bytes]) -> float:
    """The server's time, as every script answers it."""
    return int(time[0]) + int(time[1]) / 1_000_000


def unavailable(error: BaseException) -> LedgerUnavailable:
    """One sentence about a Redis that does not do as asked."""
    return LedgerUnavailable(f"Redis is not available: {type(error).__name__}: {error}")


def _digest(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    # Not for safety: it is the name Redis itself gives to scripts and texts.
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
