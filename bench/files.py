"""Queues in a SQLite file: Carillon beside huey and litequeue, accepting and draining."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Outcome, Ratio
from bench.ours import drain_sqlite
from bench.peers.install import libraries
from bench.stage import run
from tests.support.servers import Postgres

PART = "files"
FOLDER = Path(".bench/sqlite")
PINS = Path(__file__).parent / "peers" / "requirements-sqlite.txt"
JOBS, CALLERS, EACH = 3_000, 64, 100
OURS = "Carillon"
PEERS = {
    "huey": ("huey", "durable"),
    "litequeue, each commit on the disk": ("litequeue", "durable"),
    "litequeue, as it ships": ("litequeue", "lasting"),
}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """A commit of a peer is one job; Carillon's callers share commits, and every caller waits for its own."""
    del postgres
    versions = libraries(PINS, FOLDER, progress)
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number in range(rounds):
            progress(f"{PART}: {OURS}, round {number + 1} of {rounds}")
            url = f"sqlite:///{place}/accept-{number}.db"
            accepted = float(run("sqlite_accept", url, str(CALLERS), str(EACH))["rate"])
            alone = float(run("sqlite_accept", f"{url}-one", "1", "500")["rate"])
            found.setdefault((OURS, "accept"), []).append(accepted)
            found.setdefault((f"{OURS}, one caller", "accept"), []).append(alone)
            found.setdefault((OURS, "drain"), []).append(drain_sqlite(place, JOBS * 4)[1])
            for name, (library, promise) in PEERS.items():
                progress(f"{PART}: {name}, round {number + 1} of {rounds}")
                path = str(place / f"{library}-{time.monotonic_ns()}.db")
                rates = run("sqlite_peer", str(FOLDER.absolute()), library, path, str(JOBS), promise)
                for what in ("accept", "drain"):
                    found.setdefault((name, what), []).append(float(rates[what]))
    figures = [Figure(PART, f"{what}, {name}", "jobs/s", values) for (name, what), values in found.items()]
    outcome = Outcome(figures)
    outcome.settings = {
        PART: f"{CALLERS} callers of Carillon, one notification a call; huey {versions['huey']} and litequeue "
        f"{versions['litequeue']} in one thread, one job a commit"
    }
    for name, (library, promise) in PEERS.items():
        if promise == "durable":
            for what in ("accept", "drain"):
                ours, theirs = outcome.median(f"{what}, {OURS}"), outcome.median(f"{what}, {name}")
                outcome.ratios.append(Ratio(f"sqlite-{what}/{library}", ours / theirs, 1.0))
    return outcome
