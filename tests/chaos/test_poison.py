"""A message that kills every worker that sends it uses up its budget and becomes a dead letter, alone."""

import asyncio
from collections.abc import Callable

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.stand import Stand
from tests.support.vendor import Reply

BUDGET, NEIGHBOURS = 3, 12


async def feed_poison(stand: Stand, neighbours: int, mutant: str | None = None) -> int:
    """Start workers until one survives the poison; returns how many it killed."""
    await stand.start("doors")
    await stand.send(stand.webhooks(["p"], path="poison"))
    await stand.send(stand.webhooks(f"n{place}" for place in range(neighbours)))
    for killed in range(stand.rules.attempts + 1):
        worker = stand.launch("outbound", mutant=mutant)
        stand.vendor.strike_path(worker.pid, "/poison")
        terminal = asyncio.create_task(stand.until_terminal(neighbours + 1, within=60))
        died = asyncio.create_task(asyncio.to_thread(worker.wait, 90))
        await asyncio.wait({terminal, died}, return_when=asyncio.FIRST_COMPLETED)
        terminal.cancel()
        await stand.note_held(worker.pid)
        if worker.returncode is None:
            worker.kill()
            await died
            return killed
        await died
    return stand.rules.attempts + 1


def poison_spent_its_budget(stand: Stand, killed: int) -> None:
    """The vendor saw it exactly as often as the budget allows, and no worker died after that."""
    calls = sum(entry["path"].startswith("/poison") for entry in stand.vendor.entries)
    budget = stand.rules.attempts
    properties.hold("poison_spent_its_budget", calls == killed == budget, f"{calls} calls, {killed} dead workers")


async def poison_is_buried(stand: Stand, neighbours: int) -> None:
    """One dead letter says why; everybody else was told."""
    dead = await tables.read(stand.url, tables.DEAD)
    found = [(row["recipient_ref"], row["failure_classification"]) for row in dead]
    properties.hold("poison_is_buried", found == [("user:p", "crash_loop")], found)
    statuses = {row["status"]: row["n"] for row in await tables.read(stand.url, tables.STATUSES)}
    wanted = {"published": neighbours, "dead_letter": 1}
    properties.hold("poison_is_buried", statuses == wanted, statuses)


async def poison_and_check(stand: Stand, neighbours: int, mutant: str | None = None) -> int:
    killed = await feed_poison(stand, neighbours, mutant)
    poison_spent_its_budget(stand, killed)
    await poison_is_buried(stand, neighbours)
    return killed


async def test_a_poison_message_becomes_a_dead_letter_and_others_are_delivered(
    make_stand: MakeStand, figures: Callable[..., None]
) -> None:
    async with make_stand(attempts=BUDGET, concurrency=1) as stand:
        killed = await poison_and_check(stand, NEIGHBOURS)
        report = await properties.nothing_lost(stand)
        figures(budget=BUDGET, killed=killed, neighbours=NEIGHBOURS, repeats=report.duplicate_count)


async def poison_beside_others(stand: Stand, mutant: str | None = None) -> None:
    """Many could have been claimed beside the poison, each time; none of them is answered before it has killed."""
    stand.vendor.default = Reply(delay=0.3)
    await feed_poison(stand, NEIGHBOURS, mutant)
    await poison_is_buried(stand, NEIGHBOURS)


async def test_a_poison_message_takes_no_neighbour_with_it(make_stand: MakeStand) -> None:
    async with make_stand(attempts=BUDGET, concurrency=100) as stand:
        await poison_beside_others(stand)
