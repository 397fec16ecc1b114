"""Every named crash point of the source, hit for the first and the second time, by death and by exception."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.checker import read_lines
from tests.support.process import Program
from tests.support.stand import ROOT, Stand

SOURCE = ROOT / "src" / "carillon"
MESSAGES, HITS = 20, (1, 2)
POINTS = (
    "after_accept_commit",
    "after_claim",
    "after_provider_ok",
    "after_settle",
    "before_extend",
    "before_send",
    "before_settle",
)
ELSEWHERE = {"after_stream_read", "before_stream_offset", "before_alert", "after_alert"}
ELSEWHERE |= {"after_mark", "after_settled_mark", "after_audit", "after_park"}
ELSEWHERE |= {"after_business_commit", "after_charge", "after_outgoing_enqueued", "after_refund"}
ELSEWHERE |= {"after_digest_closed", "after_digest_stored"}
ELSEWHERE |= {
    f"erasure_{step}" for step in ("begun", "window", "notifications", "person", "mentions", "history", "noted")
}
ELSEWHERE |= {"after_kafka_read", "before_kafka_commit", "before_history", "after_history", "after_copied_page"}
"""Parts that this stand does not open. Who dies there: test_door_redis_stream_crashes and test_ledger_copy in
tests/contract, test_history in tests/scenario, and here test_digests, test_listo_alerts, test_push_crash_points,
test_billing_crash_points and test_kafka_faults."""
STRUCK = re.compile(r'faultpoint\("(\w+)"\)')


def crash_rules(point: str) -> dict[str, Any]:
    # Five routes to a claim and to a settlement make every point come more than once; slow answers make leases renew.
    slow = {"delay_seconds": 1.5 if point == "before_extend" else 0.2}
    return {"lease": 3.0, "timeout": 2.6, "attempts": 10, "batch": 5, "concurrency": 100, "sandbox": slow}


async def die_at(stand: Stand, point: str) -> None:
    """One process after the other dies at the point's first and second hit; the last one finishes."""
    names = [f"m{place}" for place in range(MESSAGES)]
    producing = asyncio.create_task(stand.send(stand.pushes(names), at_once=MESSAGES))
    for hit in HITS:
        program = stand.launch(faults=f"{point}=exit9@{hit}")
        code = await asyncio.to_thread(program.wait, 60)
        properties.hold("point_was_hit", code == -9, f"{point}@{hit}: exit code {code}")
        await stand.note_held(program.pid)
    await stand.start()
    await producing
    await stand.until_terminal(MESSAGES)


async def break_at(stand: Stand, point: str) -> None:
    """The same process meets an exception there and goes on by itself."""
    for hit in HITS:
        program = await stand.start(faults=f"{point}=raise@{hit}")
        await stand.send(stand.pushes(f"m{hit}-{place}" for place in range(MESSAGES)), at_once=MESSAGES)
        await stand.until_terminal(hit * MESSAGES)
        await hold_what_failed(stand, program)
        properties.hold("point_was_hit", f"faultpoint {point}: raise" in program.noise, f"{point}@{hit}")
        program.terminate()
        code = await asyncio.to_thread(program.wait, 60)
        properties.hold("goes_on_by_itself", code == 0, f"{point}@{hit}: exit code {code}")


async def hold_what_failed(stand: Stand, program: Program) -> None:
    """An exception after the vendor took a message leaves it in flight, as a death would."""
    settled = Counter(f"{row['notification_id']}/{row['route_id']}" for row in await _attempts(stand))
    taken = Counter(str(line["id"]) for line in read_lines(stand.ledger) if line["pid"] == program.pid)
    stand.held.update({name: number - settled[name] for name, number in taken.items() if number > settled[name]})


async def _attempts(stand: Stand) -> list[tables.Row]:
    return await tables.read(stand.url, tables.ATTEMPTS)


@pytest.mark.req("G-04", "G-05")
@pytest.mark.parametrize("point", POINTS)
async def test_death_at_every_crash_point(make_stand: MakeStand, point: str, figures: Callable[..., None]) -> None:
    async with make_stand(**crash_rules(point)) as stand:
        await die_at(stand, point)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        figures(messages=MESSAGES, kills=2, repeats=report.duplicate_count, in_flight=stand.held.total())


@pytest.mark.parametrize("point", POINTS)
async def test_an_exception_at_every_crash_point(
    make_stand: MakeStand, point: str, figures: Callable[..., None]
) -> None:
    async with make_stand(**crash_rules(point)) as stand:
        await break_at(stand, point)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        figures(messages=2 * MESSAGES, faults=2, repeats=report.duplicate_count, in_flight=stand.held.total())


def points_in(folder: Path) -> set[str]:
    return {name for path in folder.rglob("*.py") for name in STRUCK.findall(path.read_text())}


def test_the_enumeration_covers_every_point_in_the_source() -> None:
    assert points_in(SOURCE) == set(POINTS) | ELSEWHERE


@pytest.mark.req("P-573")
def test_every_point_elsewhere_is_struck_by_a_test_of_its_part() -> None:
    """By name, in a file that strikes: no point is only listed."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    striking = "\n".join(text for text in texts if "faults" in text or "FAULTPOINTS" in text or "_POINTS" in text)
    assert {name for name in ELSEWHERE if name not in striking} == set()
