"""The short form of `make simulate`: worlds of the real engine that a seed schedules, kills and stops at any await."""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from carillon.compose.ledger import parts_needed
from carillon.domain.claims import Claim
from carillon.ledger import statements
from carillon.outbound.leases import Leases
from tests.simulation import world as worlds
from tests.simulation.world import Simulated, World, drawn

DELIVERIES, CRASHES = 300, 6
SEEDS = range(1, 13)
FOUND: dict[int, str] = {}
"""Seeds that have found a fault, and which one: they are played for ever."""
MOST_SEEDS = 60


def play(seed: int, sql: Mapping[str, str] | None = None) -> Simulated:
    return World(seed, DELIVERIES, CRASHES, sql).run()


@pytest.mark.req("P-571")
def test_whoever_dies_or_stops_wherever_nothing_is_lost_or_settled_twice(figures: Callable[..., None]) -> None:
    seen = [play(seed) for seed in [*SEEDS, *FOUND]]
    assert {one.seed: one.wrong for one in seen if one.wrong} == {}
    assert all(one.deliveries == DELIVERIES for one in seen)
    assert all(one.repeats <= one.in_flight + one.silent for one in seen)
    # A fault that never came proves nothing.
    assert sum(one.crashes for one in seen) >= len(SEEDS) * CRASHES // 2
    for name in ("stops", "repeats", "stale", "leases_lost", "silent"):
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


def stopping() -> list[int]:
    """Seeds whose worlds stop processes for longer than their leases."""
    return [
        seed
        for seed in range(1, 1000)
        if drawn(Random(f"world {seed}"), DELIVERIES, CRASHES).stops  # noqa: S311 - no secret
    ][:MOST_SEEDS]


def first_broken(sql: Mapping[str, str] | None = None) -> list[str]:
    """What the first of these worlds that breaks a promise found."""
    return next((found.wrong for found in (play(seed, sql) for seed in stopping()) if found.wrong), [])


def without(statement: str, old: str, new: str) -> dict[str, str]:
    settings = worlds._settings(5, 10, claim_on_accept=True)  # noqa: SLF001 - the parts of every world
    found = dict(statements.load("sqlite", frozenset(parts_needed(settings))))
    assert old in found[statement]
    return found | {statement: found[statement].replace(old, new)}


@pytest.mark.parametrize(
    ("statement", "old", "new", "said"),
    [
        ("settle_judge", "r.ticket = :token OR r.claim_token = :token", "TRUE", "of a former holder was applied"),
        ("lapse", "ticket = :held AND", "ticket = :held AND FALSE AND", "not ended"),
        ("enrol", "ON CONFLICT DO NOTHING", "", "records"),
    ],
)
def test_control_a_clause_that_is_missing_is_found(statement: str, old: str, new: str, said: str) -> None:
    assert said in " ".join(first_broken(without(statement, old, new)))


def test_control_a_worker_that_does_not_look_at_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_self: Leases, claims: list[Claim]) -> list[float]:
        return [15.0 for _ in claims]

    monkeypatch.setattr(Leases, "all_seconds_left", endless)
    monkeypatch.setattr(Leases, "seconds_left", lambda _self, _claim: 15.0)
    assert "sent by one who no longer holds it" in " ".join(first_broken())
