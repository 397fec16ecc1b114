"""What a stranger does to others: the latency of another caller beside slow, idle, huge, half-closed and many."""

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial

from bench.measure import Outcome, Ratio, interleaved
from bench.runners.stranger import HELD, RENEWALS_PER_SECOND
from bench.stage import WELCOME, carillon, started
from tests.support.servers import Postgres
from tests.support.strangers import HEAD, asked

PART = "strangers"
LISTENERS: dict[str, tuple[str, str, dict[str, object], int]] = {
    "granian": ("local", "/api/v1/notifications/send", {**WELCOME}, 202),
    "h11": ("sse", "/notifications", {"event_type": "job.new", "user_id": "ada"}, 202),
}
"""Listener to the blueprint that uses it, and to what another caller asks and hears there."""
QUIET = "nobody"
MOST = 60.0
"""Seconds after which a stranger ends by itself."""
TARGET = 25.0


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3, requests: int = 200) -> Outcome:
    """The 99th percentile of accepted notifications, each on a connection of its own, beside each kind of stranger."""
    del postgres
    with ExitStack() as stack:
        subjects: dict[str, Callable[[], float]] = {}
        for listener, (blueprint, path, body, status) in LISTENERS.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cb-"))
            environment = {"DATABASE_URL": f"sqlite:///{folder}/ledger.db"}
            _, url = stack.enter_context(carillon(environment, "--blueprint", blueprint))
            ask = partial(_ask, url, path, body, status)
            ask(100)
            subjects[f"{listener}, {QUIET}"] = partial(_beside, None, url, path, partial(ask, requests))
            for kind in HELD:
                subjects[f"{listener}, {kind}"] = partial(_beside, kind, url, path, partial(ask, requests))
        outcome = Outcome(interleaved(PART, "ms p99", subjects, rounds, progress))
    for listener in LISTENERS:
        quiet = outcome.median(f"{listener}, {QUIET}")
        outcome.ratios += [
            Ratio(f"{PART}/{listener}/{kind}", outcome.median(f"{listener}, {kind}") / quiet, TARGET, at_most=True)
            for kind in HELD
        ]
    held = ", ".join(f"{count} {kind}" for kind, count in HELD.items())
    outcome.settings = {
        PART: f"{requests} requests, {rounds} rounds; {held}; {RENEWALS_PER_SECOND}/s opened again; defaults, SQLite"
    }
    return outcome


def _beside(kind: str | None, url: str, path: str, ask: Callable[[], float]) -> float:
    command = [sys.executable, "-m", "bench.runners.stranger", str(kind), url, path, str(MOST)]
    with nullcontext() if kind is None else started(command):
        return ask()


def _ask(url: str, path: str, body: dict[str, object], status: int, requests: int) -> float:
    """The 99th percentile in milliseconds; an error if anybody is not served."""
    content = json.dumps(body)
    spent = []
    for number in range(requests):
        head = f"POST {path} HTTP/1.1\r\n{HEAD}Idempotency-Key: {time.monotonic_ns()}-{number}\r\nConnection: close\r\n"
        text = f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode()
        began = time.perf_counter()
        said = asked(url, text)
        spent.append((time.perf_counter() - began) * 1000)
        if said != status:
            raise RuntimeError(f"{url}{path}: another caller heard {said} instead of {status}")
    return sorted(spent)[math.ceil(0.99 * len(spent)) - 1]
