"""What a process does on Redis Streams; imported only where it is needed, because the client is slow to load."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose import parts
from carillon.config.settings import Settings
from carillon.domain.claims import Claim
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Backlog, Clock, IntakeLedger, Observer, OrderedAcceptor, Signal
from carillon.doors.redis_stream.door import RedisStreamDoor, StreamRules
from carillon.intake.directory import HttpDirectory
from carillon.intake.in_order import OrderedIntake
from carillon.intake.plan import PlanRules
from carillon.ledger.redis.leases import RedisLeases
from carillon.providers.http import Answer, HttpClient, Request
from carillon.system import new_id

CONNECTIONS = 20
SERVER_PATIENCE = 2.0

Fields: TypeAlias = "dict[str, str | bytes]"


class Wire(Protocol):
    """A blueprint's wire format."""

    encoders: dict[str, Callable[[Claim], Fields]]

    def decode(self, entry_id: str, fields: Mapping[str, str]) -> Intent | Malformed: ...


class Streams:
    """The Redis clients of one process and everything built on them."""

    def __init__(self, settings: Settings, clock: Clock, observer: Observer, owner: str) -> None:
        """`owner` is this process's alone."""
        self._settings = settings
        self._clock = clock
        self._observe = observer
        self._owner = owner
        seconds = settings.redis.operation_timeout_seconds
        self.redis = _client(settings, seconds)
        # A blocking read lasts as long as it is told to: on a client of its own, no other call waits behind it.
        block = settings.stream.block_seconds if settings.stream else 0.0
        self._reader = _client(settings, block + seconds)
        self.wire: Wire = _wire(settings)
        self.door: RedisStreamDoor | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Reach Redis, or end the start saying which one could not be reached."""
        stack.push_async_callback(self.redis.aclose)
        stack.push_async_callback(self._reader.aclose)
        try:
            await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            address = self._settings.redis.address or "redis.url"
            raise ConfigurationError(f"Redis at {address} cannot be reached: {error}") from None

    def leased(self, backlog: Backlog, stack: AsyncExitStack) -> Backlog:
        """The backlog whose claims are leased in Redis as well, where the blueprint says so."""
        prefix = self._settings.ledger.lease_keys
        if prefix is None:
            return backlog
        seconds = self._settings.ledger.lease_seconds
        leases = RedisLeases(backlog, self.redis, prefix=prefix, lease_seconds=seconds, owner=self._owner)
        # Keys are given back behind the commit: the last of them before Redis is left.
        stack.push_async_callback(leases.aclose)
        return leases

    def open_door(self, ledger: IntakeLedger, signal: Signal, rules: PlanRules, http: HttpClient) -> RedisStreamDoor:
        """The door that reads the stream into the ledger."""
        stream = self._settings.stream
        if stream is None:
            raise ConfigurationError("stream.name: say which stream intents are read from")
        acceptor: OrderedAcceptor = OrderedIntake(
            ledger=ledger,
            templates=parts.templates(self._settings),
            directory=directory_of(self._settings, http, self._clock, self._observe),
            signal=signal,
            rules=rules,
            observer=self._observe,
            ids=lambda: "",
        )
        self.door = RedisStreamDoor(
            redis=self._reader,
            acceptor=acceptor,
            decode=self.wire.decode,
            rules=StreamRules(
                stream=stream.name,
                block_seconds=stream.block_seconds,
                batch=stream.batch,
                offset_prefix=stream.offset_prefix,
                lease_prefix=stream.lease_prefix,
            ),
            clock=self._clock,
            observer=self._observe,
            owner=self._owner,
        )
        return self.door

    async def check(self) -> dict[str, Any]:
        """A health check."""
        await self.redis.ping()
        return {}


def directory_of(settings: Settings, http: HttpClient, clock: Clock, observer: Observer) -> HttpDirectory | None:
    """Who knows people's addresses and languages, where the settings name somebody."""
    directory = settings.directory
    if directory is None:
        return None
    seconds = directory.timeout_seconds

    async def fetch(url: str) -> tuple[int, bytes] | str:
        answer = await http.post(Request(url=url, method="GET", timeout_seconds=seconds))
        if isinstance(answer, Answer):
            return (answer.status, answer.body) if answer.complete else "the directory's answer was cut short"
        # Alone, what the network said does not say who was asked.
        return f"the directory did not answer: {answer.error}"

    return HttpDirectory(
        fetch,
        directory.url.rstrip("/") + directory.path,
        concurrency=directory.concurrency,
        clock=clock,
        observer=observer,
    )


def _client(settings: Settings, seconds: float) -> Redis:
    url = settings.redis.location()
    if url is None:
        raise ConfigurationError("redis.url or redis.address: this blueprint works on Redis")
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=seconds,
        socket_timeout=seconds,
        socket_connect_timeout=min(seconds, SERVER_PATIENCE),
        # A call that may have been carried out is never repeated behind our back.
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


def _wire(settings: Settings) -> Wire:
    module = importlib.import_module(f"carillon.blueprints.{settings.blueprint.replace('-', '_')}.wire")
    if hasattr(module, "open_stream"):
        found: Wire = module.open_stream(settings.priorities, new_id)
        return found
    file = settings.catalogue.file
    extra = None if file is None or file.startswith("blueprint:") else Path(file).expanduser()
    wire: Wire = module.open_wire(extra, settings.admin_emails)
    return wire
