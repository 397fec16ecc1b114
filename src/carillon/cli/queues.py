"""`carillon queues`: list, show and requeue messages of list queues, in a blueprint or in any Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from carillon.cli.by_hand import confirmed, is_there, opened, who
from carillon.cli.options import AsJson, Config, blueprint_option, load_for, print_json
from carillon.cli.words import counted
from carillon.compose import Ledger
from carillon.config.policies import EVERY_OTHER, queue_policies
from carillon.config.settings import Settings
from carillon.domain.admin import AdminAction
from carillon.domain.errors import CarillonError, ConfigurationError, LedgerUnavailable
from carillon.domain.jobs import LOG_KEY
from carillon.domain.queues import Depth, Policy
from carillon.upkeep.api.queues import count_failed, failed_view, job_log_view
from carillon.upkeep.api.queues_wire import StatusWord

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
    str | None,
    typer.Option("--redis", metavar="URL", help="The Redis of your own queues; the command then reads no settings."),
]
_MANY = 500
_LOOKED_AT = 10_000
_SOME = 5


class NoSuchQueue(CarillonError):
    """There is no queue of this name."""


class QueueAccess:
    """The queues of one Redis, and their ledger if there is one."""

    def __init__(self, blueprint: str | None, config: Config, redis: str | None) -> None:
        self.settings: Settings | None = None
        self._has_ledger = False
        self.policies: dict[str, Policy] = {}
        if redis is None:
            self.settings = load_for(BLUEPRINT, blueprint, config)
            self._has_ledger = is_there(self.settings.ledger.url)
            redis = self.settings.redis.location()
            self.policies = queue_policies(self.settings.queue, self.settings.drill.time_scale)
        if redis is None:
            raise ConfigurationError("redis.url (REDIS_URL): set the Redis of the queues, or use --redis")
        self._url = redis

    def run(self, work: Callable[["Queues"], Awaitable[Answer]]) -> Answer:
        """Open the queues for one command."""
        # Imported here, because other commands start faster without it.
        from carillon.queues import Queues  # noqa: PLC0415 - as said

        async def working() -> Answer:
            async with Queues(self._url, policies=self.policies, allow_unsafe=True) as queues:
                return await work(queues)

        return asyncio.run(working())

    async def names(self, chosen: Collection[str]) -> list[str]:
        """The named queues, else those of the settings, else those in Redis."""
        if chosen:
            return [_checked(name) for name in chosen]
        known = [name for name in self.policies if name != EVERY_OTHER]
        return known or await self._present()

    async def known(self, queues: "Queues", queue: str) -> Depth:
        """The depths of a queue; raises NoSuchQueue for an unknown name."""
        depth = (await queues.inspect([_checked(queue)]))[queue]
        if queue not in self.policies and not any((depth.main, depth.processing, depth.delayed, depth.failed)):
            raise NoSuchQueue(f"there is no queue {queue}; `carillon queues list` shows all")
        return depth

    async def entries(self, most: int) -> list[dict[str, Any]]:
        """The newest entries of the job log in Redis; entries of other programs are skipped."""
        async with self._client() as redis:
            return [found for text in await redis.lrange(LOG_KEY, 0, most - 1) if (found := _entry(text))]

    async def with_ledger(self, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer | None:
        """The ledger; None if it does not exist. This command creates none."""
        if self.settings is None or not self._has_ledger:
            return None
        async with opened(self.settings) as ledger:
            return await work(ledger)

    async def note(self, queue: str, reason: str, detail: dict[str, Any]) -> None:
        """Record in the audit trail who requeued messages."""
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
            raise NoSuchQueue(f"{name} is a part of a queue: name {name.removesuffix(variant)}")
    return name


app = typer.Typer(help="List queues in Redis, show their messages, and requeue failed ones.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(help="The queue's name, e.g. q:pay:refund_initiation.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many to show.")]


@app.command("list")
def list_(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of queues; by default all queues in the settings.")
    ] = None,
    redis: RedisUrl = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the depths of queues, and the age of each queue's next message."""
    place = QueueAccess(blueprint, config, redis)

    async def look(queues: "Queues") -> dict[str, Depth]:
        return await queues.inspect(await place.names(names or []))

    found = place.run(look)
    if as_json:
        _print_json({"queues": [{"queue": name, **_plain(depth)} for name, depth in found.items()]})
        return
    table = Table()
    table.add_column("queue", overflow="fold")
    for heading in ("main", "processing", "delayed", "failed", "oldest"):
        table.add_column(heading, justify="right")
    for name, depth in found.items():
        numbers = (depth.main, depth.processing, depth.delayed, depth.failed)
        table.add_row(name, *(str(number) for number in numbers), _age(depth))
    Console(emoji=False).print(table)


@app.command()
def show(
    queue: Queue,
    redis: RedisUrl = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show one queue: its depths, its policy, and the newest failed messages."""
    place = QueueAccess(blueprint, config, redis)

    async def look(queues: "Queues") -> dict[str, Any]:
        depth = await place.known(queues, queue)
        failed = [_plain(failed_view(one)) for one in await queues.failed(queue, _SOME)]
        return {"queue": queue, **_plain(depth), "policy": _plain(queues.policy(queue)), "newest_failed": failed}

    found = place.run(look)
    if as_json:
        _print_json(found)
        return
    console = Console(emoji=False)
    console.print(queue, markup=False)
    for name in ("main", "processing", "delayed", "failed", "oldest_seconds"):
        console.print(f"  {name:15} {found[name]}", markup=False)
    console.print("policy", markup=False)
    for name, value in found["policy"].items():
        console.print(f"  {name:27} {value}", markup=False)
    _print_failed(console, found["newest_failed"])


@app.command()
def failed(
    queue: Queue,
    limit: Limit = 50,
    redis: RedisUrl = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the newest failed messages of a queue, as they were last claimed."""
    place = QueueAccess(blueprint, config, redis)

    async def look(queues: "Queues") -> dict[str, Any]:
        depth = await place.known(queues, queue)
        messages = [_plain(failed_view(one)) for one in await queues.failed(queue, limit)]
        return {"queue": queue, "total": depth.failed, "messages": messages}

    found = place.run(look)
    if as_json:
        _print_json(found)
        return
    console = Console(emoji=False)
    console.print(f"{len(found['messages'])} of {found['total']} failed messages of {queue}", markup=False)
    _print_failed(console, found["messages"])


@app.command()
def requeue(  # noqa: PLR0917 - a command line has many options
    queue: Queue,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of messages; leave them out with --all.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many, the oldest first; all by default.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason for the audit trail.")] = "requeued from the command line",
    redis: RedisUrl = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every failed message of the queue.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Requeue failed messages, oldest first: at the end of their queue, with a fresh budget."""
    if bool(ids) == (everything or limit is not None):
        raise NoSuchQueue("name ids of messages, --limit, or --all")
    place = QueueAccess(blueprint, config, redis)

    async def work(queues: "Queues") -> dict[str, Any]:
        total = (await place.known(queues, queue)).failed
        found = await count_failed(queues, queue, total, ids) if ids else total
        number = found if limit is None else min(found, limit)
        requeued = 0
        question = f"Requeue {counted(number, 'failed message')}?"
        if number and not dry_run and confirmed(number, question, yes=yes or as_json):
            await place.note(queue, reason, {"ids": ids, "limit": limit, "found": found})
            requeued = await _requeue(queues, queue, ids, number)
        return {"queue": queue, "found": found, "requeued": requeued, "dry_run": dry_run}

    done = place.run(work)
    if as_json:
        _print_json(done)
        return
    found = counted(done["found"], "failed message")
    typer.echo(f"{found} found, {done['requeued']} requeued" + (" (dry run)" if dry_run else ""))


@app.command()
def logs(  # noqa: PLR0917 - a command line has many options
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    status: Annotated[str | None, typer.Option(help="Only this status, e.g. failed.")] = None,
    correlation_id: Annotated[str | None, typer.Option("--correlation-id", help="Only this correlation id.")] = None,
    idempotency_key: Annotated[str | None, typer.Option("--idempotency-key", help="Only this idempotency key.")] = None,
    limit: Limit = 50,
    redis: RedisUrl = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    entries: Annotated[bool, typer.Option("--entries", help="Every step, from q:log:jobs in Redis.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the job log, newest first: one row per message from SQL, or with --entries every step from Redis."""
    place = QueueAccess(blueprint, config, redis)
    filters = {
        "queue": queue,
        "status": status,
        "correlation_id": correlation_id,
        "idempotency_key": idempotency_key,
    }
    found = (_entries if entries or place.settings is None else _rows)(place, filters, limit)
    if as_json:
        _print_json({"job_logs": found})
        return
    console = Console(emoji=False)
    for row in found:
        when = str(row.get("updated_at") or row.get("timestamp"))[:19]
        why = row.get("last_error") or (row.get("info") or {}).get("error") or ""
        said = f"{row['status']:10} {row['queue']} {row['message_id']} {row['action']} #{row['attempts']} {why}"
        console.print(f"{when}  {said}", markup=False, highlight=False, soft_wrap=True)


def _rows(place: QueueAccess, filters: dict[str, str | None], limit: int) -> list[dict[str, Any]]:
    known = StatusWord.__args__  # type: ignore[attr-defined]
    if filters["status"] not in (None, *known):
        raise NoSuchQueue(f"--status {filters['status']}: choose among {', '.join(known)}")

    async def look(_queues: "Queues") -> list[dict[str, Any]] | None:
        return await place.with_ledger(lambda ledger: ledger.job_logs(filters, limit))

    found = place.run(look)
    if found is None:
        raise NoSuchQueue("there is no ledger yet; --entries shows the steps that Redis has kept")
    return [_plain(job_log_view(row)) for row in found]


def _entries(place: QueueAccess, filters: dict[str, str | None], limit: int) -> list[dict[str, Any]]:
    if filters["correlation_id"] or filters["idempotency_key"]:
        raise NoSuchQueue("entries in Redis have neither correlation ids nor keys: leave out --entries and --redis")

    async def look(_queues: "Queues") -> list[dict[str, Any]]:
        return await place.entries(_LOOKED_AT)

    found = place.run(look)
    wanted = {name: value for name, value in filters.items() if value is not None}
    return [entry for entry in found if wanted.items() <= entry.items()][:limit]


async def _requeue(queues: "Queues", queue: str, ids: list[str] | None, number: int) -> int:
    if ids:
        return await queues.requeue(queue, ids)
    done = 0
    with Progress(console=Console(stderr=True, emoji=False), disable=number <= _MANY) as progress:
        bar = progress.add_task("requeueing", total=number)
        # Stop at the number counted before, so that messages that fail again are not requeued twice.
        while done < number:
            moved = await queues.requeue(queue, None, min(_MANY, number - done))
            if not moved:
                break
            done += moved
            progress.advance(bar, moved)
    return done


def _print_failed(console: Console, messages: list[dict[str, Any]]) -> None:
    for one in messages:
        about = one["text"] if one["payload"] is None else msgspec.json.encode(one["payload"]).decode()
        said = f"{one['message_id']} {one['action'] or ''} #{one['attempts'] or 0} {about}"
        console.print(f"  {said}", markup=False, highlight=False, soft_wrap=True)


def _age(depth: Depth) -> str:
    return "" if depth.oldest_seconds is None else f"{depth.oldest_seconds:,.0f} s"


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def _print_json(value: dict[str, Any]) -> None:
    print_json(value)
