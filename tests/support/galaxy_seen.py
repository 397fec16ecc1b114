"""What a test of the galaxy blueprint sees: Redis commands on the wire, exported metrics, and which intent is which."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from redis.asyncio import Redis as RedisClient

from tests.support.galaxy import fields_for
from tests.support.galaxy_stand import Galaxy
from tests.support.process import Program
from tests.support.waiting import until

ADMIN_TYPES = {
    "NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED": "geo.review_recommended",
    "NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED": "game.generation_failed",
    "NOTIFICATION_ADMIN_EMAILS_LOBBY_RUNTIME_PAUSED_AFTER_START": "lobby.runtime_paused_after_start",
    "NOTIFICATION_ADMIN_EMAILS_LOBBY_APPLICATION_SUBMITTED": "lobby.application.submitted",
}
ADMINISTRATORS = dict.fromkeys(ADMIN_TYPES, "ops@example.com")

PATIENT = {"NOTIFICATION_USER_SERVICE_TIMEOUT": "5s", "NOTIFICATION_ROUTE_LEASE_TTL": "30s"}
"""For tests that count what is asked and published: on a busy machine the document's seconds are soon over."""

_numbers = count(1)


def intent(notification_type: str = "game.turn.ready", kind: str | None = None, /, **changes: str | None) -> Any:
    """The fields of an acceptable entry under a key that no other has."""
    return fields_for(notification_type, kind, **({"idempotency_key": f"key-{next(_numbers)}"} | changes))


class Commands:
    """What clients ask of Redis while it is watched."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def of(self, *words: str) -> list[list[str]]:
        """The commands that begin so."""
        return [command for command in self.seen if command[: len(words)] == list(words)]

    async def until(self, words: Iterable[str], number: int = 1) -> list[list[str]]:
        begin = list(words)

        async def enough() -> bool:
            return len(self.of(*begin)) >= number

        await until(enough, timeout=60, what=f"{number} x {' '.join(begin)} in {self.seen[-20:]}")
        return self.of(*begin)

    async def until_some(self, fits: Callable[[list[str]], bool], number: int = 1) -> list[list[str]]:
        """The commands that fit, once there are that many: MONITOR tells a moment later."""

        async def enough() -> bool:
            return len(list(filter(fits, self.seen))) >= number

        await until(enough, timeout=60, what=f"{number} commands that fit in {self.seen[-20:]}")
        return list(filter(fits, self.seen))


@asynccontextmanager
async def monitored(redis: RedisClient) -> AsyncIterator[Commands]:
    """MONITOR, as an operator would run it."""
    commands = Commands()
    async with redis.monitor() as monitor:

        async def listen() -> None:
            async for command in monitor.listen():
                commands.seen.append(command["command"].split(" "))

        listening = asyncio.create_task(listen())
        try:
            yield commands
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


Point = tuple[dict[str, str], float]


def exported(program: Program) -> dict[str, list[Point]]:
    """The newest numbers a process wrote to stdout, by name."""
    lines = program.events("metrics")
    found: dict[str, list[Point]] = {}
    for resource in lines[-1]["resource_metrics"] if lines else []:
        for scope in resource["scope_metrics"]:
            for metric in scope["metrics"]:
                points = metric["data"]["data_points"]
                found[metric["name"]] = [(dict(point["attributes"]), point["value"]) for point in points]
    return found


async def number_is(
    program: Program, name: str, fits: Callable[[list[Point]], bool], *, within: float = 60
) -> list[Point]:
    """The points of a number, once an export shows them so."""

    async def shown() -> bool:
        return fits(exported(program).get(name, []))

    await until(shown, timeout=within, what=f"{name}: {exported(program).get(name)}")
    return exported(program)[name]


async def all_ready(programs: Iterable[Program]) -> None:
    """Wait for processes that were launched together."""
    await asyncio.gather(*(program.until("ready", timeout=90) for program in programs))


async def backends(stand: Galaxy) -> int:
    """Connections of others to the stand's database, by pg_stat_activity."""
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    rows = await stand.rows(query)
    found: int = rows[0]["n"]
    return found


def exit_of(program: Program, within: float = 60) -> tuple[int, str]:
    """The code a process ends with, and everything it said."""
    code = program.wait(within)
    return code, program.tail(100)


def sockets(pid: int) -> tuple[set[int], set[int]]:
    """The ports a process listens on, and those it is connected to, by /proc."""
    links = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir())
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    listening, connected = set(), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, state, *rest = line.split()
            if rest[5] in inodes:
                ports = [int(end.rpartition(":")[2], 16) for end in (local, remote)]
                if state == "0A":
                    listening.add(ports[0])
                else:
                    connected.add(ports[1])
    # A connection somebody made to the listener has that listener's port on our side.
    return listening, connected
