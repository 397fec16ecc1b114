"""The short form of `make simulate`: worlds of the real engine that a seed schedules, kills and stops at any await."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from carillon.compose.ledger import parts_needed
from carillon.domain.claims import Claim
from carillon.ledger import statements
from carillon.ledger.leases import LeaseBook
from carillon.outbound.leases import Leases
from tests.chaos.test_crash_points import POINTS
from tests.simulation.ground import settings_of
from tests.simulation.points import HARMS, HITS, Armed, Harm, armed
from tests.simulation.swarm import Swarm, harsh
from tests.simulation.vendor import Temper
from tests.simulation.world import Simulated, World

DELIVERIES, CRASHES = 300, 6
SEEDS = range(1, 13)
OWN_REPEAT = "a notification accepted again by the process that was sending it was claimed a second time"
FOUND = {14: OWN_REPEAT, 24: OWN_REPEAT}
"""Seeds that have found a fault of the code of their day, and which one: they are played for ever."""
MOST_SEEDS = 12


def play(seed: int, sql: Mapping[str, str] | None = None) -> Simulated:
    return World(seed, DELIVERIES, CRASHES, sql).run()


@pytest.mark.req("P-571")
def test_nothing_is_lost_or_settled_twice_when_processes_die_or_stop_anywhere(figures: Callable[..., None]) -> None:
    seen = [play(seed) for seed in [*SEEDS, *FOUND]]
    assert {one.seed: one.wrong for one in seen if one.wrong} == {}
    assert all(one.deliveries == DELIVERIES for one in seen)
    assert all(one.repeats <= one.in_flight + one.silent for one in seen)
    # A fault that never came proves nothing.
    assert sum(one.crashes for one in seen) >= len(SEEDS) * CRASHES // 2
    for name in ("stops", "repeats", "stale", "silent"):
        assert sum(getattr(one, name) for one in seen) > 0, name
    figures(
        worlds=len(seen),
        deliveries=sum(one.deliveries for one in seen),
        crashes=sum(one.crashes for one in seen),
        repeats=sum(one.repeats for one in seen),
        in_flight=sum(one.in_flight for one in seen),
        lost=0,
    )


@pytest.mark.req("P-571")
def test_the_same_seed_plays_the_same_world() -> None:
    assert play(3) == play(3)
    assert play(3).digest != play(4).digest


def first_broken(sql: Mapping[str, str] | None = None) -> list[str]:
    """What the first of the harsh worlds that breaks a promise found."""
    for seed in range(1, MOST_SEEDS):
        world = World(seed, DELIVERIES, CRASHES, sql, harsh(seed, DELIVERIES, CRASHES))
        world.hurry(turns=60_000, patience=1500.0)
        found = world.run()
        if found.wrong:
            return found.wrong
    return []


def without(statement: str, old: str, new: str) -> dict[str, str]:
    settings = settings_of(5, 10, claim_on_accept=True)
    found = dict(statements.load("sqlite", frozenset(parts_needed(settings))))
    assert old in found[statement]
    return found | {statement: found[statement].replace(old, new)}


@pytest.mark.parametrize(
    ("statement", "old", "new", "said"),
    [
        ("settle_judge", "r.ticket = :token OR r.claim_token = :token", "TRUE", "of a former holder was applied"),
        ("lapse", "ticket = :held AND", "ticket = :held AND FALSE AND", "not ended"),
    ],
)
def test_control_a_clause_that_is_missing_is_found(statement: str, old: str, new: str, said: str) -> None:
    assert said in " ".join(first_broken(without(statement, old, new)))


def asked_twice(sql: Mapping[str, str] | None = None) -> list[str]:
    """What worlds find in which every caller asks a second time, at once."""
    for seed in range(1, 4):
        swarm = msgspec.structs.replace(harsh(seed, 100, 0), claim_on_accept=True, repeats=1.0, stops=0, timed=0.0)
        found = World(seed, 100, 0, sql, swarm).run()
        if found.wrong:
            return found.wrong
    return []


@pytest.mark.req("P-572")
def test_what_is_accepted_again_while_it_is_sent_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_twice() == []
    # The control: every lease of the own name is taken for one whose answer was lost.
    monkeypatch.setattr(LeaseBook, "known", lambda _self: [])
    held = ":ticket IN (SELECT value FROM json_each(leases.tickets))"
    found = asked_twice(without("own_lease", "lease_id = :ticket", held))
    assert "and 0 faults met it in flight" in " ".join(found)


CALM = Swarm(
    processes=2,
    first_claims=2,
    concurrency=10,
    claim_on_accept=True,
    thread_seconds=0.004,
    crashes=0,
    stops=0,
    shaky=0.0,
    repeats=0.0,
    timed=0.0,
    # Calls that take longer than a third of a lease, so that leases are renewed.
    tempers=dict.fromkeys(("first", "second", "batches"), Temper(median_seconds=8.0, unavailable=0.05)),
    people=(1, 3),
)


def excused(point: str, harm: Harm, line: str) -> bool:
    """Between a process's look at its lease and its call is nothing but this point: who hangs there calls too late.

    It is one call, or one batch; `repeats` bounds it as any other.
    """
    return (point, harm) == ("before_send", "hang") and line.endswith("sent by one who no longer holds it")


@pytest.mark.req("P-573")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("point", POINTS)
def test_every_crash_point_at_its_first_second_and_tenth_pass(point: str, harm: Harm) -> None:
    for hit in HITS:
        world, fault = World(hit, 80, 0, swarm=CALM), Armed(point, harm, hit)
        with armed(world, fault):
            found = world.run()
        assert fault.struck, f"{point} was passed {fault.passes} times"
        assert [line for line in found.wrong if not excused(point, harm, line)] == [], f"{harm} at {point}, pass {hit}"
        assert found.deliveries == 80
        assert found.repeats <= found.in_flight


def test_control_a_worker_that_does_not_look_at_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_self: Leases, claims: list[Claim]) -> list[float]:
        return [15.0 for _ in claims]

    monkeypatch.setattr(Leases, "all_seconds_left", endless)
    monkeypatch.setattr(Leases, "seconds_left", lambda _self, _claim: 15.0)
    world = World(10, 80, 0, swarm=CALM)
    with armed(world, Armed("after_claim", "hang", 10)):
        found = world.run()
    assert "and 0 faults met it in flight" in " ".join(found.wrong), "what it claimed before the hang was sent after it"
