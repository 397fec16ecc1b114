"""Each guard of the galaxy switched off turns its own test red."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.chaos.properties import ViolationError
from tests.chaos.test_galaxy_crash_points import kill_after_publishing, kill_during_acceptance
from tests.chaos.test_galaxy_drain import ended_under_load
from tests.chaos.test_galaxy_outages import directory_away
from tests.chaos.test_galaxy_redis_restarted import galaxy_on, own_redis, restarted_under_load
from tests.chaos.test_galaxy_trimmed import trim
from tests.chaos.test_galaxy_zombies import reader_of_another, release_of_another, stale_failure
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_mutant import MUTANTS, SHARED
from tests.support.servers import Postgres, Redis

__all__ = ["own_redis"]

Scenario = Callable[[FaultyGalaxy, str], Awaitable[object]]

# Mutant to the promise that must be broken, and the scenario of whose test it is.
KILLED_BY: dict[str, tuple[str, Scenario]] = {
    "offset_before_commit": ("nothing_lost", lambda stand, mutant: kill_during_acceptance(stand, 30, mutant)),
    "release_without_token": ("lease_untouched", release_of_another),
    "reader_release_without_token": ("reader_untouched", reader_of_another),
    "unanswered_passed": ("stops_at_the_entry", directory_away),
    "no_trim_alarm": ("alarm_raised", lambda stand, mutant: trim(stand, unread=17, mutant=mutant)),
    "leases_kept": ("nothing_left", ended_under_load),
    "settle_without_token": ("zombie_changed_nothing", stale_failure),
    "id_per_attempt": (
        "nothing_lost",
        lambda stand, mutant: kill_after_publishing(stand, "push", "before_settle", mutant),
    ),
    # So many that a quick machine is in their midst when the signal comes.
    "no_drain": ("nothing_left", lambda stand, mutant: ended_under_load(stand, mutant, 6000)),
}


@pytest.mark.parametrize("mutant", KILLED_BY)
async def test_a_guard_is_missed(galaxy: FaultyGalaxy, mutant: str, figures: Callable[..., None]) -> None:
    promise, scenario = KILLED_BY[mutant]
    with pytest.raises(ViolationError) as caught:
        await scenario(galaxy, mutant)
    assert caught.value.promise == promise
    figures(mutant=mutant, killed_by=promise)


@pytest.mark.parametrize("own_redis", [True], indirect=True)
async def test_a_budget_spent_by_an_outage_is_missed(tmp_path: Path, postgres: Postgres, own_redis: Redis) -> None:
    async with galaxy_on(tmp_path, postgres, own_redis) as stand:
        with pytest.raises(ViolationError) as caught:
            await restarted_under_load(stand, 100, 1, "budget_spent_without_redis")
    assert caught.value.promise == "no_budget_spent"


def test_every_mutant_has_the_promise_that_kills_it() -> None:
    # The two with servers of their own: one above, one beside its test in test_silent_postgres.
    assert set(KILLED_BY) | {"budget_spent_without_redis", "left_late"} == {*MUTANTS, *SHARED}
