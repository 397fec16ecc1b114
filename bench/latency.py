"""From being told to telling, on an idle system."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Outcome, Ratio
from bench.ours import webhook
from bench.stage import carillon, nginx, run
from tests.support.ports import free_port
from tests.support.servers import Postgres

PART = "latency"
CALLS = 300


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """One notification at a time; the bare way is INSERT, COMMIT and POST in one coroutine."""
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    for number in range(rounds):
        progress(f"{PART}: round {number + 1} of {rounds}")
        ours.append(_ours(postgres.database()))
        dsn = postgres.database()
        run("fill", dsn, "1", "push", "sandbox", "device-1")
        with nginx() as url:
            bare.append(run("bare_latency", dsn, url, str(CALLS))["took_ms"])
    # Of each round by itself: one in which the disk was slow must not be the ninety-ninth percentile of all.
    outcome = Outcome(
        [
            Figure(PART, f"{who}, {name}", "ms", [percentile(values, share) for values in found])
            for who, found in (("Carillon", ours), ("bare", bare))
            for name, share in (("p50", 50), ("p99", 99))
        ],
        settings={"latency": f"{rounds} x {CALLS} notifications, one at a time, 5 ms apart"},
    )
    outcome.ratios = [
        Ratio(
            f"latency/{name}", outcome.median(f"Carillon, {name}") / outcome.median(f"bare, {name}"), most, at_most=True
        )
        for name, most in (("p50", 3.0), ("p99", 6.0))
    ]
    return outcome


def _ours(dsn: str) -> list[float]:
    port = free_port()
    sink = subprocess.Popen(
        [sys.executable, "-m", "bench.runners.our_latency", str(port), str(CALLS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if sink.stdout is None or sink.stdin is None or "ready" not in sink.stdout.readline():
            raise RuntimeError("the sink did not start")
        with tempfile.TemporaryDirectory() as folder:
            config = webhook(f"http://127.0.0.1:{port}/hook", Path(folder))
            with carillon({"DATABASE_URL": dsn}, "--config", str(config)) as (_, address):
                sink.stdin.write(f"{address}\n")
                sink.stdin.flush()
                return [float(value) for value in json.loads(sink.stdout.readline())["took_ms"]]
    finally:
        sink.kill()
        sink.wait()


def percentile(values: list[float], share: int) -> float:
    """The value that so many in a hundred do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]
