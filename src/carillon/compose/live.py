"""Live streams of one process, built from their settings."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from carillon.compose import access, from_settings
from carillon.compose.ledger import LedgerPart, parts_needed
from carillon.compose.part import Loop, Part
from carillon.compose.process import Process
from carillon.compose.receipts import receipt_rules
from carillon.compose.templates import page_rules
from carillon.config.sections import SseSettings
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError, LedgerUnavailable
from carillon.domain.receipts import Receipt
from carillon.domain.streams import NotifyBus
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.notify import PostgresBus
from carillon.ledger.postgres.pools import Address
from carillon.ledger.statements import load
from carillon.live import endpoints as streams_api
from carillon.live.attendance import Attendance
from carillon.live.choices import InboxChoices
from carillon.live.hub import Hub
from carillon.live.inbox import KIND
from carillon.live.reader import StreamRules
from carillon.live.relay import ReplicaRelay
from carillon.live.sse import Live
from carillon.receipts.callbacks import observe_receipts
from carillon.upkeep import health
from carillon.upkeep.console import api as console_api
from carillon.upkeep.health import Check, Checks, degraded
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import Endpoint, ServerSettings
from carillon.web.application import ASGI
from carillon.web.auth import Tickets

if TYPE_CHECKING:
    from carillon.web.h11_server import StreamServer


LOOK_SECONDS = 1.0


class LiveStreams:
    """The seats of this process, their relay, attendance and endpoints."""

    bus_check: Check | None = None

    def __init__(self, process: Process, ledger: Ledger, settings: SseSettings, post: NotifyBus | None) -> None:
        self.own_listener = process.settings.sse is not None
        """Whether streams are what this process is for; the inbox alone shares the listener of the API."""
        replica = uuid.uuid4().hex
        # Without a notify bus no other process reads this ledger: an SQLite file has one process.
        presence = None if post is None else ledger
        self._settings = settings
        self._process = process
        self._ledger = ledger
        self.attendance = Attendance(
            ledger=ledger,
            presence=presence,
            replica=replica,
            seconds=settings.presence_seconds,
            clock=process.clock,
            observer=process.observe,
        )
        self.hub = Hub(
            max_seats=settings.max_connections,
            max_per_key=settings.max_per_key,
            on_change=self.attendance.changed,
        )
        self.attendance.watch(self.hub)
        relay = None if post is None else ReplicaRelay(self.hub, post, replica)
        self.live = Live(self.hub, ledger, replica, presence, relay, settings.buffer)
        jwt = access.token_settings(process.settings)
        self.tickets = Tickets(
            ledger,
            seconds=settings.ticket_seconds,
            lifetime_seconds=settings.lifetime_seconds,
            revoked=None if jwt is None else jwt.revoked,
        )

    def endpoints(self) -> list[Endpoint]:
        """Streams and inboxes, and their page."""
        settings = self._settings
        rules = StreamRules(
            heartbeat_seconds=settings.heartbeat_seconds,
            lifetime_seconds=settings.lifetime_seconds,
            recheck_seconds=settings.recheck_seconds,
            retry_ms=settings.retry_ms,
            buffer=settings.buffer,
        )
        choices = InboxChoices(self._ledger, page_rules(self._process.settings))
        found = streams_api.endpoints(
            self.live,
            choices,
            tickets=self.tickets,
            rules=rules,
            clock=self._process.clock,
            take_receipts=self._receipts(),
        )
        if self._process.settings.http.console and self.own_listener:
            found += console_api.stream_endpoints(
                self.hub.readers, settings.max_connections, settings.heartbeat_seconds
            )
        return [*found, *(streams_api.demo_endpoints() if settings.demo else [])]

    def _receipts(self) -> streams_api.TakeReceipts:
        """What a person reads here counts as a vendor's receipt does."""
        rules = receipt_rules(self._process.settings, self._process.chains)

        async def take(receipts: Sequence[Receipt]) -> None:
            observe_receipts(await self._ledger.take_receipts(receipts, rules), self._process.observe)

        return take

    def server(self, application: ASGI, where: ServerSettings) -> "StreamServer":
        """The listener for slow readers, with room for the allowed number of connections."""
        from carillon.web.h11_server import StreamServer  # noqa: PLC0415 - only streams need its library

        # Streams have their own limit: the connections of all other requests come on top.
        room = self._settings.max_connections + where.max_connections
        return StreamServer(
            application,
            msgspec.structs.replace(where, max_connections=room, write_seconds=self._settings.write_seconds),
        )

    async def look(self) -> None:
        """Look again and again for what other processes of one SQLite file have written to the logs read here."""
        while True:
            await self._process.clock.sleep(LOOK_SECONDS)
            # Without the ledger the next look finds it.
            with suppress(LedgerUnavailable):
                for log, bounds in (await self._ledger.bounds(self.hub.people())).items():
                    self.hub.grown(log, bounds.newest)

    async def farewell(self) -> None:
        """Remove this process from the attendance list."""
        await self.attendance.leave()


class LivePart(Part):
    """The streams of the people who read here; a process has them with `[sse]`, or with an inbox among its channels."""

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger
        self.streams: LiveStreams | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        self.streams = open_live(self._process, self._ledger.ledger, stack)

    @property
    def seats(self) -> Live | None:
        """What the provider `sse` writes to; None if the process has no streams."""
        return None if self.streams is None else self.streams.live

    def run(self) -> Mapping[str, Loop]:
        if self.streams is None:
            return {}
        relay = self.streams.live.relay
        loops: dict[str, Loop] = {"presence": self.streams.attendance.run}
        if relay is not None:
            loops["stream_relay"] = relay.run
        elif self._process.share_port:
            loops["stream_look"] = self.streams.look
        return loops

    def rest(self, seconds: float) -> None:
        del seconds
        if self.streams is not None:
            # Readers reconnect, to another process if there is one.
            self.streams.hub.close()

    def checks(self) -> Mapping[str, Check]:
        bus = None if self.streams is None else self.streams.bus_check
        return {} if bus is None else {"redis": degraded(bus)}

    def gauges(self, metrics: Metrics) -> None:
        if self.streams is not None:
            hub = self.streams.hub
            metrics.watch_streams(lambda: hub.taken)

    def endpoints(self) -> list[Endpoint]:
        return [] if self.streams is None else self.streams.endpoints()

    def pages(self) -> Sequence[str]:
        return ("streams",) if self.streams is not None and self.streams.own_listener else ()

    def health(self, checks: Checks) -> Endpoint | None:
        if self.streams is None or not self.streams.own_listener:
            return None
        hub = self.streams.hub
        return health.of_streams(checks, lambda: hub.taken)


def stream_settings(settings: Settings) -> SseSettings | None:
    """How a process serves streams; without `[sse]` those of its inbox, in half of the listener's connections."""
    if settings.sse is not None:
        return settings.sse
    used = {name for chain in from_settings.chains(settings).values() for name in chain}
    kinds = {settings.providers[name].get("kind") for name in used}
    if KIND not in kinds or "streams" not in parts_needed(settings):
        return None
    usual = SseSettings()
    return msgspec.structs.replace(
        usual, max_connections=min(usual.max_connections, settings.http.max_connections // 2)
    )


def open_live(process: Process, ledger: Ledger, stack: AsyncExitStack) -> LiveStreams | None:
    """Open the streams; None for a process that has neither `[sse]` nor an inbox."""
    settings = stream_settings(process.settings)
    if settings is None:
        return None
    post, check = _post(process, ledger, stack)
    found = LiveStreams(process, ledger, settings, post)
    found.bus_check = check
    stack.push_async_callback(found.farewell)
    return found


def _post(process: Process, ledger: Ledger, stack: AsyncExitStack) -> tuple[NotifyBus | None, Check | None]:
    """The bus on which processes announce new entries, and the check of the Redis that carries it."""
    if not isinstance(ledger, PostgresLedger):
        if process.share_port and process.settings.sse is not None:
            raise ConfigurationError("ledger.url: streams of several processes need PostgreSQL, not an SQLite file")
        return None, None
    url = process.settings.redis.location()
    if url is None:
        return PostgresBus(Address.parse(process.settings.ledger.url), load("postgres")), None
    from redis.asyncio import Redis  # noqa: PLC0415 - slow to load, and only fleets have it

    from carillon.compose.redis_resets import outliving_resets  # noqa: PLC0415 - as said
    from carillon.live.relay import RedisBus  # noqa: PLC0415 - as said

    seconds = process.settings.redis.operation_timeout_seconds
    redis = outliving_resets(Redis.from_url(url, socket_connect_timeout=seconds))
    stack.push_async_callback(redis.aclose)
    prefix = f"streams:{process.settings.service}:"

    async def ask() -> dict[str, Any]:
        await redis.ping()
        return {}

    return RedisBus(redis, prefix=prefix, clock=process.clock, observer=process.observe), ask
