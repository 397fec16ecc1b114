"""SIGTERM under load: exit code 0 within its time, no lease left behind, nothing repeated and nothing stuck."""

import asyncio
import time
from collections.abc import Callable, Mapping

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.process import Program

# The time to drain, then the cut; and a busy machine's own share.
SHUTDOWN, CUT_OFF, BUSY = 5.0, 2.0, 8.0
INTENTS, ENDS = 1500, 3
# A Redis that does not answer is given up after a third of it, and leases that were not released stay until they end.
LONG: Mapping[str, str] = {"NOTIFICATION_ROUTE_LEASE_TTL": "30s"}


async def ends_well(stand: FaultyGalaxy, program: Program) -> float:
    began = time.monotonic()
    program.terminate()
    code = await asyncio.to_thread(program.wait, 60)
    took = time.monotonic() - began
    hold("ends_well", code == 0 and took < SHUTDOWN + CUT_OFF + BUSY, f"exit code {code} after {took:.1f} s")
    hold("ends_well", await stand.reader() is None, "the reader's lease is left")
    await promises.nothing_left(stand)
    return took


async def ended_under_load(stand: FaultyGalaxy, mutant: str | None = None, intents: int = INTENTS) -> list[float]:
    """Ended and started again in the midst of reading and publishing."""
    await stand.intents(range(intents))
    took = []
    for turn in range(1, ENDS + 1):
        program = await stand.run(mutant=mutant, env=LONG)
        await stand.has("SELECT count(*) FROM routes WHERE status = 'published'", turn * intents // (ENDS + 1))
        took.append(await ends_well(stand, program))
    await stand.run(mutant=mutant, env=LONG)
    await stand.flowed(intents)
    await promises.nothing_lost(stand)
    await promises.repeats(stand)
    await promises.no_budget_spent(stand, 0)
    return took


@pytest.mark.req("S1-161", "S1-189")
async def test_sigterm_under_load(galaxy: FaultyGalaxy, figures: Callable[..., None]) -> None:
    took = await ended_under_load(galaxy)
    figures(intents=INTENTS, ends=ENDS, repeats=0, slowest_end=round(max(took), 2))
