"""Reliable queues in Redis for any team's own work: declare a policy, register a handler, enqueue, run.

queues = Queues("redis://127.0.0.1:6379/0", policies={"q:shop:invoice": Policy(max_retries=3)})

@queues.handler("q:shop:invoice")
async def invoice(job: Job) -> None: ...

await queues.enqueue("q:shop:invoice", {"order": 7}, action="write")
await queues.run(stop)
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from carillon.coalesce import Coalescer
from carillon.compose.queues import QueueParts, QueueRuntime, QueueSettings, QueueTools
from carillon.compose.redis_topology import refuse_cluster
from carillon.domain.errors import BadIntent, ConfigurationError
from carillon.domain.events import Event, LeaseLost, RouteAttempted, Trouble, event_word
from carillon.domain.jobs import (
    BadMessage,
    Envelope,
    JobLedger,
    JobMessage,
    Permanent,
    encode_message,
    message_id,
    moment,
    read_message,
)
from carillon.domain.ports import Observer
from carillon.domain.queue_events import FailedTrimmed, MessageOverdue, MessageSwept, QueueDeep
from carillon.domain.queues import Depth, FailedMessage, Policy, QueueUpkeep
from carillon.domain.timing import read_moment, read_seconds
from carillon.ledger.opening import open_ledger
from carillon.ledger.redis.lists_upkeep import Put
from carillon.outbound.targets import Targets
from carillon.providers.handlers import EffectBusy, Handler, Job
from carillon.system import SystemClock, new_id, system_dice
from carillon.version import old_names

__all__ = [
    "BadMessage",
    "Depth",
    "EffectBusy",
    "FailedMessage",
    "Job",
    "JobMessage",
    "Permanent",
    "Policy",
    "QueueUpkeep",
    "Queues",
]

LONGEST_MESSAGE = 1024 * 1024
LONGEST_DELAY = 10 * 366 * 86_400.0
ENQUEUE_BATCH = 200
MOST_WAITING = 100_000
_WORTH_A_WARNING = Trouble | LeaseLost | QueueDeep | MessageSwept | MessageOverdue | FailedTrimmed

F = TypeVar("F", bound=Callable[[Job], Awaitable[None] | None])


class Queues:
    """Producers and workers of list queues; one for a process."""

    def __init__(
        self,
        redis_url: str,
        *,
        database_url: str | None = None,
        ledger: JobLedger | None = None,
        policies: Mapping[str, Policy] | None = None,
        service: str = "carillon",
        beat: QueueUpkeep | None = None,
        observer: Observer | None = None,
        **options: Any,  # noqa: ANN401 - fields of QueueSettings
    ) -> None:
        """`options` are concurrency, batch, threads, poll_seconds, drain_seconds, first_claims, allow_unsafe.

        `database_url` (or a `ledger` that is open already) keeps job logs and effects in SQL; the option
        `allow_migration` accepts a database that a newer release has migrated so far.
        """
        self._policies = {name: policy.checked(name) for name, policy in (policies or {}).items()}
        self._settings = QueueSettings(
            redis_url=redis_url, service=service, beat=(beat or QueueUpkeep()).checked(), **options
        )
        self._tools = QueueTools(
            clock=SystemClock(), dice=system_dice, new_id=new_id, observe=observer or told_by_logging()
        )
        self._database_url = database_url
        self._given_ledger = ledger
        self._handlers: dict[str, Handler] = {}
        self._parts: QueueParts | None = None
        self._opening = asyncio.Lock()
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._puts: Coalescer[Put, float | BadMessage] = Coalescer(
            self._put, max_batch=ENQUEUE_BATCH, max_pending=MOST_WAITING
        )

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            # A `with` that does not begin has no end: leave no connection behind.
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def handlers(self) -> dict[str, str]:
        """Every queue with a handler here, and the handler's name."""
        return {queue: handler.name for queue, handler in self._handlers.items()}

    def policy(self, queue: str) -> Policy:
        """The queue's own policy, else the one under `*`, else the default."""
        return self._policies.get(queue) or self._policies.get("*") or Policy()

    def handler(self, queue: str, *, action: str = "job") -> Callable[[F], F]:
        """Register the handler of a queue; `action` is the one of messages that name none."""
        if not queue or queue.endswith((":processing", ":delayed", ":failed")):
            raise ConfigurationError(f"{queue!r} is not the name of a queue")
        if queue in self._handlers:
            raise ConfigurationError(f"{queue}: has a handler already, {self._handlers[queue].name}")

        def register(function: F) -> F:
            hold = self.policy(queue).visibility_timeout_seconds
            self._handlers[queue] = Handler(function, action, hold)
            return function

        return register

    async def open(self) -> None:
        """Connect; without this call the first other call connects, and raises then what is wrong."""
        async with self._opening:
            if self._parts is not None:
                return
            ledger = self._given_ledger
            if ledger is None and self._database_url is not None:
                opened = await open_ledger(
                    self._database_url,
                    allow_unsafe=self._settings.allow_unsafe,
                    allow_migration=self._settings.allow_migration,
                )
                self._closing.append(opened.aclose)
                await opened.migrate()
                ledger = opened
            parts = QueueParts(self._settings, self._tools, ledger)
            try:
                # Producers and workers alike: a Redis Cluster would take messages until one of its slots moves.
                await refuse_cluster(parts.redis, "queues")
            except ConfigurationError:
                await parts.redis.aclose()
                raise
            self._parts = parts
            parts.start()

    @property
    def targets(self) -> Targets:
        """What operators have paused; these queues must be open."""
        if self._parts is None:
            raise ConfigurationError("these queues are not open")
        return self._parts.targets

    async def check(self) -> dict[str, Any]:
        """Raise Unavailable while Redis cannot be reached, ConfigurationError if it may drop messages."""
        await (await self._opened()).check()
        return {}

    async def aclose(self) -> None:
        """Write the last job logs and close the connections."""
        if self._parts is not None:
            await self._parts.aclose()
            self._parts = None
        while self._closing:
            await self._closing.pop()()

    async def enqueue(
        self,
        queue: str,
        payload: Mapping[str, Any],
        *,
        action: str,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        id: str | None = None,  # noqa: A002 - the envelope's own word
        delay_seconds: float = 0.0,
        ttl: float | str | None = None,
        expires_at: str | dt.datetime | None = None,
        scheduled_for: str | dt.datetime | None = None,
    ) -> str:
        """Put a message into a queue; returns its id once Redis has it. Raises BadMessage or LedgerUnavailable.

        After `ttl` (seconds, or a duration such as `10m`) or `expires_at` no handler runs it any more, and none before
        `scheduled_for`. What a notification asks for about its person has no meaning for a job: its handler sends it.
        """
        if not action:
            raise BadMessage("action: must be given")
        starts = _moment(scheduled_for, "scheduled_for")
        envelope = Envelope(
            id=id or new_id(),
            action=action,
            correlation_id=correlation_id,
            idempotency_key=idempotency_key,
            created_at=moment(self._tools.clock.wall()),
            max_attempts=max_attempts,
            expires_at=self._expiry(ttl, _moment(expires_at, "expires_at")),
            scheduled_for=UNSET if starts is None else moment(starts),
            payload=dict(payload),
        )
        waits = 0.0 if starts is None else starts - self._tools.clock.wall()
        # A delay that cannot be is refused below, whatever the schedule says.
        delay = max(delay_seconds, waits) if delay_seconds >= 0.0 else delay_seconds
        return await self._enqueue(queue, encode_message(envelope, LONGEST_MESSAGE), delay)

    def _expiry(self, ttl: float | str | None, at: float | None) -> str | UnsetType:
        try:
            seconds = read_seconds(ttl, "ttl")
        except BadIntent as error:
            raise BadMessage(str(error)) from None
        ends = [] if at is None else [at]
        ends += [] if seconds is None else [self._tools.clock.wall() + seconds]
        return moment(min(ends)) if ends else UNSET

    async def enqueue_raw(self, queue: str, message: Mapping[str, Any], *, delay_seconds: float = 0.0) -> str:
        """Put a dict into a queue as it is; its id is its `id`, else the SHA-256 of its text."""
        return await self._enqueue(queue, encode_message(dict(message), LONGEST_MESSAGE), delay_seconds)

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Run the handlers of all queues until `stop` is set; then finish the runs under way."""
        if not self._handlers:
            raise ConfigurationError("no queue has a handler: register one before run()")
        parts = await self._opened()
        policies = {queue: self.policy(queue) for queue in self._handlers}
        await QueueRuntime(parts, policies, dict(self._handlers)).run(stop, ready)

    async def inspect(self, queues: Collection[str] | None = None) -> dict[str, Depth]:
        """The depths of these queues, or of all queues with a handler or a policy."""
        parts = await self._opened()
        known = dict.fromkeys([*self._handlers, *(name for name in self._policies if name != "*")])
        return await parts.desk.depths(list(known if queues is None else queues))

    async def failed(self, queue: str, limit: int = 100, after: tuple[int, str] | None = None) -> list[FailedMessage]:
        """Failed messages of a queue, newest first, as last claimed; `after` is the `older` and id of one of them."""
        return await (await self._opened()).desk.failed(queue, limit, after)

    async def requeue(self, queue: str, ids: Collection[str] | None = None, limit: int | None = None) -> int:
        """Return failed messages to the queue with a new budget, oldest first; returns how many."""
        return await (await self._opened()).desk.requeue(queue, ids, limit)

    async def job_logs(self, limit: int = 50, **filters: str | None) -> list[dict[str, Any]]:
        """Rows of `job_logs`, newest first; filters are queue, status, correlation_id and idempotency_key."""
        parts = await self._opened()
        if parts.ledger is None:
            raise ConfigurationError("job logs are kept in SQL only with a database_url")
        rows = await parts.ledger.job_logs(filters, limit)
        # The place is for cursors only.
        return [{name: value for name, value in row.items() if name != "place"} for row in rows]

    async def _opened(self) -> QueueParts:
        if self._parts is None:
            await self.open()
        if self._parts is None:
            raise ConfigurationError("these queues are closed")
        return self._parts

    async def _enqueue(self, queue: str, raw: bytes, delay_seconds: float) -> str:
        if not queue:
            raise BadMessage("queue: say which one")
        if not 0.0 <= delay_seconds <= LONGEST_DELAY:
            raise BadMessage(f"delay_seconds: {delay_seconds} is not between 0 and {LONGEST_DELAY:g}")
        parts = await self._opened()
        own_id = message_id(raw)
        put_at = await self._puts.add(Put(queue, raw, delay_seconds))
        if isinstance(put_at, BadMessage):
            raise put_at
        handler = self._handlers.get(queue)
        message = read_message(raw, own_id, handler.action if handler else "job")
        if message is not None:
            parts.logs.received(queue, message, put_at)
        return own_id

    async def _put(self, puts: Sequence[Put]) -> list[float | BadMessage]:
        return await (await self._opened()).desk.enqueue(puts)


def _moment(said: str | dt.datetime | None, name: str) -> float | None:
    try:
        unix_ms = read_moment(said, name)
    except BadIntent as error:
        raise BadMessage(str(error)) from None
    return None if unix_ms is None else unix_ms / 1000


def told_by_logging() -> Observer:
    """The observer of a program that brings none: logs failures as warnings, everything else at debug level."""
    logger = logging.getLogger(__name__)

    def observe(event: Event) -> None:
        failed = isinstance(event, RouteAttempted) and event.verdict != "finish"
        level = logging.WARNING if failed or isinstance(event, _WORTH_A_WARNING) else logging.DEBUG
        if logger.isEnabledFor(level):
            logger.log(level, "%s", _sentence(event))

    return observe


def _sentence(event: Event) -> str:
    if not isinstance(event, RouteAttempted):
        said = {name: value for name, value in msgspec.to_builtins(event).items() if name != "type"}
        return f"{event_word(event)}: " + ", ".join(f"{name}={value}" for name, value in said.items())
    what = f"{event.channel} {event.notification_type} {event.notification_id}, run {event.attempt}"
    if event.verdict == "finish":
        return f"{what}: done in {event.duration_ms:.1f} ms"
    after = "given up" if event.delay_seconds is None else f"again in {event.delay_seconds:.1f} s"
    return f"{what}: {event.error}; {after}"


__getattr__ = old_names(__name__, {"Beat": QueueUpkeep})
