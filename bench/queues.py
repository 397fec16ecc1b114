"""List queues in Redis with a handler that does nothing, one process, beside arq, SAQ, Celery and BullMQ."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version

from bench import peers
from bench.measure import Outcome, Ratio, interleaved
from bench.ours import plain
from tests.support.servers import Postgres, Redis

PART = "queues"
JOBS = 15_000
THEIRS = 2_500
"""Of the Python peers: a second or two each, so that many rounds fit."""
OURS, KEPT = "Carillon", "Carillon, job logs in PostgreSQL"
BESIDE = "bullmq"


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 5) -> Outcome:
    """Jobs a second, from the first one's run until the queue itself says that none remains."""
    installed = peers.install(progress=progress)
    field = {one.name: one for one in installed.found if PART in one.parts}
    with Redis() as redis:

        def drained(one: peers.Peer) -> float:
            redis.flush()
            return one.jobs / peers.drain(one, redis.url(), one.jobs)

        subjects: dict[str, Callable[[], float]] = {OURS: lambda: drained(_ours(OURS, {}))}
        for name, one in field.items():
            fewer = one if name == BESIDE else dataclasses.replace(one, jobs=THEIRS)
            subjects[name] = partial(drained, fewer)
        figures = interleaved(PART, "jobs/s", subjects, rounds, progress)
        kept = {KEPT: lambda: drained(_ours(KEPT, {"database": postgres.database()}))}
        figures += interleaved(PART, "jobs/s", kept, 2, progress)
    outcome = Outcome(figures)
    outcome.settings = {one.name: f"{one.version}; {plain(one.settings)}" for one in field.values()}
    outcome.settings |= {f"missing: {name}": why for name, why in installed.missing.items()}
    outcome.settings[PART] = (
        f"{JOBS:,} messages, {THEIRS:,} for each Python peer; ours are acknowledged after their run, under a renewed "
        "lock, with a job log in Redis"
    )
    outcome.ratios = _ratios(outcome, field)
    return outcome


def _ours(name: str, settings: dict[str, str]) -> peers.Peer:
    command = (sys.executable, "-m", "bench.runners.our_queue")
    return peers.Peer(name, "redis", version("carillon"), settings, JOBS, command)


def _ratios(outcome: Outcome, field: Mapping[str, peers.Peer]) -> list[Ratio]:
    python = field.keys() - {BESIDE}
    if not python:
        return []
    ours, fastest = outcome.median(OURS), max(outcome.median(name) for name in python)
    found = [Ratio("queues/fastest-python", ours / fastest, 2)]
    if BESIDE in field:
        # Told beside it, not promised: BullMQ is no Python.
        found.append(Ratio(f"queues/{BESIDE}", ours / outcome.median(BESIDE), 0))
    return found
