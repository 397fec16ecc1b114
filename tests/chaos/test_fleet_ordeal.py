"""How `make prove` goes on, or ends with what it has, when a fault does not heal."""

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import ordeal
from tests.fleet.faults import Fault, applicable
from tests.fleet.ordeal import Aside, Ordeal
from tests.fleet.world import NotStruckError


class Small:
    """As much of a world as an ordeal touches."""

    def __init__(self) -> None:
        self.dice = random.Random(1)
        self.struck = self.until = 0.0
        self.healed = 0
        self.hopeless = False

    def heal(self) -> None:
        self.healed += 1
        if self.hopeless:
            raise TimeoutError("a PostgreSQL that leads: not within 60 s")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordeal, "CALM", 0.001)
    monkeypatch.setattr(ordeal, "LONGEST_FAULT", 0.3)


async def suffer(world: Any, folder: Path, *works: Callable[[Any], None], turns: int = 3) -> tuple[Ordeal, list[str]]:
    said: list[str] = []
    chosen = [Fault(f"fault of {work.__name__}", work) for work in works]
    found = Ordeal(world, Aside(), folder / "windows.jsonl", said.append)
    await found.suffer(chosen, lambda turn, _: turn < turns)
    return found, said


def fine(world: Small) -> None:
    world.struck, world.until = world.struck + 1, world.until + 2


def fails(_: Small) -> None:
    raise TimeoutError("every process ready again: not within 120 s: listo 2")


def refused(_: Small) -> None:
    raise NotStruckError("Patroni answered the switch-over with 412")


@pytest.mark.req("P-662")
@pytest.mark.usefixtures("quick")
async def test_a_fault_that_fails_is_a_trouble_and_the_next_ones_follow(tmp_path: Path) -> None:
    world = Small()
    found, said = await suffer(world, tmp_path, fine, fails, fine)
    assert found.suffered.faults == ["fault of fine", "fault of fails", "fault of fine"]
    assert found.suffered.troubles == [
        "fault 2 fault of fails: TimeoutError: every process ready again: not within 120 s: listo 2"
    ]
    assert (world.healed, found.suffered.ended_early) == (1, "")
    assert "fault 1 fault of fine: 0 s" in " ".join(said)
    windows = [json.loads(line) for line in (tmp_path / "windows.jsonl").read_text().splitlines()]
    assert [window["fault"] for window in windows] == found.suffered.faults
    assert windows[0]["until"] - windows[0]["struck"] == pytest.approx(1)
    # Nobody knows when it struck: all of its time counts.
    assert windows[1]["struck"] == windows[1]["began"]


@pytest.mark.req("P-662")
@pytest.mark.usefixtures("quick")
async def test_a_fault_that_could_not_be_made_is_no_trouble(tmp_path: Path) -> None:
    found, _ = await suffer(Small(), tmp_path, refused)
    assert found.suffered.troubles == []
    assert len(found.suffered.not_struck) == 3


@pytest.mark.req("P-662")
@pytest.mark.usefixtures("quick")
async def test_a_fault_that_nobody_can_mend_ends_the_run(tmp_path: Path) -> None:
    world = Small()
    world.hopeless = True
    found, _ = await suffer(world, tmp_path, fine, fails, fine)
    assert found.suffered.faults == ["fault of fine", "fault of fails"]
    assert found.suffered.ended_early == "fault 2 fault of fails did not heal"
    assert len(found.suffered.troubles) == 2


@pytest.mark.req("P-662")
@pytest.mark.usefixtures("quick")
async def test_a_fault_that_never_ends_ends_the_run(tmp_path: Path) -> None:
    released = threading.Event()

    def hangs(_: Small) -> None:
        released.wait(40)

    world = Small()
    found, said = await suffer(world, tmp_path, hangs, fine)
    released.set()
    assert found.suffered.faults == ["fault of hangs"]
    assert "did not end within" in found.suffered.ended_early
    assert "did not end within" in said[-1]
    assert world.healed == 0


@pytest.mark.req("P-662")
def test_some_faults_are_chosen_by_parts_of_their_names() -> None:
    class Plain(Small):
        servers: Any = object()

        class disk:  # noqa: N801 - an attribute
            real = True

    whole: Any = Plain()
    chosen = [fault.name for fault in applicable(whole, short=False, only="rolling, RabbitMQ")]
    assert chosen[0] == "rolling upgrade and back"
    assert len(chosen) == 4
    assert len(applicable(whole, short=False)) > 20
