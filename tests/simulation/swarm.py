"""Which faults a simulated world has: a seed draws some of all."""

import random

import msgspec

from tests.simulation.vendor import Temper


class Swarm(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one world; not all are on in each, so that they do not hide one another."""

    processes: int
    first_claims: int
    concurrency: int
    claim_on_accept: bool
    thread_seconds: float
    crashes: int
    stops: int
    """How often a process is stopped for longer than its leases."""
    shaky: float
    """How often the ledger does not answer."""
    repeats: float
    """How often a caller sends a request again that was answered."""
    timed: float
    """How many notifications are scheduled, or expire."""
    tempers: dict[str, Temper]
    people: tuple[int, ...] = (1, 1, 3, 10, 40)
    """How many people a notification may have."""


def drawn(dice: random.Random, deliveries: int, crashes: int) -> Swarm:
    """The faults that a seed draws."""

    def some(share: float) -> float:
        return share * dice.random() if dice.random() < 0.5 else 0.0

    def temper() -> Temper:
        begins = dice.uniform(5.0, 120.0)
        away = ((begins, begins + dice.uniform(20.0, 300.0)),) if dice.random() < 0.2 else ()
        return Temper(
            unavailable=some(0.2),
            throttled=some(0.05),
            silent=some(0.01),
            refused=some(0.01),
            median_seconds=dice.choice([0.02, 0.15, 1.0]),
            outages=away,
        )

    return Swarm(
        processes=dice.choice([2, 3]),
        first_claims=dice.choice([2, 10, 50]),
        concurrency=dice.choice([20, 60, 150]),
        claim_on_accept=dice.random() < 0.7,
        thread_seconds=dice.choice([0.0005, 0.004, 0.05]),
        crashes=crashes,
        stops=dice.choice([0, 0, max(1, deliveries // 200)]),
        shaky=some(0.02),
        repeats=some(0.1),
        timed=some(0.1),
        tempers={name: temper() for name in ("first", "second", "batches")},
    )


def harsh(seed: int, deliveries: int, crashes: int) -> Swarm:
    """The faults of a seed, and many processes that come back after their leases with failures to tell.

    A missing guard shows in such a world at once; the usual ones would need many more.
    """
    swarm = drawn(random.Random(f"harsh {seed}"), deliveries, crashes)
    tempers = {
        name: msgspec.structs.replace(temper, unavailable=max(temper.unavailable, 0.15), median_seconds=1.0)
        for name, temper in swarm.tempers.items()
    }
    return msgspec.structs.replace(swarm, stops=8, repeats=0.1, timed=0.1, tempers=tempers)
