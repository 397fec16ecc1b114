"""The idempotency marks of queued messages in Redis, checked and set in one step."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.errors import LedgerUnavailable

_pack = msgspec.msgpack.encode
SCRIPT = (files("carillon.ledger.rabbitmq") / "marks.lua").read_text()

Verb = Literal["take", "renew", "release", "sent", "failed"]


class MarkRules(msgspec.Struct, frozen=True, kw_only=True):
    """Names and times of marks."""

    prefix: str = "idempotency:"
    holder_prefix: str = "push_worker:holder:"
    mark_seconds: int = 86_400
    takeover_after_seconds: float = 300.0


class MarkStep(msgspec.Struct, frozen=True):
    """One step on the mark of one message, for one claim."""

    verb: Verb
    key: str
    claim: str


class MarkAnswer(msgspec.Struct, frozen=True):
    """The answer to a step: go, sent or busy for a `take`, else done or lost; and the holder of the mark."""

    word: str
    holder: str


class Marks:
    """The marks of one process; `process` is its unique name."""

    def __init__(self, redis: Redis, process: str, rules: MarkRules, script: str = SCRIPT) -> None:
        self._script = redis.register_script(script)
        self._process = process
        self._rules = rules

    def claim_name(self, token: int) -> str:
        """The holder's name for a claim."""
        return f"{self._process}/{token}"

    async def run(self, steps: Sequence[MarkStep]) -> list[MarkAnswer]:
        """Run all steps atomically, one answer each; after LedgerUnavailable, the steps may have run."""
        if not steps:
            return []
        rules = self._rules
        packed = _pack([text for step in steps for text in (step.verb, step.key, step.claim)])
        times = (rules.mark_seconds, rules.takeover_after_seconds)
        try:
            said = await self._script(args=[self._process, *times, rules.prefix, rules.holder_prefix, packed])
        except (RedisError, OSError, TimeoutError) as error:
            raise LedgerUnavailable(f"Redis is not available: {type(error).__name__}: {error}") from error
        texts = [_text(each) for each in said]
        return [MarkAnswer(word, holder) for word, holder in zip(texts[::2], texts[1::2], strict=True)]


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
