"""What a process does on Redis Streams; imported only where it is needed, because the client is slow to load."""

import asyncio
import importlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose import from_settings
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Ending, Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.shared_redis import examine_redis
from carillon.config.settings import Settings
from carillon.domain.claims import Claim
from carillon.domain.errors import ConfigurationError, Unavailable
from carillon.domain.intents import Intent, Malformed
from carillon.domain.people import NotAnswered
from carillon.domain.ports import Backlog, Clock, IntakeLedger, Observer, OrderedAcceptor, Signal
from carillon.doors.redis_stream.door import RedisStreamDoor, RedisStreamRules
from carillon.intake.directory import HttpDirectory
from carillon.intake.in_order import OrderedIntake
from carillon.intake.plan import PlanRules
from carillon.ledger.redis.leases import RedisLeases
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest
from carillon.system import SystemClock, new_id
from carillon.upkeep.health import Check, answers_at
from carillon.upkeep.metrics.meters import Metrics

CONNECTIONS = 20
SERVER_PATIENCE = 2.0
NOBODY = "carillon-doctor"
"""The person the doctor asks a directory about: to be sure that there is no such person is an answer."""

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
        """Reach Redis, or say which one could not be reached."""
        stack.push_async_callback(self.redis.aclose)
        stack.push_async_callback(self._reader.aclose)
        try:
            await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            address = self._settings.redis.address or "redis.url"
            raise Unavailable(f"Redis at {address} cannot be reached: {error}") from None

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
            templates=from_settings.templates(self._settings),
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
            rules=RedisStreamRules(
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
        """A health check; not PING, which galaxy promises not to be asked again and again."""
        await self.redis.time()
        return {}


class RedisStreamsPart(Part):
    """The Redis that intents, leases and galaxy's outgoing streams are in."""

    title = "Redis"

    def __init__(self, process: Process) -> None:
        self._process = process
        self.streams = Streams(process.settings, process.clock, process.observe, f"{process.owner}/{new_id()}")

    async def open(self, stack: AsyncExitStack) -> None:
        await self.streams.open(stack)
        self._process.tell_started("redis_client", self._process.settings.redis.address)

    def tools(self) -> dict[str, Any]:
        """What providers that write into Redis need."""
        return {"redis": self.streams.redis, "encoders": self.streams.wire.encoders}

    def checks(self) -> Mapping[str, Check]:
        return {"redis": self.streams.check}

    async def examine(self) -> list[Finding]:
        location = self._process.settings.redis.location()
        return [] if location is None else [await examine_redis(location, "streams")]


class RedisStreamDoorPart(Part):
    """Reads the stream of intents into the ledger."""

    title = "Directory"
    role = Role.DOORS
    door: RedisStreamDoor

    def __init__(self, process: Process, ledger: LedgerPart, providers: ProvidersPart, redis: RedisStreamsPart) -> None:
        self._process = process
        self._ledger = ledger
        self._providers = providers
        self._redis = redis

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        process, ledger = self._process, self._ledger.ledger
        rules = from_settings.plan_rules(process.settings, process.chains)
        self.door = self._redis.streams.open_door(ledger, ledger.signal, rules, self._providers.tools.http)

    def run(self) -> Mapping[str, Loop]:
        settings = self._process.settings
        if settings.directory is not None:
            self._process.tell_started("directory_client", settings.directory.url)
        self._process.tell_started("intent_consumer", settings.stream.name if settings.stream else None)
        return {"door": self.door.run}

    async def stop(self, ending: Ending) -> None:
        self.door.stop()
        await ending.finish(seconds=ending.deadline.left())
        await self.door.aclose()
        self._process.tell_stopped("intent_consumer")

    def checks(self) -> Mapping[str, Check]:
        directory = self._process.settings.directory
        return {} if directory is None else {"directory": answers_at(directory.url)}

    def gauges(self, metrics: Metrics) -> None:
        metrics.watch_stream(self.door.oldest_unprocessed_age_ms, asyncio.get_running_loop())

    async def examine(self) -> list[Finding]:
        settings = self._process.settings
        if settings.directory is None:
            return []
        http = HttpClient()
        try:
            directory = directory_of(settings, http, SystemClock(), lambda _: None)
            said = None if directory is None else (await directory.find([NOBODY]))[NOBODY]
        finally:
            await http.aclose()
        if isinstance(said, NotAnswered):
            return [Finding("Directory", "ill", f"{settings.directory.url}: {said.error}")]
        return [Finding("Directory", "ok", f"{settings.directory.url} answers")]


def directory_of(settings: Settings, http: HttpClient, clock: Clock, observer: Observer) -> HttpDirectory | None:
    """The service that knows people's addresses and languages, where the settings name one."""
    directory = settings.directory
    if directory is None:
        return None
    seconds = directory.timeout_seconds

    async def fetch(url: str) -> tuple[int, bytes] | str:
        answer = await http.post(HttpRequest(url=url, method="GET", timeout_seconds=seconds))
        if isinstance(answer, HttpAnswer):
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
