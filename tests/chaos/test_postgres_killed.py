"""PostgreSQL killed with SIGKILL, all of it, and started again under load; Carillon itself is never touched."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import properties
from tests.support.servers import Postgres
from tests.support.stand import Rules, Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

MESSAGES, KILLS = 900, 3


async def kill_the_database(stand: Stand, server: Postgres, number: int, kills: int) -> int:
    """Returns how many sends were under way at the kills, at most."""
    stand.vendor.default = Reply(delay=0.05)
    program = await stand.start()
    producing = asyncio.create_task(stand.send(stand.webhooks(f"m{place}" for place in range(number)), at_once=8))
    in_flight = 0
    for turn in range(1, kills + 1):

        async def enough(wanted: int = turn * number // (kills + 2)) -> bool:
            return len([line for line in stand.producer.lines if line["status"] == 202]) >= wanted

        await until(enough, timeout=40, what="some load accepted")
        await asyncio.to_thread(server.kill)
        down = time.monotonic()
        refused = await stand.producer.once(stand.webhooks(f"down-{turn}-{place}" for place in range(20)))
        # Who asked before may have been told yes after it, for what was committed before it.
        promised = [line for line in stand.producer.lines if line["status"] == 202 and line["began"] > down]
        properties.hold("never_promised_while_down", not promised, promised[:3])
        properties.never_promised_while_down(refused)
        await asyncio.to_thread(server.start)
        in_flight += await stand.note_held()
    await producing
    await stand.until_terminal(number, within=60)
    properties.hold("recovers_alone", program.returncode is None, program.returncode)
    return in_flight


@pytest.mark.req("G-05")
async def test_postgres_killed_under_load_loses_nothing(
    own_postgres: Postgres, tmp_path: Path, figures: Callable[..., None]
) -> None:
    rules = Rules(lease=4.0, timeout=3.0)
    async with Stand(tmp_path / "stand", own_postgres.database(), rules) as stand:
        in_flight = await kill_the_database(stand, own_postgres, MESSAGES, KILLS)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        assert report.accepted == MESSAGES
        refused = sum(line["status"] == 503 for line in stand.producer.lines)
        figures(
            messages=MESSAGES, kills=KILLS, repeats=report.duplicate_count, in_flight=in_flight, answers_503=refused
        )


async def test_sigterm_without_a_database_still_ends_well(
    own_postgres: Postgres, tmp_path: Path, figures: Callable[..., None]
) -> None:
    """What was in flight cannot be settled; its lease runs out, and the next process repeats it under the same id."""
    async with Stand(tmp_path / "stand", own_postgres.database(), Rules(lease=4.0, timeout=3.0, drain=2.0)) as stand:
        stand.vendor.default = Reply(delay=0.5)
        program = await stand.start()
        await stand.send(stand.webhooks(f"m{place}" for place in range(40)))
        await stand.vendor.until(10)
        await asyncio.to_thread(own_postgres.kill)
        began = time.monotonic()
        program.terminate()
        code = await asyncio.to_thread(program.wait, 60)
        ended = time.monotonic() - began
        properties.hold("ends_well", code == 0 and ended < 30, f"exit code {code} after {ended:.1f} s")
        await asyncio.to_thread(own_postgres.start)
        in_flight = await stand.note_held()
        await stand.start()
        await stand.until_terminal(40)
        report = await properties.everything_holds(stand)
        figures(messages=40, ended=round(ended, 1), repeats=report.duplicate_count, in_flight=in_flight)
