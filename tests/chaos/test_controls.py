"""Each guard switched off turns its own test red: a promise that cannot be broken proves nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.chaos.conftest import MakeStand
from tests.chaos.properties import ViolationError
from tests.chaos.test_clocks import LIBRARY, clock_rules, wrong_clocks
from tests.chaos.test_disk_full import Disk, disk, fill_the_disk
from tests.chaos.test_drain import rolling_restarts
from tests.chaos.test_hang import hang
from tests.chaos.test_outage import asked_to_wait, outage
from tests.chaos.test_poison import poison_and_check, poison_beside_others
from tests.chaos.test_worker_killed import kill_and_check
from tests.chaos.test_zombies import PATIENT, late_success, renewal, stale_failure, stale_renewal
from tests.support.mutant import MUTANTS
from tests.support.stand import Rules, Stand

__all__ = ["disk"]

Scenario = Callable[[Stand, str], Awaitable[object]]

# Mutant to the promise that must be broken; the scenario is the one its own test runs.
KILLED_BY = {
    "settle_without_token": "zombie_changed_nothing",
    "extend_without_token": "lease_untouched",
    "no_adoption": "late_success_closed",
    "no_renewal": "lease_renewed",
    "id_per_attempt": "nothing_lost",
    "no_attempts_cap": "poison_spent_its_budget",
    "no_drain": "ends_well",
    "no_watchdog": "hung_process_ends",
    "no_breaker": "no_attempt_burnt",
    "no_retry_after": "waited_as_asked",
    "no_slow_start": "poison_is_buried",
    "answer_before_commit": "never_promised_while_down",
    "node_clock": "retried_in_time",
}
ELSEWHERE = {"digest_without_id", "nothing_is_paused"}
"""Mutants that tests/chaos/test_digests.py and tests/scenario/test_pauses_controls.py run."""
SQL: dict[str, Scenario] = {
    "settle_without_token": stale_failure,
    "extend_without_token": stale_renewal,
    "no_adoption": late_success,
}
CODE: dict[str, tuple[Rules, Scenario]] = {
    "no_renewal": (PATIENT, renewal),
    "id_per_attempt": (Rules(), lambda stand, mutant: kill_and_check(stand, 40, 1, mutant)),
    "no_attempts_cap": (Rules(attempts=2, concurrency=1), lambda stand, mutant: poison_and_check(stand, 2, mutant)),
    "no_drain": (Rules(lease=20, timeout=15), lambda stand, mutant: rolling_restarts(stand, 1, mutant)),
    "no_watchdog": (Rules(), hang),
    "no_breaker": (Rules(attempts=3, failures=5, open_seconds=0.5, delay=0.1), outage),
    "no_retry_after": (Rules(), asked_to_wait),
    "no_slow_start": (Rules(attempts=2, concurrency=100), poison_beside_others),
}


async def broken_promise(stand: Stand, mutant: str, scenario: Scenario) -> str:
    async with stand:
        with pytest.raises(ViolationError) as caught:
            await scenario(stand, mutant)
    return caught.value.promise


@pytest.mark.parametrize("mutant", SQL)
async def test_a_guard_in_the_statements_is_missed(
    make_stand: MakeStand, mutant: str, figures: Callable[..., None]
) -> None:
    broken = await broken_promise(make_stand(**asdict(PATIENT)), mutant, SQL[mutant])
    assert broken == KILLED_BY[mutant]
    figures(mutant=mutant, killed_by=f"{SQL[mutant].__name__}: {broken}")


@pytest.mark.parametrize("mutant", CODE)
async def test_a_guard_in_the_code_is_missed(mutant: str, tmp_path: Path, figures: Callable[..., None]) -> None:
    rules, scenario = CODE[mutant]
    broken = await broken_promise(Stand(tmp_path / "stand", f"sqlite:///{tmp_path}/ledger.db", rules), mutant, scenario)
    assert broken == KILLED_BY[mutant]
    figures(mutant=mutant, killed_by=broken)


async def test_an_answer_before_the_commit_is_missed(disk: Disk, tmp_path: Path, figures: Callable[..., None]) -> None:
    stand = Stand(tmp_path / "stand", f"sqlite:///{disk.folder}/ledger.db", Rules(concurrency=100))
    broken = await broken_promise(stand, "answer_before_commit", lambda each, name: fill_the_disk(each, disk, name))
    assert broken == KILLED_BY["answer_before_commit"]
    figures(mutant="answer_before_commit", killed_by=f"fill_the_disk: {broken}")


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_leases_by_the_processs_own_clock_are_missed(
    durable_dsn: str, tmp_path: Path, figures: Callable[..., None]
) -> None:
    broken = await broken_promise(Stand(tmp_path / "stand", durable_dsn, clock_rules()), "node_clock", wrong_clocks)
    assert broken == KILLED_BY["node_clock"]
    figures(mutant="node_clock", killed_by=f"wrong_clocks: {broken}")


def test_every_mutant_has_the_promise_that_kills_it() -> None:
    assert set(KILLED_BY) | ELSEWHERE == set(MUTANTS)
    assert {*SQL, *CODE, "answer_before_commit", "node_clock"} == set(KILLED_BY)
