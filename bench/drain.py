"""Draining a backlog with nothing to do for each job: Carillon, a bare loop on its tables, and the field."""

from collections.abc import Callable

from bench import peers
from bench.measure import Outcome, Ratio, interleaved
from bench.ours import QUIET, WIDE, drain, plain
from bench.stage import run
from tests.support.servers import Postgres, Redis

PART = "drain"
JOBS = 60_000
OURS, BARE = "Carillon", "bare claim-and-settle loop"
TARGETS = {"graphile-worker": 1.1, "pg-boss": 1.3, "pgqueuer": 4.0}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Jobs a second in one process; Carillon records attempts and history as always."""
    installed = peers.install(progress=progress)

    def bare() -> float:
        dsn = postgres.database()
        run("fill", dsn, str(JOBS), "push", "sandbox", "device-1")
        return float(run("bare_drain", dsn, "sandbox")["rate"])

    with Redis() as redis:

        def peer(one: peers.Peer) -> Callable[[], float]:
            def go() -> float:
                if one.kind == "redis":
                    redis.flush()
                    return one.jobs / peers.drain(one, redis.url(), one.jobs)
                return one.jobs / peers.drain(one, postgres.database(), one.jobs)

            return go

        subjects = {OURS: lambda: drain(postgres.database(), JOBS), BARE: bare}
        quick = {one.name: peer(one) for one in installed.found if one.name in TARGETS}
        figures = interleaved(PART, "jobs/s", {**subjects, **quick}, rounds, progress)
        there = [one for one in installed.found if PART in one.parts and not one.posts]
        others = {one.name: peer(one) for one in there if one.name not in quick}
        figures += interleaved(PART, "jobs/s", others, 1, progress)
    outcome = Outcome(figures)
    outcome.settings = {
        one.name: f"{one.version}; {plain(one.settings)}" for one in installed.found if PART in one.parts
    }
    outcome.settings[OURS] = plain({**QUIET, **WIDE})
    outcome.settings |= {f"missing: {name}": why for name, why in installed.missing.items()}
    outcome.ratios = _ratios(outcome)
    return outcome


def _ratios(outcome: Outcome) -> list[Ratio]:
    ours = outcome.median(OURS)
    found = [Ratio("drain/bare-loop", ours / outcome.median(BARE), 0.5)]
    names = {figure.name: figure for figure in outcome.figures}
    found += [
        Ratio(f"drain/{name}", ours / names[name].median, target) for name, target in TARGETS.items() if name in names
    ]
    return found
