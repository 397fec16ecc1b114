"""Where the queues are that a command is about: a blueprint's settings, or the address of any Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from carillon.cli.by_hand import is_there, opened, who
from carillon.cli.options import Config, blueprint_option, load_for
from carillon.compose import Ledger
from carillon.config import queues as settings_queues
from carillon.config.settings import Settings
from carillon.domain.admin import AdminAction
from carillon.domain.errors import CarillonError, ConfigurationError, LedgerUnavailable
from carillon.domain.jobs import LOG_KEY
from carillon.domain.queue_policy import Policy
from carillon.domain.queues import Depth

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from carillon.queues import Queues

BLUEPRINT = "billing"
PATIENCE_SECONDS = 5.0
_VARIANTS = (":processing", ":delayed", ":failed")
_PATTERN, _AT_ONCE = "q:*", 1000
_ENTRY = {"timestamp", "queue", "action", "status", "message_id", "attempts"}
Answer = TypeVar("Answer")

Blueprint = Annotated[str | None, blueprint_option(BLUEPRINT)]
RedisUrl = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="The Redis of queues of your own; no settings are read.")
]


class NoSuchQueue(CarillonError):
    """Nothing of that name is a queue."""


class QueueAccess:
    """One Redis with queues, and the ledger beside it where there is one."""

    def __init__(self, blueprint: str | None, config: Config, redis: str | None) -> None:
        self.settings: Settings | None = None
        self._has_ledger = False
        self.policies: dict[str, Policy] = {}
        if redis is None:
            self.settings = load_for(BLUEPRINT, blueprint, config)
            self._has_ledger = is_there(self.settings.ledger.url)
            redis = self.settings.redis.location()
            self.policies = settings_queues.policies(self.settings.queue, self.settings.drill.time_scale)
        if redis is None:
            raise ConfigurationError("redis.url (REDIS_URL): say where the queues are, or --redis")
        self._url = redis

    def run(self, work: Callable[["Queues"], Awaitable[Answer]]) -> Answer:
        """Open the queues for one command."""
        # Here, because other commands start faster without it.
        from carillon.queues import Queues  # noqa: PLC0415 - as said

        async def working() -> Answer:
            async with Queues(self._url, policies=self.policies, allow_unsafe=True) as queues:
                return await work(queues)

        return asyncio.run(working())

    async def names(self, chosen: Collection[str]) -> list[str]:
        """The queues that are named, else those of the settings, else those that Redis has."""
        if chosen:
            return [_checked(name) for name in chosen]
        known = [name for name in self.policies if name != settings_queues.EVERY_OTHER]
        return known or await self._present()

    async def known(self, queues: "Queues", queue: str) -> Depth:
        """What a queue holds; a name that nobody knows is a mistake."""
        depth = (await queues.inspect([_checked(queue)]))[queue]
        if queue not in self.policies and not any((depth.main, depth.processing, depth.delayed, depth.failed)):
            raise NoSuchQueue(f"there is no queue {queue}; `carillon queues list` shows all")
        return depth

    async def entries(self, most: int) -> list[dict[str, Any]]:
        """The newest entries of the job log in Redis; what somebody else wrote there is passed over."""
        async with self._client() as redis:
            return [found for text in await redis.lrange(LOG_KEY, 0, most - 1) if (found := _entry(text))]

    async def with_ledger(self, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer | None:
        """None where there is no ledger; none is made for the asking."""
        if self.settings is None or not self._has_ledger:
            return None
        async with opened(self.settings) as ledger:
            return await work(ledger)

    async def note(self, queue: str, reason: str, detail: dict[str, Any]) -> None:
        """Write down who gives messages another life."""
        action = AdminAction(actor=f"cli:{who()}", action="requeue", reason=reason, subject=queue, detail=detail)
        await self.with_ledger(lambda ledger: ledger.note_action(action))

    async def _present(self) -> list[str]:
        found: set[str] = set()
        async with self._client() as redis:
            async for key in redis.scan_iter(match=_PATTERN, count=_AT_ONCE):
                name = key.decode("utf-8", "replace")
                for variant in _VARIANTS:
                    name = name.removesuffix(variant)
                found |= {name} - {LOG_KEY}
        return sorted(found)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator["Redis"]:
        from redis.asyncio import Redis  # noqa: PLC0415 - as in run()
        from redis.exceptions import RedisError  # noqa: PLC0415 - as in run()

        try:
            async with Redis.from_url(self._url, socket_connect_timeout=PATIENCE_SECONDS) as redis:
                yield redis
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(f"Redis: {error}") from error


def _entry(text: bytes | str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) and found.keys() >= _ENTRY else None


def _checked(name: str) -> str:
    for variant in _VARIANTS:
        if name.endswith(variant):
            raise NoSuchQueue(f"{name} is a part of a queue: say {name.removesuffix(variant)}")
    return name
