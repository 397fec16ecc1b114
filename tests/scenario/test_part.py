"""A control: a made-up part that is added to the list gets everything that the program does for parts."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carillon.compose import Program, Role
from carillon.compose.blueprints import examine, parts_of
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd
from carillon.compose.process import Process
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.errors import ServerUnavailable
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.meters import Metrics
from carillon.web import EVERYBODY, Answer, Endpoint, Reply, Request
from tests.support.client import Client
from tests.support.waiting import until

PATIENCE = 60


class Tone(msgspec.Struct, frozen=True):
    """What the made-up endpoint answers."""

    tone: str


class Bell(Part):
    """Away at first, falls once, and is ill until it is mended."""

    title = "Bell"
    role = Role.UPKEEP

    def __init__(self) -> None:
        self.tries = self.falls = 0
        self.rings = asyncio.Event()
        self.mended = False
        self.metrics: Metrics | None = None
        self.story: list[str] = []

    async def open(self, stack: AsyncExitStack) -> None:
        self.tries += 1
        stack.callback(self.story.append, f"closed {self.tries}")
        if self.tries == 1:
            raise ServerUnavailable("the bell is not there yet")

    def run(self) -> Mapping[str, Loop]:
        return {"bell": self._ring}

    async def _ring(self) -> None:
        if not self.falls:
            self.falls += 1
            raise OSError("the bell fell")
        self.rings.set()
        await asyncio.Event().wait()

    def rest(self, seconds: float) -> None:
        self.story.append(f"rests within {seconds:g} s")

    async def stop(self, ending: PartEnd) -> None:
        self.story.append("stopped in time" if ending.deadline.left() > 0 else "stopped late")

    def checks(self) -> Mapping[str, Check]:
        async def look() -> dict[str, Any]:
            if not self.mended:
                raise ConnectionError("cracked")
            return {}

        return {"bell": look}

    def gauges(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def endpoints(self) -> list[Endpoint]:
        async def tone(_: Request) -> Reply:
            return Reply(200, Tone("e"))

        answers = (Answer(status=200, description="Its tone.", kind=Tone),)
        return [
            Endpoint(
                method="GET",
                path="/bell",
                call=tone,
                name="bell",
                summary="Its tone",
                tag="Bells",
                about=EVERYBODY,
                answers=answers,
            )
        ]

    def pages(self) -> Sequence[str]:
        return ("bells",)

    async def examine(self) -> list[DoctorFinding]:
        return [DoctorFinding("Bell", "ill", "cracked")]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path / 'ledger.db'}", "CARILLON_HTTP__PORT": "0"}
    return load("local", environ=environment)


@asynccontextmanager
async def running(settings: Settings, bell: Bell, roles: frozenset[Role]) -> AsyncIterator[Client]:
    def with_bell(process: Process) -> Sequence[Part]:
        return [*parts_of(process), bell]

    stop, ready = asyncio.Event(), asyncio.Queue[str]()
    program = asyncio.create_task(Program(settings, roles, parts=with_bell).run(stop, ready.put_nowait))
    program.add_done_callback(lambda _: ready.put_nowait(""))
    try:
        yield Client(await asyncio.wait_for(ready.get(), PATIENCE))
    finally:
        stop.set()
        await program


async def test_a_part_that_is_added_gets_everything(settings: Settings) -> None:
    bell = Bell()
    async with running(settings, bell, frozenset(Role)) as client:

        async def readiness() -> Any:
            return (await asyncio.to_thread(client.get, "/readyz")).body

        async def cracked() -> bool:
            return bool(await readiness() == {"status": "ready", "away": ["bell"]})

        async def well() -> bool:
            return bool(await readiness() == {"status": "ready"})

        assert (bell.tries, bell.story) == (2, ["closed 1"]), "the start waited"
        await asyncio.wait_for(bell.rings.wait(), PATIENCE)
        assert bell.falls == 1, "its loop was started again"
        assert bell.metrics is not None
        await until(cracked, timeout=PATIENCE, what="a bell that is away")
        assert (await asyncio.to_thread(client.get, "/health")).body["checks"]["bell"]["status"] == "unhealthy"
        bell.mended = True
        await until(well, timeout=PATIENCE, what="a bell that is back")
        assert (await asyncio.to_thread(client.get, "/bell")).body == {"tone": "e"}
        assert "bells" in (await asyncio.to_thread(client.get, "/api/v1/console/surface")).body["pages"]
    assert bell.story[1:] == ["rests within 20 s", "stopped in time", "closed 2"]


async def test_without_its_role_it_is_not_there(settings: Settings) -> None:
    bell = Bell()
    async with running(settings, bell, frozenset({Role.DOORS, Role.OUTBOUND})) as client:
        assert "bell" not in (await asyncio.to_thread(client.get, "/health")).body["checks"]
    assert (bell.tries, bell.story) == (0, [])


async def test_the_doctor_asks_it(settings: Settings) -> None:
    found = await examine(settings, lambda process: [*parts_of(process), Bell()])
    assert [finding.part for finding in found if finding.verdict == "ill"] == ["Bell"]
