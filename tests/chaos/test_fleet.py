"""The two-minute form of `make prove`: every blueprint, each server alone, quick faults; and tests of the checker."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fleet import checker
from tests.fleet.running import Plan, run
from tests.fleet.topology import PlainServers

SECONDS, RATE, LEAST = 75.0, 70.0, 5_000


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.req("P-587")
async def test_a_fleet_outlives_two_minutes_of_faults(figures: Callable[..., None]) -> None:
    plan = Plan(seconds=SECONDS, rate=RATE, size=2, seed=7, short=True, least=LEAST)
    outcome = await run(PlainServers, plan, lambda _: None)
    assert outcome.sound, outcome.wrong()
    assert outcome.accepted >= LEAST
    assert outcome.exits == [0] * 14
    assert outcome.quiet_seconds <= 60
    figures(accepted=outcome.accepted, repeats=sum(each.repeats for each in outcome.figures.values()))


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """What a sound run of one crew leaves: three notifications, one of them sent again because of a kill."""
    ledger = tmp_path / "ledger.db"
    with closing(sqlite3.connect(ledger)) as file, file:
        file.executescript(_TABLES)
        for number in range(3):
            ended = 1000_000 + number
            file.execute("INSERT INTO records VALUES (?, ?)", (f"n{number}", f"k{number}"))
            file.execute(
                "INSERT INTO routes VALUES (?, 'webhook:x', 'published', ?, NULL, NULL)", (f"n{number}", ended * 10)
            )
    store = {"local": {"url": f"sqlite:///{ledger}", "schema": "", "redis": ""}}
    (tmp_path / "stores.json").write_text(json.dumps(store))
    window = {"fault": "killed", "began": 900, "ended": 9000, "struck": 1000, "until": 1001}
    (tmp_path / "windows.jsonl").write_text(json.dumps(window) + "\n")
    _write(tmp_path / "journal-local.jsonl", [_accepted(number) for number in range(3)])
    _write(tmp_path / "hooks.jsonl", [_sent(0, 999), _sent(0, 1010), _sent(1, 1000), _sent(2, 1100)])
    yield tmp_path
    shutil.rmtree(tmp_path)


_TABLES = """
CREATE TABLE records (notification_id, idempotency_key);
CREATE TABLE routes (notification_id, route_id, status, published_at, dead_lettered_at, skipped_at);
CREATE TABLE attempts_told (notification_id, route_id, settled, verdict);
"""


def _accepted(number: int, key: str | None = None) -> dict[str, object]:
    return {
        "key": key or f"k{number}",
        "status": "accepted",
        "id": f"n{number}",
        "asked": 990,
        "answered": 1000 + number,
    }


def _sent(number: int, at: float, own_id: str | None = None) -> dict[str, object]:
    own = own_id or f"n{number}/webhook:x"
    return {"id": own, "path": f"/local/k{number}", "status": 200, "time_us": at * 1_000_000}


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


@pytest.mark.req("P-587")
async def test_the_checker_finds_nothing_in_a_sound_run(left: Path) -> None:
    found = (await checker.check(left))["local"]
    assert found.sound, found
    assert (found.accepted, found.repeats) == (3, 1)
    cell = found.windows["killed"]
    assert (cell.repeated, cell.in_flight, cell.unavailable) == (1, 2, 1.0)


@pytest.mark.req("P-587")
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"journal-local.jsonl": _accepted(9)}, "lost"),
        ({"journal-local.jsonl": _accepted(8, "k1")}, "lost"),
        ({"hooks.jsonl": _sent(2, 1200)}, "unexplained"),
        ({"hooks.jsonl": _sent(1, 1000.5, "another")}, "renamed"),
        ("UPDATE routes SET status = 'pending' WHERE notification_id = 'n1'", "unfinished"),
        ("UPDATE routes SET status = 'dead_letter' WHERE notification_id = 'n1'", "given_up"),
        ("INSERT INTO records VALUES ('n7', 'k1')", "split"),
        ("INSERT INTO attempts_told VALUES ('n1', 'r', 'applied', 'finish'), ('n1', 'r', 'adopted', 'finish')",
         "settled_twice"),
    ],
)  # fmt: skip
async def test_the_checker_finds_every_kind_of_wrong(
    left: Path, wrong: str | dict[str, dict[str, object]], named: str
) -> None:
    if isinstance(wrong, str):
        with closing(sqlite3.connect(left / "ledger.db")) as file, file:
            file.execute(wrong)
    else:
        for name, line in wrong.items():
            _write(left / name, [line])
    found = (await checker.check(left))["local"]
    assert getattr(found, named), found
    assert not found.sound
    assert [name for name in ("lost", "split", "unfinished", "given_up") if getattr(found, name)] in ([named], [])


@pytest.mark.req("P-587")
async def test_the_checker_misses_a_send_that_never_came(left: Path) -> None:
    (left / "hooks.jsonl").write_text("")
    found = (await checker.check(left))["local"]
    assert found.never_sent == ["k0", "k1", "k2"]
