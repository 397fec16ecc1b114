"""Accepting over HTTP: coalesced commits against one INSERT a request, and against no database at all."""

import sys
from collections.abc import Callable

from bench.measure import Outcome, Ratio, interleaved
from bench.stage import carillon, started, wrk
from tests.support.servers import Postgres

PART = "accept"
OURS, SINGLE, BARE = "Carillon, coalesced", "one INSERT a request, 64 connections", "the endpoint without a database"


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3, seconds: float = 5.0) -> Outcome:
    """Requests a second at 64 connections, each with an idempotency key of its own."""

    def door(mode: str) -> float:
        dsn = postgres.database()
        with started([sys.executable, "-m", "bench.runners.door", mode, dsn]) as (_, ready):
            return _load(ready["addresses"][0], seconds)

    def ours() -> float:
        env = {"DATABASE_URL": postgres.database()}
        with carillon(env, "--roles", "doors") as (_, address):
            return _load(address, seconds)

    subjects = {OURS: ours, SINGLE: lambda: door("single"), BARE: lambda: door("bare")}
    outcome = Outcome(interleaved(PART, "requests/s", subjects, rounds, progress))
    outcome.settings = {"accept": f"wrk, 1 thread, 64 connections, {seconds:g} s, {rounds} rounds"}
    found = outcome.median(OURS)
    outcome.ratios = [
        Ratio("accept/one-insert-per-request", found / outcome.median(SINGLE), 4.0),
        Ratio("accept/no-database", found / outcome.median(BARE), 0.5),
    ]
    return outcome


def _load(address: str, seconds: float) -> float:
    wrk(address, 1.0)
    found = wrk(address, seconds)
    if found["bad"]:
        raise RuntimeError(f"{found['bad']:.0f} requests were not accepted")
    return found["rate"]
