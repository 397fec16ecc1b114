"""Live streams of one process, built from their settings."""

import resource
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from carillon.compose import trust
from carillon.compose.process import Process
from carillon.compose.telemetry import Telemetry
from carillon.config.sse import Sse
from carillon.domain.errors import ConfigurationError
from carillon.domain.live import Post
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.notify_bus import PostgresPost
from carillon.ledger.postgres.pools import Address
from carillon.ledger.statements import load
from carillon.live import endpoints as streams_api
from carillon.live import page as streams_page
from carillon.live.attendance import Attendance
from carillon.live.hub import Hub
from carillon.live.reader import StreamRules
from carillon.live.relay import Relay
from carillon.live.sse import Live
from carillon.upkeep import health
from carillon.upkeep.console import streams as console_streams
from carillon.upkeep.health import Check
from carillon.web import Endpoint, ServerSettings
from carillon.web.application import ASGI
from carillon.web.tickets import Tickets

if TYPE_CHECKING:
    from carillon.web.stream_server import StreamServer

Loop = Callable[[], Awaitable[None]]
OTHER_CONNECTIONS = 1000
"""Beside streams: everything else that is asked over HTTP."""
OTHER_FILES = 512


class LiveStreams:
    """The seats of this process, and everything around them."""

    def __init__(self, process: Process, ledger: Ledger, settings: Sse, post: Post | None) -> None:
        replica = uuid.uuid4().hex
        # Without a post nobody else reads this ledger: an SQLite file has one process.
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
        relay = None if post is None else Relay(self.hub, post, replica)
        self.live = Live(self.hub, ledger, replica, presence, relay)
        jwt = trust.token_settings(process.settings)
        self.tickets = Tickets(
            ledger,
            seconds=settings.ticket_seconds,
            lifetime_seconds=settings.lifetime_seconds,
            revoked=None if jwt is None else jwt.revoked,
        )

    def endpoints(self, checks: dict[str, Check]) -> list[Endpoint]:
        """Streams and inboxes, their page, and document 004's health."""
        settings = self._settings
        rules = StreamRules(
            heartbeat_seconds=settings.heartbeat_seconds,
            lifetime_seconds=settings.lifetime_seconds,
            recheck_seconds=settings.recheck_seconds,
            retry_ms=settings.retry_ms,
            buffer=settings.buffer,
        )
        found = streams_api.endpoints(
            seats=self.hub, ledger=self._ledger, tickets=self.tickets, rules=rules, clock=self._process.clock
        )
        found.append(health.of_streams(checks, lambda: self.hub.taken))
        if self._process.settings.http.console:
            found += console_streams.endpoints(console_streams.Gallery(self.hub, settings.max_connections))
        return [*found, *(streams_page.endpoints() if settings.demo else [])]

    def server(self, application: ASGI, where: ServerSettings) -> "StreamServer":
        """A listener that waits for slow readers, with room for everybody who may read."""
        from carillon.web.stream_server import StreamServer  # noqa: PLC0415 - only streams need its library

        room = self._settings.max_connections + OTHER_CONNECTIONS
        _allow_files(room + OTHER_FILES)
        return StreamServer(
            application,
            msgspec.structs.replace(where, max_connections=room, write_seconds=self._settings.write_seconds),
        )

    async def farewell(self) -> None:
        """Nobody reads here any more."""
        await self.attendance.farewell()


def open_live(process: Process, ledger: Ledger, stack: AsyncExitStack, *, alone: bool) -> LiveStreams | None:
    """None where the settings have no section for it; `alone` says that no other process shares the port."""
    settings = process.settings.sse
    if settings is None:
        return None
    found = LiveStreams(process, ledger, settings, _post(process, ledger, stack, alone=alone))
    stack.push_async_callback(found.farewell)
    return found


def loops(streams: LiveStreams | None, telemetry: Telemetry) -> list[tuple[str, Loop]]:
    """What has to run, with the name that trouble is reported under; exports count the streams from here on."""
    if streams is None:
        return []
    telemetry.metrics.watch_streams(lambda: streams.hub.taken)
    relay = streams.live.relay
    relaying: list[tuple[str, Loop]] = [] if relay is None else [("stream_relay", relay.run)]
    return [("presence", streams.attendance.run), *relaying]


def seats(streams: LiveStreams | None) -> Live | None:
    """What the provider writes to."""
    return None if streams is None else streams.live


def tickets(streams: LiveStreams | None) -> Tickets | None:
    """What opens a stream instead of a token."""
    return None if streams is None else streams.tickets


def endpoints(streams: LiveStreams | None, checks: dict[str, Check]) -> list[Endpoint]:
    """What is served of it over HTTP."""
    return [] if streams is None else streams.endpoints(checks)


def close(streams: LiveStreams | None) -> None:
    """Ask everybody to read elsewhere."""
    if streams is not None:
        streams.hub.close()


def _post(process: Process, ledger: Ledger, stack: AsyncExitStack, *, alone: bool) -> Post | None:
    if not isinstance(ledger, PostgresLedger):
        if not alone:
            raise ConfigurationError("ledger.url: streams of several processes need PostgreSQL, not an SQLite file")
        return None
    url = process.settings.redis.location()
    if url is None:
        return PostgresPost(Address.parse(process.settings.ledger.url), load("postgres"))
    from redis.asyncio import Redis  # noqa: PLC0415 - slow to load, and only fleets have it

    from carillon.live.redis_bus import RedisPost  # noqa: PLC0415 - as said

    seconds = process.settings.redis.operation_timeout_seconds
    redis = Redis.from_url(url, socket_connect_timeout=seconds)
    stack.push_async_callback(redis.aclose)
    prefix = f"streams:{process.settings.service}:"
    return RedisPost(redis, prefix=prefix, clock=process.clock, observer=process.observe)


def _allow_files(wanted: int) -> None:
    """As many open files as there may be connections, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
