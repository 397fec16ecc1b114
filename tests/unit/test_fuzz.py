"""A short run of `make fuzz` over every reader, and planted faults that it has to find."""

import mmap
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from carillon.border import strict_loads
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from carillon.web import Problem
from tests.fuzz import __main__ as command
from tests.fuzz import running
from tests.fuzz.guided import Reached
from tests.fuzz.mutation import Mutator
from tests.fuzz.running import READ, Counts, Row, Target, feed, run_target, table
from tests.fuzz.stores import arrived

SEED = 16
EACH = 250
READS_ITS_SEEDS = ("border.", "door.", "queue.", "receipts.", "token", "log", "echo", "stream.")


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return command.targets()


def test_an_honest_input_is_read(targets: dict[str, Target]) -> None:
    """Hostile inputs made from what nobody reads would end at the first check."""
    chosen = {name: one for name, one in targets.items() if name.startswith(READS_ITS_SEEDS)}
    assert len(chosen) > 15
    refused = [(name, seed) for name, one in chosen.items() for seed in one.seeds if feed(one, seed) != (READ, None)]
    assert refused == []


@pytest.mark.slow
def test_readers_read_or_refuse_and_do_nothing_else(targets: dict[str, Target]) -> None:
    rows, findings = running.run(targets, Counts(None), seed=SEED, number=EACH * len(targets), seconds=900)
    assert findings == []
    assert {row.tried for row in rows} == {EACH}


def raises(body: bytes) -> None:
    if b"\x00" in body:
        raise KeyError(body[:10])


def hangs(body: bytes) -> None:
    ends = time.process_time() + 5 * (b'"' not in body)
    while time.process_time() < ends:
        pass


def stores(body: bytes) -> Intent:
    said = {"text": body.decode("utf-8", "replace")}
    return Intent(notification_type="t", producer="p", recipients=(), channels=(), payload=said, content=said)


def breaks(body: bytes) -> None:
    if len(body) % 2:
        raise Problem("INTERNAL_ERROR", "ours")


grown: list[mmap.mmap] = []


def grows(body: bytes) -> None:
    # New pages: in memory that another test has left to the process, nothing would seem to grow.
    pages = mmap.mmap(-1, 1 << 19)
    pages.write(body[:0] + b"x" * (1 << 19))
    grown.append(pages)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        pytest.param(raises, "KeyError", id="raises"),
        pytest.param(hangs, "of processor time", id="hangs"),
        pytest.param(arrived(stores), "no store holds", id="stores"),
        pytest.param(breaks, "Problem", id="answers 5xx"),
        pytest.param(grows, "grew by", id="grows"),
    ],
)
def test_control_a_planted_fault_is_found(
    call: Callable[[bytes], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LIMIT_SECONDS", 0.2)
    try:
        row, findings = run_target("planted", Target(call, (b'{"a":"b"}',), (BadIntent, Problem)), SEED, 300, 60)
    finally:
        grown.clear()
    assert row.found == len(findings) > 0
    assert said in findings[0].error


def test_the_same_seed_makes_the_same_inputs() -> None:
    made = [[Mutator(Random(seed), [b'{"a":1}']).next() for _ in range(50)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_an_input_that_reaches_something_new_becomes_a_seed() -> None:
    reached = Reached()
    news = []
    for body in (b'{"a":1}', b'{"a":1}', b"[" * 40):
        with reached:
            feed(Target(strict_loads, (), (BadIntent,)), body)
        news.append(reached.news())
    assert news == [True, False, True]


def test_a_finding_is_kept_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "KEPT", tmp_path)
    monkeypatch.setattr(command, "targets", lambda: {"planted": Target(raises, (b"a",))})
    monkeypatch.setattr(sys, "argv", ["fuzz", "--part", "readers", "--number", "500", "--seed", "7"])
    assert command.main() == 1
    told = capsys.readouterr().out
    assert "FOUND planted: KeyError" in told
    assert f'make fuzz ARGS="--again {tmp_path}/planted-7-0"' in told
    monkeypatch.setattr(sys, "argv", ["fuzz", "--again", str(tmp_path / "planted-7-0")])
    assert command.main() == 1
    (tmp_path / "planted-7-0").write_bytes(b"mended")
    assert command.main() == 0


def test_the_command_prints_a_table_and_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "KEPT", tmp_path)
    words = ("--part", "readers", "--only", "head.", "--number", "200", "--seconds", "60", "--seed", "5")
    monkeypatch.setattr(sys, "argv", ["fuzz", *words])
    assert command.main() == 0
    told = capsys.readouterr().out
    assert "head.words    200" in told
    assert "seed 5: 200 inputs, 0 found; 200 in all runs" in told


def test_rows_are_added_up(tmp_path: Path) -> None:
    for seconds in (0.5, 0.25):
        Counts(tmp_path / "counts.json").add(
            Row(name="a", tried=10, answers={"read": 4, "refused": 6}, slowest_seconds=seconds, stored=0)
        )
    (row,) = Counts(tmp_path / "counts.json").rows.values()
    assert row == Row(name="a", tried=20, answers={"read": 8, "refused": 12}, slowest_seconds=0.5, stored=0)
    assert table([row]).splitlines()[1].split() == [
        "a",
        "20",
        "read",
        "8,",
        "refused",
        "12",
        "500",
        "ms",
        "0",
        "0",
        "MiB",
        *"00",
    ]
