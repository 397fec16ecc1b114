"""Every named crash point of the engine, hit for the first, second and tenth time: by death, exception and hang."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import properties
from tests.support import tables
from tests.support.checker import read_lines
from tests.support.process import Program
from tests.support.producer import Line
from tests.support.stand import ROOT, Rules, Stand
from tests.support.waiting import until

SOURCE = ROOT / "src" / "carillon"
HITS = {1: 20, 2: 20, 10: 100}
"""Which pass of a point is hit, and how many messages make sure that it comes."""
FIRST = {1: 20, 2: 20}
"""For SQLite: test_simulation plays its tenth passes and its hangs, in virtual time."""
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
Hits = Mapping[int, int]
STRUCK = re.compile(r'faultpoint\("(\w+)"\)')


def points_in(folder: Path) -> set[str]:
    return {name for path in folder.rglob("*.py") for name in STRUCK.findall(path.read_text())}


POINTS = tuple(sorted(points_in(SOURCE) - ELSEWHERE))
"""Made from the code: a new point is hit in every way from its first day on."""


def crash_rules(point: str) -> dict[str, Any]:
    # Five routes to a claim and to a settlement make every point come often; slow answers of few calls at once make
    # leases renew for as long as ten renewals take.
    renewed = point == "before_extend"
    slow = {"delay_seconds": 1.5 if renewed else 0.2}
    return {
        "lease": 3.0,
        "timeout": 2.6,
        "attempts": 10,
        "batch": 5,
        "concurrency": 10 if renewed else 100,
        "sandbox": slow,
    }


def sending(stand: Stand, point: str, hit: int) -> "asyncio.Task[list[Line]]":
    """The messages of one hit are on their way; those of one moment are accepted in one commit."""
    names = [f"m{hit}-{place}" for place in range(HITS[hit])]
    return asyncio.create_task(stand.send(stand.pushes(names), at_once=5 if point == "after_accept_commit" else 20))


async def die_at(stand: Stand, point: str, hits: Hits = HITS) -> None:
    """One process after the other dies at the point; the last one finishes."""
    producing = []
    for hit in hits:
        producing.append(sending(stand, point, hit))
        program = stand.launch(faults=f"{point}=exit9@{hit}")
        code = await asyncio.to_thread(program.wait, 60)
        properties.hold("point_was_hit", code == -9, f"{point}@{hit}: exit code {code}")
        await stand.note_held(program.pid)
    await stand.start()
    await asyncio.gather(*producing)
    await stand.until_terminal(sum(hits.values()))


async def break_at(stand: Stand, point: str, hits: Hits = HITS) -> None:
    """The same process meets an exception there and goes on by itself."""
    number = 0
    for hit, messages in hits.items():
        program = await stand.start(faults=f"{point}=raise@{hit}")
        await sending(stand, point, hit)
        number += messages
        await stand.until_terminal(number)
        await hold_what_failed(stand, program)
        properties.hold("point_was_hit", f"faultpoint {point}: raise" in program.noise, f"{point}@{hit}")
        await ended_well(program, f"{point}@{hit}")


async def hang_at(stand: Stand, point: str, hits: Hits = HITS) -> None:
    """A process stands still until its leases have ended and another one has its work; then it goes on."""
    number = 0
    for hit, messages in hits.items():
        number += messages
        await hang_once(stand, point, hit, number)


async def hang_once(stand: Stand, point: str, hit: int, number: int) -> None:
    zombie = await stand.start(faults=f"{point}=stop@{hit}")
    producing = sending(stand, point, hit)
    await until(lambda: _has_noise(zombie, point), timeout=60, what=f"{point}@{hit}")
    await stand.note_held(zombie.pid)
    await stand.end_leases()
    heir = await stand.start("outbound")
    await stand.until_rows(tables.HELD, lambda rows: not held_by(rows, zombie))
    zombie.cont()
    await producing
    await stand.until_terminal(number)
    for program in (zombie, heir):
        await ended_well(program, f"{point}@{hit}")


async def _has_noise(program: Program, point: str) -> bool:
    return f"faultpoint {point}: stop" in program.noise


def held_by(rows: list[tables.Row], program: Program) -> bool:
    return any(str(row["lease_owner"]).endswith(f"/{program.pid}") for row in rows)


async def ended_well(program: Program, what: str) -> None:
    program.terminate()
    code = await asyncio.to_thread(program.wait, 60)
    properties.hold("goes_on_by_itself", code == 0, f"{what}: exit code {code}")


async def hold_what_failed(stand: Stand, program: Program) -> None:
    """An exception after the vendor took a message leaves it in flight, as a death would."""
    settled = Counter(f"{row['notification_id']}/{row['route_id']}" for row in await _attempts(stand))
    taken = Counter(str(line["id"]) for line in read_lines(stand.ledger) if line["pid"] == program.pid)
    stand.held.update({name: number - settled[name] for name, number in taken.items() if number > settled[name]})


async def _attempts(stand: Stand) -> list[tables.Row]:
    return await tables.read(stand.url, tables.ATTEMPTS)


WAYS = {"death": die_at, "exception": break_at, "hang": hang_at}


@pytest.mark.req("G-04", "G-05", "P-573", "P-632")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", POINTS)
async def test_every_crash_point_in_every_way(
    durable_dsn: str, tmp_path: Path, point: str, way: str, figures: Callable[..., None]
) -> None:
    """On PostgreSQL: the first, the second and the tenth pass."""
    async with Stand(tmp_path / "stand", durable_dsn, Rules(**crash_rules(point))) as stand:
        await WAYS[way](stand, point)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        figures(
            messages=sum(HITS.values()),
            faults=len(HITS),
            repeats=report.duplicate_count,
            in_flight=stand.held.total(),
        )


@pytest.mark.req("G-04", "G-05")
@pytest.mark.parametrize("way", ["death", "exception"])
@pytest.mark.parametrize("point", POINTS)
async def test_crash_points_on_sqlite(tmp_path: Path, point: str, way: str, figures: Callable[..., None]) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with Stand(tmp_path / "stand", url, Rules(**crash_rules(point))) as stand:
        await WAYS[way](stand, point, FIRST)
        report = await properties.everything_holds(stand)
        await properties.all_published(stand)
        figures(messages=sum(FIRST.values()), faults=2, repeats=report.duplicate_count, in_flight=stand.held.total())


def test_the_list_is_made_from_the_code(tmp_path: Path) -> None:
    """Each point is played here or is one of another part, and a point that somebody adds is found."""
    assert set(POINTS) | ELSEWHERE == points_in(SOURCE)
    assert {"after_accept_commit", "after_claim", "before_send", "after_provider_ok", "after_settle"} <= set(POINTS)
    (tmp_path / "new.py").write_text('faultpoint("after_something_new")')
    assert points_in(tmp_path) - ELSEWHERE == {"after_something_new"}


@pytest.mark.req("P-573")
def test_every_point_elsewhere_is_struck_by_a_test_of_its_part() -> None:
    """By name, in a file that strikes: no point is only listed."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    striking = "\n".join(text for text in texts if "faults" in text or "FAULTPOINTS" in text or "_POINTS" in text)
    assert {name for name in ELSEWHERE if name not in striking} == set()


@pytest.mark.req("P-664")
def test_the_table_of_crash_points_has_each_of_them_once() -> None:
    text = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    rows = text.partition("## Crash points\n")[2].partition("\n## ")[0].splitlines()
    told = [name for row in rows if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(told) == sorted(points_in(SOURCE))
    for row in rows:
        if row.startswith("| `"):
            names, by = re.findall(r"`(\w+)`", row.split("|")[1]), re.findall(r"`(tests/\S+)`", row)
            assert by, row
            texts = "".join((ROOT / path).read_text() for path in by)
            # Those of the engine are not named in tests: their list is made from the code.
            assert set(names) == set(POINTS) or all(name in texts for name in names), row
