"""A long steady load with a fault every minute, in which nothing may grow: memory, descriptors, connections, tables."""

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fleet import faults, page
from tests.fleet.ordeal import CALM
from tests.fleet.running import Fleet, Outcome, Plan, concluded
from tests.fleet.topology import Servers
from tests.support.servers import find_binary

RATE = 500.0
EVERY_SECONDS = 60.0
ELDEST = 0
_CALM_FAULTS = ("process killed", "connections cut", "vendor answers 429", "PostgreSQL switched over")
_SIZES = (
    "SELECT count(*), coalesce(sum(pg_table_size(oid)), 0), coalesce(sum(pg_indexes_size(oid)), 0) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)
_COLUMNS = (
    *("minute", "MB of the eldest", "MB of a process", "descriptors", "connections"),
    *("queue, MB", "tables, MB", "indexes, MB", "routes", "bytes of each"),
)
_QUEUE = "SELECT pg_total_relation_size('due') + pg_total_relation_size('leases')"
"""What every notification enters and leaves again: where dead rows would pile up first."""


@dataclass(frozen=True)
class Sample:
    """What one minute found."""

    minute: float
    eldest_mb: float
    """Of the process that no fault ends: what it never gives back would show here."""
    memory_mb: float
    descriptors: int
    connections: int
    tables_mb: float
    indexes_mb: float
    queue_mb: float
    rows: int
    accepted: int


def look(fleet: Fleet, began: float) -> Sample:
    pids = [program.pid for crew in fleet.crews for _, program in crew.alive()]
    memory = sum(_resident(pid) for pid in pids)
    descriptors = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
    url = fleet.crews[0].url
    _, tables, indexes = _ask(url, _SIZES).split("|")
    return Sample(
        minute=round((time.monotonic() - began) / 60, 1),
        eldest_mb=round(_resident(dict(fleet.crews[0].alive())[ELDEST].pid) / 1e6, 1),
        memory_mb=round(memory / len(pids) / 1e6, 1),
        descriptors=descriptors // len(pids),
        connections=int(_ask(url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")),
        tables_mb=round(int(tables) / 1e6, 1),
        indexes_mb=round(int(indexes) / 1e6, 1),
        queue_mb=round(int(_ask(url, _QUEUE)) / 1e6, 1),
        rows=int(_ask(url, "SELECT count(*) FROM routes")),
        accepted=fleet.accepted,
    )


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(
        int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_", "Pss:")) and "Pss" not in line
    )


def _ask(url: str, statement: str) -> str:
    psql = [find_binary("psql"), "-X", "-A", "-t", "-q", "-c", statement, url]
    return subprocess.run(psql, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


async def run(servers: Callable[[], Servers], plan: Plan, say: Callable[[str], None]) -> tuple[Outcome, list[Sample]]:
    async with Fleet(servers, plan, say) as fleet:
        fleet.world.spared = ELDEST
        over = asyncio.Event()
        began = time.monotonic()
        load = [asyncio.create_task(door.run(over.is_set)) for door in fleet.doors]
        asked = faults.applicable(fleet.world, short=False, only=plan.only)
        chosen = [each for each in asked if each.name.startswith(_CALM_FAULTS)]
        samples: list[Sample] = []
        while time.monotonic() - began < plan.seconds and not fleet.ordeal.suffered.ended_early:
            minute = time.monotonic()
            await fleet.ordeal.strike(fleet.dice.choice(chosen), f"{minute - began:5.0f} s")
            await asyncio.sleep(max(0.0, EVERY_SECONDS - (time.monotonic() - minute)))
            # A look that fails, because a server is just changing, is no reason to end an hour of load.
            try:
                samples.append(await asyncio.to_thread(look, fleet, began))
            except (OSError, KeyError, subprocess.SubprocessError) as error:
                say(f"not looked at: {error}")
                continue
            say(str(samples[-1]))
        over.set()
        await asyncio.gather(*load)
        seconds = time.monotonic() - began
        await asyncio.sleep(CALM)
        return await concluded(fleet, seconds), samples


def text(outcome: Outcome, samples: list[Sample]) -> str:
    asked = outcome.plan.rate
    rate = outcome.accepted / outcome.seconds
    times = ", ".join(f"{name} {number} times" for name, number in sorted(Counter(outcome.faults).items()))
    lines = [
        f"Run of {time.strftime('%Y-%m-%d')}: {outcome.seconds / 60:.1f} minutes, {asked:.0f} a second asked for,",
        f"{rate:.0f} a second accepted ({outcome.accepted} in all), a fault every minute: {times}.",
        f"Repeated: {sum(each.repeats for each in outcome.figures.values())}. Everything was terminal",
        f"{outcome.quiet_seconds:.0f} s after the end of the load. Verdict of the checker: **{outcome.verdict}**.",
        f"Machine: {page.machine()}.",
        "",
        *page.reasons(outcome),
        "*Eldest* is the process that no fault ends. *Queue* is the tables `due` and `leases`, which every route",
        "enters and leaves again.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "| ---: " * len(_COLUMNS) + "|",
    ]
    for each in samples:
        size = round((each.tables_mb + each.indexes_mb) * 1e6 / max(1, each.rows))
        figures = (each.minute, each.eldest_mb, each.memory_mb, each.descriptors, each.connections)
        stored = (each.queue_mb, each.tables_mb, each.indexes_mb, each.rows, size)
        lines.append(f"| {' | '.join(map(str, (*figures, *stored)))} |")
    return "\n".join(lines)


def main(servers: Callable[[], Servers], plan: Plan, say: Callable[[str], None], *, write: bool) -> int:
    # Pages that a fork shares with others become its own when they are touched: that looks like memory that grows.
    steady = replace(plan, names=("local",), rate=RATE if plan.rate == 60.0 else plan.rate, forked=False)
    outcome, samples = asyncio.run(run(servers, steady, say))
    told = text(outcome, samples)
    say(told)
    if not outcome.sound:
        say(f"NOT SOUND\n{outcome.wrong()}")
    if write:
        page.replace_part(page.SOAK, told)
    return not outcome.sound
