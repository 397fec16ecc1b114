"""What `carillon doctor` asks of each part."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal

import msgspec

from carillon.compose import parts
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError
from carillon.domain.people import NotAnswered
from carillon.domain.ports import Probed, Provider
from carillon.providers import Tools
from carillon.system import SystemClock, system_dice

if TYPE_CHECKING:
    from carillon.compose.redis_stream import Streams

PATIENCE_SECONDS = 5.0
MAX_SKEW_SECONDS = 2.0
NOBODY = "carillon-doctor"
"""Whom a directory is asked about: to be sure that there is no such person is an answer."""


class Finding(msgspec.Struct, frozen=True):
    """What is the matter with one part."""

    part: str
    verdict: Literal["ok", "warn", "ill"]
    words: str

    def plain(self) -> dict[str, str]:
        return {"part": self.part, "verdict": self.verdict, "words": self.words}


async def examine(settings: Settings) -> list[Finding]:
    """Ask every part, one after the other; one that is ill does not stop the others from being asked."""
    checks: list[tuple[str, Callable[[Settings], Awaitable[list[Finding]]]]] = [
        ("Ledger", _ledger),
        ("Redis", _redis),
        ("RabbitMQ", _broker),
        ("Kafka", _topic),
        ("History", _history),
        ("Templates", _templates),
        ("Directory", _directory),
        ("Providers", _providers),
    ]
    findings = [Finding("Settings", "ok", f"blueprint {settings.blueprint}")]
    for part, check in checks:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                findings += await check(settings)
        except TimeoutError:
            findings.append(Finding(part, "ill", f"no answer within {PATIENCE_SECONDS:g} s"))
        except (CarillonError, OSError) as error:
            findings.append(Finding(part, "ill", str(error)))
    return findings


async def _ledger(settings: Settings) -> list[Finding]:
    ledger = await parts.open_ledger(settings)
    try:
        said = await ledger.check()
        await ledger.refuse_newer()
    finally:
        await ledger.aclose()
    words = f"{said['engine']} {said['version']}, {said['response_time_ms']:.1f} ms"
    findings = [Finding("Ledger", "ok", words)]
    if not said["durable"]:
        findings.append(Finding("Ledger", "warn", f"may lose commits: {said['settings']}"))
    if abs(said["clock_skew_seconds"]) > MAX_SKEW_SECONDS:
        skew = f"its clock differs from ours by {said['clock_skew_seconds']:.1f} s; leases follow its clock"
        findings.append(Finding("Ledger", "warn", skew))
    return findings


async def _redis(settings: Settings) -> list[Finding]:
    location = settings.redis.location()
    if location is None:
        return [Finding("Redis", "ok", "not configured; each process keeps its own breakers")]
    from carillon.compose.fleet import Fleet  # noqa: PLC0415 - see its first line

    fleet = Fleet(location)
    try:
        use = "queues" if settings.billing else "streams" if settings.stream else "shared breakers"
        return [Finding("Redis", "ok", f"version {await fleet.version()}, {use}")]
    finally:
        await fleet.aclose()


async def _broker(settings: Settings) -> list[Finding]:
    if settings.push is None:
        return []
    try:
        from carillon.ledger.rabbitmq.line import LineRules, depths  # noqa: PLC0415 - its client is an extra
    except ModuleNotFoundError as error:
        return [Finding("RabbitMQ", "ill", f"needs the package {error.name!r}; pip install 'carillon[rabbitmq]'")]
    push = settings.push
    found = await depths(LineRules(url=push.rabbitmq_url, queue=push.queue, failed_queue=push.failed_queue))
    words = [f"{queue}: {'not there yet' if depth is None else f'{depth} waiting'}" for queue, depth in found.items()]
    return [Finding("RabbitMQ", "ok", ", ".join(words))]


async def _topic(settings: Settings) -> list[Finding]:
    kafka = settings.kafka
    if kafka.bootstrap_servers is None:
        return []
    try:
        from carillon.doors.kafka.depth import depth  # noqa: PLC0415 - its client is an extra
        from carillon.doors.kafka.group import TopicRules  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        return [Finding("Kafka", "ill", f"needs the package {error.name!r}; pip install 'carillon[kafka]'")]
    rules = TopicRules(**msgspec.structs.asdict(kafka))
    found = await depth(rules, PATIENCE_SECONDS)
    if found is None:
        return [Finding("Kafka", "warn", f"{kafka.topic}: not there yet")]
    return [Finding("Kafka", "ok", f"{kafka.topic}: {found.partitions} partitions, {found.unread} unread")]


async def _history(settings: Settings) -> list[Finding]:
    if settings.history.url is None:
        return []
    from carillon.compose.history import kept_at  # noqa: PLC0415 - its client is slow to load

    return [Finding("History", "ok", f"ClickHouse {await kept_at(settings).version()}")]


async def _templates(settings: Settings) -> list[Finding]:
    if settings.push is not None:
        return [Finding("Templates", "ok", "fetched for each message")]
    if settings.templates.render == "downstream" and not settings.templates.folders:
        return [Finding("Templates", "ok", "nothing is rendered here")]
    count = parts.templates(settings).count()
    return [Finding("Templates", "ok" if count else "warn", f"{count} read and checked")]


async def _directory(settings: Settings) -> list[Finding]:
    if settings.stream is None or settings.directory is None:
        return []
    from carillon.compose.redis_stream import directory_of  # noqa: PLC0415 - see its first line

    async with AsyncExitStack() as stack:
        http = _tools(settings, None, stack).http
        directory = directory_of(settings, http, SystemClock(), lambda _: None)
        said = None if directory is None else (await directory.find([NOBODY]))[NOBODY]
    if isinstance(said, NotAnswered):
        return [Finding("Directory", "ill", f"{settings.directory.url}: {said.error}")]
    return [Finding("Directory", "ok", f"{settings.directory.url} answers")]


async def _providers(settings: Settings) -> list[Finding]:
    chains = parts.chains(settings)
    findings = [Finding(f"Channel {channel}", "ok", " → ".join(chain)) for channel, chain in chains.items()]
    async with AsyncExitStack() as stack:
        tools = _tools(settings, await _streams(settings, stack), stack)
        built = parts.providers(settings, {name for chain in chains.values() for name in chain}, tools)
        for name, provider in built.items():
            findings.append(await _provider(name, str(settings.providers[name]["kind"]), provider))
            await provider.aclose()
    return findings


async def _streams(settings: Settings, stack: AsyncExitStack) -> "Streams | None":
    if settings.stream is None:
        return None
    from carillon.compose.redis_stream import Streams  # noqa: PLC0415 - see its first line

    streams = Streams(settings, SystemClock(), lambda _: None, NOBODY)
    await streams.open(stack)
    return streams


def _tools(settings: Settings, streams: "Streams | None", stack: AsyncExitStack) -> Tools:
    """What a process would give its providers; one that publishes into Redis cannot be built without it."""
    more = {} if streams is None else {"redis": streams.redis, "encoders": streams.wire.encoders}
    tools = parts.tools(settings, SystemClock(), system_dice, **more)
    stack.push_async_callback(tools.http.aclose)
    return tools


async def _provider(name: str, kind: str, provider: Provider) -> Finding:
    if not isinstance(provider, Probed):
        return Finding(f"Provider {name}", "ok", f"{kind}; has nothing to ask before there is a message")
    complaint = await provider.probe()
    if complaint is not None:
        return Finding(f"Provider {name}", "ill", f"{kind}: {complaint}")
    return Finding(f"Provider {name}", "ok", f"{kind} answers")
