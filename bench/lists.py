"""An idle list queue: how late a message comes to its handler, beside a bare BLMOVE on the same server."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import redis

from bench.latency import percentile
from bench.measure import Figure, Outcome, Ratio
from bench.stage import started
from tests.support.servers import Postgres, Redis

PART = "lists"
MESSAGES = 40
"""For each consumer and round."""
GAPS = (0.1, 1.3)
"""Seconds between two messages. A consumer that listens for one second and then pauses would miss many of them."""
OURS, BARE = "Carillon", "bare BLMOVE"
KINDS = {OURS: "ours", BARE: "bare"}
UNRECORDED = 3
"""The first messages of a new process meet code that has never run."""


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """Both consumers wait on one server at the same time, and messages go to them in turn."""
    del postgres
    late: dict[str, list[float]] = {OURS: [], BARE: []}
    with Redis() as server:
        for number in range(rounds):
            progress(f"{PART}: round {number + 1} of {rounds}")
            for who, values in _round(server.url()).items():
                late[who] += values
    outcome = Outcome(
        [
            Figure(PART, f"{who}, idle, {name}", "ms", [percentile(values, share)])
            for who, values in late.items()
            for name, share in (("p50", 50), ("p99", 99))
        ]
    )
    outcome.settings = {
        PART: f"{rounds * MESSAGES} messages for each, {GAPS[0]:g} to {GAPS[1]:g} s apart; Carillon claims under a "
        "lock and logs the job, the bare consumer moves the text to another list"
    }
    ours, bare = (outcome.median(f"{who}, idle, p99") for who in (OURS, BARE))
    outcome.ratios = [Ratio("lists/idle-p99", ours / bare, 3.0, at_most=True)]
    return outcome


def _round(url: str) -> dict[str, list[float]]:
    dice = random.Random(1)
    with ExitStack() as stack, redis.Redis.from_url(url) as client:
        consumers = {who: stack.enter_context(_consumer(kind, url)) for who, kind in KINDS.items()}
        for _ in range(MESSAGES + UNRECORDED):
            for who in consumers:
                time.sleep(dice.uniform(*GAPS))
                text = json.dumps({"id": f"{dice.random()}", "action": "tell", "payload": {"at": time.perf_counter()}})
                client.lpush(f"q:bench:{KINDS[who]}", text)
        return {who: _late(process) for who, (process, _) in consumers.items()}


def _consumer(kind: str, url: str) -> "AbstractContextManager[tuple[subprocess.Popen[str], dict[str, Any]]]":
    count = str(MESSAGES + UNRECORDED)
    return started([sys.executable, "-m", "bench.runners.list_latency", kind, url, f"q:bench:{kind}", count])


def _late(process: "subprocess.Popen[str]") -> list[float]:
    if process.stdout is None:
        raise RuntimeError("the consumer has no output")
    found: list[float] = json.loads(process.stdout.readline())["late_ms"]
    return found[UNRECORDED:]
