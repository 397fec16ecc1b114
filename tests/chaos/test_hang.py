"""A process whose event loop hangs ends itself, and another one delivers what it held."""

import asyncio
import subprocess
from collections.abc import Callable
from contextlib import suppress

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support.stand import Stand

MESSAGES = 30


async def hang(stand: Stand, mutant: str | None = None) -> None:
    """A minute in one call that never yields: thirty times what the watchdog allows."""
    await stand.start("doors")
    worker = await stand.start("outbound", faults="before_send=sleep:60000", mutant=mutant)
    await stand.send(stand.webhooks(f"m{place}" for place in range(MESSAGES)))
    code = None
    with suppress(subprocess.TimeoutExpired):
        code = await asyncio.to_thread(worker.wait, 30 if mutant is None else 6)
    properties.hold("hung_process_ends", code == 70, f"exit code {code}")
    await stand.note_held(worker.pid)
    await stand.start("outbound")
    await stand.until_terminal(MESSAGES)


async def test_a_hung_process_exits_and_another_delivers(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand() as stand:
        await hang(stand)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        figures(messages=MESSAGES, in_flight=stand.held.total(), repeats=report.duplicate_count)
