"""SIGTERM under load: work is finished or given back, nothing is repeated, and the exit code is 0."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.process import Program
from tests.support.stand import Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

ROUNDS, BACKLOG, CHUNK = 5, 24, 12


async def end(stand: Stand, program: Program) -> None:
    """SIGTERM, exit code 0, and nothing left in its hands."""
    program.terminate()
    code = await asyncio.to_thread(program.wait, 60)
    properties.hold("ends_well", code == 0, f"exit code {code}")
    held = await stand.note_held(program.pid)
    properties.hold("ends_well", held == 0, f"{held} routes left leased")


async def feed(stand: Stand, enough: asyncio.Event) -> int:
    """Keep a small backlog until told that it is enough; returns how many messages that took."""
    sent = 0
    while not enough.is_set():
        await stand.until_rows(tables.OPEN, lambda rows: rows[0]["n"] < BACKLOG)
        await stand.send(stand.webhooks(f"m{sent + place}" for place in range(CHUNK)))
        sent += CHUNK
    return sent


async def rolling_restarts(stand: Stand, rounds: int, mutant: str | None = None) -> int:
    """Two workers, each ended and replaced in turn while it has calls under way."""
    stand.vendor.default = Reply(delay=0.1)
    await stand.start("doors")
    workers = list(await asyncio.gather(*(stand.start("outbound", mutant=mutant) for _ in range(2))))
    enough = asyncio.Event()
    feeding = asyncio.create_task(feed(stand, enough))
    try:
        for turn in range(2 * rounds):
            await stand.until_rows(tables.HELD, partial(holds, workers[turn % 2].pid))
            await end(stand, workers[turn % 2])
            workers[turn % 2] = await stand.start("outbound", mutant=mutant)
    finally:
        enough.set()
        sent = await feeding
    await stand.until_terminal(sent)
    return sent


def holds(pid: int, rows: list[tables.Row]) -> bool:
    return any(str(row["lease_owner"]).endswith(f"/{pid}") for row in rows)


async def hanging_call(stand: Stand) -> tuple[float, float]:
    """A vendor that never answers: the call is cut off, the route is free long before its lease would have ended."""
    stand.vendor.answer(Reply(hang=True))
    worker = await stand.start()
    await stand.send(stand.webhooks(["m"]))
    await stand.vendor.until(1)
    began = time.monotonic()
    await end(stand, worker)
    ended = time.monotonic() - began
    await properties.nothing_leased(stand)
    await stand.start("outbound")
    await stand.vendor.until(2)
    return ended, time.monotonic() - began


@pytest.mark.req("G-06")
async def test_rolling_restarts_repeat_and_lose_nothing(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand(lease=20, timeout=15, concurrency=8, drain=8) as stand:
        sent = await rolling_restarts(stand, ROUNDS)
        report = await properties.everything_holds(stand)
        assert report.duplicates == {}
        await properties.all_published(stand)
        figures(messages=sent, restarts=2 * ROUNDS, repeats=report.duplicate_count, in_flight=0)


@pytest.mark.req("G-06")
async def test_doors_closed_under_load_break_no_promise(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand(lease=20, timeout=15, concurrency=100) as stand:
        program = await stand.start()
        producing = asyncio.create_task(stand.send(stand.pushes(f"m{place}" for place in range(600)), at_once=8))
        for turn in (1, 2):
            await until(partial(answered, stand, turn * 150), timeout=60, what="answers under load")
            await end(stand, program)
            program = await stand.start()
        await producing
        await stand.until_terminal(600)
        report = await properties.everything_holds(stand)
        assert report.duplicates == {}
        # A repeat would mean that a request was stored and its answer thrown away.
        replayed = [line["key"] for line in stand.producer.lines if line.get("replayed")]
        assert not replayed
        figures(messages=600, restarts=2, unanswered_requests=len(stand.producer.lines) - 600, replayed=0)


async def answered(stand: Stand, number: int) -> bool:
    return len([line for line in stand.producer.lines if line["status"] == 202]) >= number


@pytest.mark.req("G-06")
async def test_a_hanging_call_is_cut_off_and_its_route_free_at_once(
    make_stand: MakeStand, figures: Callable[..., None]
) -> None:
    async with make_stand(lease=60, timeout=50, drain=1) as stand:
        ended, free = await hanging_call(stand)
        assert ended < 25
        assert free < 50
        await stand.until_terminal(1)
        figures(drain=1, exited_after=round(ended, 2), called_again_after=round(free, 2), lease=60)
