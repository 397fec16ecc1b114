"""Health: whether this process is alive, ready, and reaches the servers that it needs."""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from carillon.web import EVERYBODY, WELCOME, About, Answer, Endpoint, Reply, Request
from carillon.web.h11_server import Probe
from carillon.web.problems import rfc3339

Check = Callable[[], Awaitable[Mapping[str, Any]]]
"""A check returns facts, with a `status` if it is not healthy; an exception means unhealthy."""

Phase = Literal["starting", "ready", "draining"]
_CHECK_SECONDS = 2.0
_PORTS = {"https": 443, "amqp": 5672, "amqps": 5671}


class Checks(NamedTuple):
    """All checks of /health."""

    needed: Mapping[str, Check]
    """The servers the process depends on."""
    facts: Mapping[str, Check]
    """Further facts, such as breakers and calls in flight."""

    def all(self) -> dict[str, Check]:
        return {**self.needed, **self.facts}


class Liveness(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether requests should be sent here now; `away` names the servers that could not be reached at the last look."""

    status: Phase
    away: list[str] = []


class Readiness:
    """The state of this process: starting, ready or draining."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self.away: list[str] = []

    def answer(self) -> tuple[int, Ready]:
        """Depends only on the process itself: a server that is away is named, and requests are still accepted."""
        return (200 if self.ready else 503), Ready(self.phase, self.away)

    @property
    def ready(self) -> bool:
        return self.phase == "ready"

    @ready.setter
    def ready(self, ready: bool) -> None:
        self.phase = "ready" if ready else "draining"


class Health(msgspec.Struct, frozen=True):
    """Every check with what it found."""

    status: Literal["healthy", "degraded", "unhealthy"]
    timestamp: str
    checks: dict[str, dict[str, Any]]


class StreamHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a replica is, how many read there, and which servers are away."""

    status: Literal["ok", "unhealthy"]
    active_connections: int
    timestamp: str
    away: list[str] = []


class OneLook:
    """At most one look at the servers at a time: those who ask meanwhile get its result.

    Everybody may ask for /health. If each of them looked, strangers could keep every server busy with checks, and the
    checks would fail for lack of time.
    """

    def __init__(self, look: Callable[[], Coroutine[Any, Any, Health]]) -> None:
        self._look = look
        self._running: asyncio.Task[Health] | None = None

    async def result(self) -> Health:
        """What the look under way finds, or a new one."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._look())
        # A caller who leaves must not end the look of the others.
        return await asyncio.shield(self._running)


def endpoints(readiness: Readiness, checks: Checks, *, tells_strangers: bool = True) -> list[Endpoint]:
    """The endpoints alive, ready and healthy; without `tells_strangers` only an administrator sees details."""
    look = OneLook(lambda: examine(checks.all()))

    async def alive(_: Request) -> Reply:
        return Reply(200, Liveness())

    async def ready(_: Request) -> Reply:
        return Reply(*readiness.answer())

    async def health(request: Request) -> Reply:
        found = await look.result()
        told = tells_strangers or (request.caller.sub is not None and request.caller.administers)
        return Reply(503 if found.status == "unhealthy" else 200, found if told else outline(found, checks.needed))

    return [
        _endpoint("/healthz", alive, "Is the process alive?", Liveness, (200,)),
        _endpoint("/readyz", ready, "Should requests be sent here?", Ready, (200, 503)),
        _endpoint("/health", health, "Can everything that is needed be reached?", Health, (200, 503), about=WELCOME),
    ]


def of_streams(checks: Checks, connections: Callable[[], int]) -> Endpoint:
    """The body that blueprint sse promises, in place of the usual one."""
    look = OneLook(lambda: examine(checks.all()))

    async def health(_: Request) -> Reply:
        found = await look.result()
        well = found.status != "unhealthy"
        said = StreamHealth("ok" if well else "unhealthy", connections(), found.timestamp, away(found))
        return Reply(200 if well else 503, said)

    return _endpoint("/health", health, "Can everything that is needed be reached?", StreamHealth, (200, 503))


def in_brief(checks: Checks) -> Endpoint:
    """The body that blueprint push-worker promises, in place of the usual one."""
    look = OneLook(lambda: examine_in_brief(checks))

    async def health(_: Request) -> Reply:
        found = await look.result()
        return Reply(503 if found.status == "unhealthy" else 200, found)

    return _endpoint("/health", health, "Can everything that is needed be reached?", Health, (200, 503))


def probes(readiness: Readiness) -> dict[str, Probe]:
    """Only the first two, for a listener that serves nothing else; neither calls another server."""
    return {"/healthz": lambda: (200, Liveness()), "/readyz": readiness.answer}


def outline(found: Health, needed: Iterable[str]) -> Health:
    """What a load balancer needs: whether each server answers, without versions, names of providers and reasons."""
    return Health(found.status, found.timestamp, {name: {"status": found.checks[name]["status"]} for name in needed})


def away(found: Health) -> list[str]:
    """The servers that could not be reached."""
    return [name for name, facts in found.checks.items() if "error" in facts]


def answers_at(url: str) -> Check:
    """Whether a server accepts connections at this address; no request is sent."""
    place = urlsplit(url)

    async def check() -> dict[str, Any]:
        port = place.port or _PORTS.get(place.scheme, 80)
        _, writer = await asyncio.open_connection(place.hostname or "127.0.0.1", port)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return {}

    return check


def degraded(check: Check) -> Check:
    """The same check for a server without which the process still does most of its work."""

    async def soften() -> Mapping[str, Any]:
        try:
            return await check()
        except Exception as error:  # noqa: BLE001 - any failure of a check means that the server is away
            return {"status": "degraded", "error": type(error).__name__}

    return soften


async def examine(checks: Mapping[str, Check]) -> Health:
    """Run every check at the same time, none longer than two seconds."""
    results = await asyncio.gather(*(_run(check) for check in checks.values()))
    found = dict(zip(checks, results, strict=True))
    words = {result["status"] for result in results}
    status: Literal["healthy", "degraded", "unhealthy"] = "healthy"
    if "unhealthy" in words:
        status = "unhealthy"
    elif "degraded" in words:
        status = "degraded"
    return Health(status, rfc3339(dt.datetime.now(dt.UTC)), found)


async def examine_in_brief(checks: Checks) -> Health:
    """Each server with a status and whole milliseconds; one behind a breaker shows its state instead."""
    needed = [name for name in checks.needed if name not in checks.facts]
    asked = [*checks.needed.items(), *checks.facts.items()]
    results = await asyncio.gather(*(_run(check) for _, check in asked))
    found = list(zip([name for name, _ in asked], results, strict=True))
    servers, facts = dict(found[: len(checks.needed)]), dict(found[len(checks.needed) :])
    ill = any(servers[name]["status"] == "unhealthy" for name in needed)
    brief: dict[str, dict[str, Any]] = {
        name: {"status": servers[name]["status"], "response_time_ms": round(servers[name]["response_time_ms"])}
        for name in needed
    }
    for name, said in facts.items():
        well = said["status"] == servers.get(name, said)["status"] == "healthy"
        state = said.get("circuit_breaker", "closed")
        brief[name] = {"status": "healthy" if well else "degraded", "circuit_breaker": state}
    return Health("unhealthy" if ill else "healthy", rfc3339(dt.datetime.now(dt.UTC)), brief)


async def _run(check: Check) -> dict[str, Any]:
    began = time.monotonic()
    asking = asyncio.ensure_future(check())
    try:
        # Not a timeout around the check: a driver may react to its cancellation late.
        await asyncio.wait({asking}, timeout=_CHECK_SECONDS)
        if asking.done():
            facts = dict(asking.result())
        else:
            facts = {"status": "unhealthy", "error": f"no answer within {_CHECK_SECONDS:g} s"}
            asking.add_done_callback(_forget)
    except Exception as error:  # noqa: BLE001 - whatever a check met, its name is the finding
        # Show only the kind of error: a driver's text may contain addresses and credentials.
        facts = {"status": "unhealthy", "error": type(error).__name__}
    finally:
        asking.cancel()
    return {"status": "healthy", **facts, "response_time_ms": round((time.monotonic() - began) * 1000, 1)}


def _forget(asked: "asyncio.Future[Mapping[str, Any]]") -> None:
    """Read the late result of a check, so that asyncio does not complain about it."""
    if not asked.cancelled():
        asked.exception()


def _endpoint(
    path: str,
    call: Callable[[Request], Awaitable[Reply]],
    summary: str,
    kind: type[msgspec.Struct],
    statuses: tuple[int, ...],
    *,
    about: About = EVERYBODY,
) -> Endpoint:
    words = {200: "Yes", 503: "No"}
    return Endpoint(
        method="GET",
        path=path,
        call=call,
        name=path.strip("/"),
        summary=summary,
        tag="Health",
        answers=tuple(Answer(status=status, description=words[status], kind=kind) for status in statuses),
        about=about,
        always=True,
    )
