"""A worker killed with SIGKILL by the vendor in mid-send loses nothing and repeats only what it held."""

import asyncio
from collections.abc import Callable

import pytest

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.checker import Report
from tests.support.stand import Stand
from tests.support.vendor import Reply

MESSAGES, KILLS = 240, 4


async def kill_in_mid_send(stand: Stand, number: int, kills: int, mutant: str | None = None) -> int:
    """Returns how many sends were under way at the kills."""
    stand.vendor.default = Reply(delay=0.03)
    doors = await stand.start("doors")
    await stand.send(stand.webhooks(f"m{place}" for place in range(number)))
    in_flight = 0
    for _ in range(kills):
        worker = await stand.start("outbound", mutant=mutant)
        stand.vendor.strike_after(worker.pid, number // (2 * kills))
        assert await asyncio.to_thread(worker.wait, 60) == -9
        in_flight += await stand.note_held(worker.pid)
    await stand.start("outbound", mutant=mutant)
    await stand.until_terminal(number)
    assert doors.returncode is None
    return in_flight


async def kill_and_check(stand: Stand, number: int, kills: int, mutant: str | None = None) -> tuple[Report, int]:
    in_flight = await kill_in_mid_send(stand, number, kills, mutant)
    report = await properties.everything_holds(stand)
    await properties.all_published(stand)
    return report, in_flight


@pytest.mark.req("G-04", "G-05")
async def test_a_worker_killed_in_mid_send_loses_nothing(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand() as stand:
        report, in_flight = await kill_and_check(stand, MESSAGES, KILLS)
        assert report.accepted == MESSAGES
        assert report.duplicate_count <= in_flight
        figures(messages=MESSAGES, kills=KILLS, repeats=report.duplicate_count, in_flight=in_flight)


@pytest.mark.req("G-04")
async def test_a_class_that_must_not_be_repeated_is_not(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand(on_unknown="bury") as stand:
        in_flight = await kill_in_mid_send(stand, 60, 2)
        report = await properties.everything_holds(stand)
        properties.repeats_bounded(report, {})
        dead = await tables.read(stand.url, tables.DEAD)
        assert 0 < len(dead) <= in_flight
        assert {row["failure_classification"] for row in dead} == {"abandoned"}
        figures(messages=60, kills=2, repeats=0, in_flight=in_flight, held_back=len(dead))
