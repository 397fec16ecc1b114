"""The parts of a process that use Redis; imported only where needed, because the client is slow to load."""

import asyncio
import importlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from carillon.compose import from_settings, messages
from carillon.compose.ledger import LedgerPart, ordered_people
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.compose.redis_resets import outliving_resets
from carillon.compose.redis_topology import (
    REASONS,
    Client,
    cluster_client,
    is_cluster,
    refuse_cluster,
    undeclared_cluster,
)
from carillon.config.settings import Settings
from carillon.domain.claims import Claim
from carillon.domain.errors import ConfigurationError, ServerUnavailable
from carillon.domain.intents import Intent, Malformed
from carillon.domain.people import NotAnswered
from carillon.domain.ports import Backlog, Clock, Observer, OrderedAcceptor, Signal
from carillon.doors.redis_stream.door import RedisStreamDoor, RedisStreamRules
from carillon.intake.directory import HttpDirectory
from carillon.intake.erased import ErasedAddresses
from carillon.intake.in_order import OrderedIntake
from carillon.intake.plan import PlanRules
from carillon.ledger.opening import Ledger
from carillon.ledger.redis.leases import RedisLeases
from carillon.outbound.breakers.redis import RedisBreakers, RedisTargets
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest
from carillon.system import SystemClock, new_id
from carillon.upkeep.health import Check, answers_at
from carillon.upkeep.metrics.meters import Metrics

PATIENCE_SECONDS = 2.0
CONNECTIONS = 20
REFRESH_SECONDS = 0.25
SERVER_PATIENCE = 2.0
NOBODY = "carillon-doctor"
"""The person whom the doctor looks up: a directory that answers "unknown" works."""
Fields: TypeAlias = "dict[str, str | bytes]"


class SharedRedis:
    """The Redis client for breakers and marks."""

    def __init__(self, url: str, *, cluster: bool = False) -> None:
        self._url = url
        self._cluster = cluster
        self.redis: Client
        if cluster:
            self.redis = cluster_client(url, CONNECTIONS, PATIENCE_SECONDS)
            return
        # A pool that refuses surplus calls would look like a Redis that is away, and breakers would lose counts.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=PATIENCE_SECONDS,
            socket_timeout=PATIENCE_SECONDS,
            socket_connect_timeout=PATIENCE_SECONDS,
        )
        self.redis = outliving_resets(Redis.from_pool(pool))

    def breakers(self, settings: Settings, clock: Clock, observer: Observer) -> RedisBreakers:
        """Breakers shared by all processes."""
        return RedisBreakers(
            self.redis,
            from_settings.breaker_policies(settings),
            # In a Redis Cluster one slot holds all breakers of a service, because a script may use no other.
            prefix=f"circuit:{{{settings.service}}}:" if self._cluster else f"circuit:{settings.service}:",
            clock=clock,
            observer=observer,
            refresh_seconds=REFRESH_SECONDS if settings.push is None else 0.0,
        )

    def targets(self) -> RedisTargets:
        """The store of what the fleet knows about targets."""
        return RedisTargets(self.redis)

    async def check(self) -> dict[str, Any]:
        """A health check; raises ConfigurationError for a Redis Cluster that the settings do not know of."""
        await self.redis.ping()
        if not self._cluster and await is_cluster(cast("Redis", self.redis)):
            raise undeclared_cluster()
        return {}

    async def check_topology(self, part: str | None = None) -> None:
        """Refuse a Redis Cluster that the settings or this part do not work with; a Redis that is away is not asked."""
        if not self._cluster and await is_cluster(cast("Redis", self.redis)):
            raise (
                undeclared_cluster()
                if part is None
                else ConfigurationError(f"redis.url: this is a Redis Cluster: {REASONS[part]}")
            )

    async def aclose(self) -> None:
        await self.redis.aclose()


async def examine_redis(location: str, use: str, *, part: str | None = None, cluster: bool = False) -> DoctorFinding:
    """Ask a Redis for its version and its form; raises OSError if it cannot be reached."""
    shared = SharedRedis(location)
    try:
        info = await cast("Redis", shared.redis).info("server")
        if not cluster:
            await shared.check_topology(part)
    except RedisError as error:
        raise ConnectionError(str(error)) from error
    except ConfigurationError as error:
        return DoctorFinding("Redis", "ill", str(error))
    finally:
        await shared.aclose()
    return DoctorFinding("Redis", "ok", f"version {info['redis_version']}, {use}{', a cluster' if cluster else ''}")


class BlueprintWire(Protocol):
    """A blueprint's wire format."""

    encoders: dict[str, Callable[[Claim], Fields]]

    def decode(self, entry_id: str, fields: Mapping[str, str]) -> Intent | Malformed: ...


class StreamClients:
    """The Redis clients of one process and everything built on them."""

    def __init__(self, settings: Settings, clock: Clock, observer: Observer, owner: str) -> None:
        """`owner` is unique to this process."""
        self._settings = settings
        self._clock = clock
        self._observe = observer
        self._owner = owner
        seconds = settings.redis.operation_timeout_seconds
        self.redis = _client(settings, seconds)
        # Blocking reads get their own client, so that no other call waits behind them.
        block = settings.stream.block_seconds if settings.stream else 0.0
        self._reader = _client(settings, block + seconds)
        self.wire: BlueprintWire = _wire(settings)
        self.door: RedisStreamDoor | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect; raises ServerUnavailable with the address that does not answer."""
        stack.push_async_callback(self.redis.aclose)
        stack.push_async_callback(self._reader.aclose)
        try:
            await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            address = self._settings.redis.address or "redis.url"
            raise ServerUnavailable(f"Redis at {address} cannot be reached: {error}") from None
        await refuse_cluster(self.redis, "streams")

    def leased(self, backlog: Backlog, stack: AsyncExitStack) -> Backlog:
        """The backlog, with claims leased in Redis too if the blueprint says so."""
        prefix = self._settings.ledger.lease_keys
        if prefix is None:
            return backlog
        seconds = self._settings.ledger.lease_seconds
        leases = RedisLeases(backlog, self.redis, prefix=prefix, lease_seconds=seconds, owner=self._owner)
        # Leases release their keys after the commit: wait for the last of them before closing Redis.
        stack.push_async_callback(leases.aclose)
        return leases

    def open_door(self, ledger: Ledger, signal: Signal, rules: PlanRules, http: HttpClient) -> RedisStreamDoor:
        """The door that reads the stream into the ledger."""
        stream = self._settings.stream
        if stream is None:
            raise ConfigurationError("stream.name: set the name of the Redis stream that intents are read from")
        acceptor: OrderedAcceptor = OrderedIntake(
            ledger=ledger,
            templates=messages.templates(self._settings),
            directory=directory_of(self._settings, http, self._clock, self._observe),
            signal=signal,
            rules=rules,
            observer=self._observe,
            ids=new_id,
            clock=self._clock,
            add_choices=ordered_people(self._settings, ledger, self._clock),
            erased=ErasedAddresses(ledger, self._clock),
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
        """A health check; TIME, because galaxy promises not to send PING repeatedly."""
        await self.redis.time()
        return {}


class RedisStreamsPart(Part):
    """The Redis of intents, leases and galaxy's outgoing streams."""

    title = "Redis"

    def __init__(self, process: Process) -> None:
        self._process = process
        self.streams = StreamClients(process.settings, process.clock, process.observe, f"{process.owner}/{new_id()}")

    async def open(self, stack: AsyncExitStack) -> None:
        await self.streams.open(stack)
        self._process.tell_started("redis_client", self._process.settings.redis.address)

    def tools(self) -> dict[str, Any]:
        """What providers that write into Redis need."""
        return {"redis": self.streams.redis, "encoders": self.streams.wire.encoders}

    def checks(self) -> Mapping[str, Check]:
        return {"redis": self.streams.check}

    async def examine(self) -> list[DoctorFinding]:
        location = self._process.settings.redis.location()
        return [] if location is None else [await examine_redis(location, "streams", part="streams")]


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

    async def stop(self, ending: PartEnd) -> None:
        self.door.stop()
        await ending.finish(seconds=ending.deadline.left())
        await self.door.aclose()
        self._process.tell_stopped("intent_consumer")

    def checks(self) -> Mapping[str, Check]:
        directory = self._process.settings.directory
        return {} if directory is None else {"directory": answers_at(directory.url)}

    def gauges(self, metrics: Metrics) -> None:
        metrics.watch_stream(self.door.oldest_unprocessed_age_ms, asyncio.get_running_loop())

    async def examine(self) -> list[DoctorFinding]:
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
            return [DoctorFinding("Directory", "ill", f"{settings.directory.url}: {said.error}")]
        return [DoctorFinding("Directory", "ok", f"{settings.directory.url} answers")]


def directory_of(settings: Settings, http: HttpClient, clock: Clock, observer: Observer) -> HttpDirectory | None:
    """The service that knows people's addresses and languages, if the settings name one."""
    directory = settings.directory
    if directory is None:
        return None
    seconds = directory.timeout_seconds

    async def fetch(url: str) -> tuple[int, bytes] | str:
        answer = await http.post(HttpRequest(url=url, method="GET", timeout_seconds=seconds))
        if isinstance(answer, HttpAnswer):
            return (answer.status, answer.body) if answer.complete else "the directory's answer was cut short"
        # The error of the network alone does not name the directory.
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
        # The client must not repeat a call that Redis may have carried out.
        retry=Retry(NoBackoff(), 0),
    )
    return outliving_resets(Redis.from_pool(pool))


def _wire(settings: Settings) -> BlueprintWire:
    module = importlib.import_module(f"carillon.blueprints.{settings.blueprint.replace('-', '_')}.wire")
    if hasattr(module, "open_stream"):
        found: BlueprintWire = module.open_stream(settings.priorities, new_id)
        return found
    file = settings.catalogue.file
    extra = None if file is None or file.startswith("blueprint:") else Path(file).expanduser()
    wire: BlueprintWire = module.open_wire(extra, settings.admin_emails)
    return wire
