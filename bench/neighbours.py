"""Nobody waits for a stranger: a neighbour's webhook beside a slow endpoint, a hanging one, and a flood."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.latency import percentile
from bench.measure import Figure, Outcome, Ratio
from bench.ours import SECRET
from bench.runners.neighbour import SLOW_SECONDS
from bench.stage import carillon, run
from tests.support.ports import free_port
from tests.support.servers import Postgres

PART = "neighbours"
CALLS = 300
CAP = 8
WAITING = {"idle": 0, "slow": 20_000, "hanging": 3_000, "flood": 0}
TARGETS = {"slow": 3.0, "hanging": 3.0, "flood": 5.0}
NAMES = {
    "idle": "nobody else",
    "slow": "beside 20,000 for an endpoint of 50 ms",
    "hanging": "beside 3,000 for an endpoint that hangs",
    "flood": "beside a tenant that floods over four connections",
}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """One notification at a time, from the request to its arrival at the neighbour's endpoint."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in NAMES}
    for number in range(rounds):
        for kind, name in NAMES.items():
            progress(f"{PART}: {name}, round {number + 1} of {rounds}")
            found[kind].append(beside(postgres.database(), kind, WAITING[kind]))
    outcome = Outcome(
        [
            Figure(PART, f"{NAMES[kind]}, {name}", "ms", [percentile(each["took_ms"], share) for each in rows])
            for kind, rows in found.items()
            for name, share in (("p50", 50), ("p99", 99))
        ],
        settings={PART: f"{rounds} x {CALLS} notifications, one at a time, 20 ms apart; {CAP} calls to one endpoint"},
    )
    outcome.figures.append(Figure(PART, "the slow endpoint's calls", "calls/s", [row["rate"] for row in found["slow"]]))
    idle = outcome.median(f"{NAMES['idle']}, p99")
    outcome.ratios = [
        Ratio(f"neighbours/{kind}-p99", outcome.median(f"{NAMES[kind]}, p99") / idle, most, at_most=True)
        for kind, most in TARGETS.items()
    ]
    own = outcome.median("the slow endpoint's calls") / (CAP / SLOW_SECONDS)
    outcome.ratios.append(Ratio("neighbours/slow-own-rate", own, 0.95))
    return outcome


def beside(dsn: str, kind: str, waiting: int, calls: int = CALLS) -> dict[str, Any]:
    """The neighbour's times in milliseconds, and how often the endpoint beside it was called."""
    port, other = free_port(), free_port()
    sink = subprocess.Popen(
        [sys.executable, "-m", "bench.runners.neighbour", str(port), str(other), kind, str(calls)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if sink.stdout is None or sink.stdin is None or "ready" not in sink.stdout.readline():
            raise RuntimeError("the endpoints did not start")
        if waiting:
            run("fill", dsn, str(waiting), "webhook", "webhook", f"http://127.0.0.1:{other}/hook")
        with (
            tempfile.TemporaryDirectory() as folder,
            carillon({"DATABASE_URL": dsn}, "--config", str(_config([port, other], Path(folder)))) as (_, address),
        ):
            sink.stdin.write(f"{address}\n")
            sink.stdin.flush()
            answer: dict[str, Any] = json.loads(sink.stdout.readline())
            return answer
    finally:
        sink.kill()
        sink.wait()


def _config(ports: list[int], folder: Path) -> Path:
    config = folder / "bench.toml"
    config.write_text(
        'extends = "local"\n'
        "[providers.webhook]\n"
        f'secrets = ["{SECRET}"]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\nallow_ports = {ports}\n'
        f"concurrency_per_endpoint = {CAP}\n"
    )
    return config
