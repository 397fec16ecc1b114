"""Whether this process lives, is ready, and can reach what it needs."""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from carillon.web import Answer, Endpoint, Reply, Request
from carillon.web.probe_surface import Probe
from carillon.web.problems import rfc3339

Check = Callable[[], Awaitable[Mapping[str, Any]]]
"""Answers with facts, among them `status` when it is not healthy; raising means unhealthy."""

Phase = Literal["starting", "ready", "draining"]
_CHECK_SECONDS = 2.0


class Liveness(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(msgspec.Struct, frozen=True):
    """Whether requests should be sent here now."""

    status: Phase


class Readiness:
    """What the process says of itself: starting until ready, draining afterwards."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"

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


class StreamHealth(msgspec.Struct, frozen=True):
    """How a replica is, and how many read there."""

    status: Literal["ok", "unhealthy"]
    active_connections: int
    timestamp: str


def endpoints(
    readiness: Readiness, checks: Mapping[str, Check], aside: Mapping[str, Check] | None = None
) -> list[Endpoint]:
    """The three questions: alive, ready, healthy; see `examine` for `aside`."""

    async def alive(_: Request) -> Reply:
        return Reply(200, Liveness())

    async def ready(_: Request) -> Reply:
        return Reply(200 if readiness.ready else 503, Ready(readiness.phase))

    async def health(_: Request) -> Reply:
        found = await (examine(checks) if aside is None else examine_in_brief(checks, aside))
        return Reply(503 if found.status == "unhealthy" else 200, found)

    return [
        _endpoint("/healthz", alive, "Is the process alive?", Liveness, (200,)),
        _endpoint("/readyz", ready, "Should requests be sent here?", Ready, (200, 503)),
        _endpoint("/health", health, "Can everything that is needed be reached?", Health, (200, 503)),
    ]


def of_streams(checks: Mapping[str, Check], connections: Callable[[], int]) -> Endpoint:
    """Document 004's body, in place of the usual one."""

    async def health(_: Request) -> Reply:
        found = await examine(checks)
        well = found.status != "unhealthy"
        said = StreamHealth("ok" if well else "unhealthy", connections(), found.timestamp)
        return Reply(200 if well else 503, said)

    return _endpoint("/health", health, "Can everything that is needed be reached?", StreamHealth, (200, 503))


def probes(readiness: Readiness) -> dict[str, Probe]:
    """The first two questions alone, for a listener that serves nothing else; nothing outside is asked."""
    return {
        "/healthz": lambda: (200, Liveness()),
        "/readyz": lambda: (200 if readiness.ready else 503, Ready(readiness.phase)),
    }


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


async def examine_in_brief(checks: Mapping[str, Check], aside: Mapping[str, Check]) -> Health:
    """Each check as document 000 writes it: a status and whole milliseconds; what is `aside` harms nothing."""
    results = await asyncio.gather(*(_run(check) for check in (*checks.values(), *aside.values())))
    found = dict(zip((*checks, *aside), results, strict=True))
    whole: Literal["healthy", "unhealthy"] = "healthy"
    if any(found[name]["status"] == "unhealthy" for name in checks):
        whole = "unhealthy"
    brief: dict[str, dict[str, Any]] = {
        name: {"status": found[name]["status"], "response_time_ms": round(found[name]["response_time_ms"])}
        for name in checks
    }
    for name in aside:
        said = found[name]["status"]
        state = found[name].get("circuit_breaker", "closed")
        brief[name] = {"status": "healthy" if said == "healthy" else "degraded", "circuit_breaker": state}
    return Health(whole, rfc3339(dt.datetime.now(dt.UTC)), brief)


async def _run(check: Check) -> dict[str, Any]:
    began = time.monotonic()
    asking = asyncio.ensure_future(check())
    try:
        # Not a timeout around it: a driver may take its time to give up, and that is not waited for.
        await asyncio.wait({asking}, timeout=_CHECK_SECONDS)
        if asking.done():
            facts = dict(asking.result())
        else:
            facts = {"status": "unhealthy", "error": f"no answer within {_CHECK_SECONDS:g} s"}
            asking.add_done_callback(_forget)
    except Exception as error:  # noqa: BLE001 - whatever a check met, its name is the finding
        # Only the kind: a driver's sentence may hold addresses and credentials.
        facts = {"status": "unhealthy", "error": type(error).__name__}
    finally:
        asking.cancel()
    return {"status": "healthy", **facts, "response_time_ms": round((time.monotonic() - began) * 1000, 1)}


def _forget(asked: "asyncio.Future[Mapping[str, Any]]") -> None:
    """Whatever a check says too late was looked at, so that nobody complains of it."""
    if not asked.cancelled():
        asked.exception()


def _endpoint(
    path: str,
    call: Callable[[Request], Awaitable[Reply]],
    summary: str,
    kind: type[msgspec.Struct],
    statuses: tuple[int, ...],
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
        guarded=False,
        always=True,
    )
