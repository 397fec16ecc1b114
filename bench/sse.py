"""Live streams of one process, beside nginx with nchan: memory of a stream, notifications a second, and how late."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.latency import percentile
from bench.measure import Figure, Outcome, Ratio
from bench.needs import NCHAN, find
from bench.stage import await_port, carillon, run
from tests.support.daemon import children_of
from tests.support.ports import free_port
from tests.support.servers import Postgres
from tests.support.waiting import wait_until

PART = "sse"
STREAMS, MESSAGES = 5_000, 5_000
OURS, PEER, BARE = "Carillon", "nginx with nchan", "INSERT, COMMIT, nchan"
RATE, FAN_OUT = "notifications", "frames to one crowd"
P99, MEMORY, PROCESSOR = "request to frame, p99", "an idle stream", "processor time of one"
CROWD = 1_000
SETTINGS = {
    "CARILLON_SSE__MAX_CONNECTIONS": "20000",
    "CARILLON_SSE__MAX_PER_KEY": "20000",
    "CARILLON_HTTP__MAX_REQUESTS_IN_FLIGHT": "20000",
}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """The bare way writes a row down and publishes it; nchan alone promises nothing, and is printed beside them."""
    found: dict[str, list[dict[str, Any]]] = {OURS: [], BARE: [], PEER: []}
    for number in range(rounds):
        for who, results in found.items():
            progress(f"{PART}: {who}, round {number + 1} of {rounds}")
            results.append(_ours(postgres) if who == OURS else _nchan(postgres.database() if who == BARE else None))
    outcome = Outcome([figure for who, results in found.items() for figure in _figures(who, results)])
    outcome.ratios = [
        Ratio("sse/rate", _ratio(outcome, RATE, BARE), 0.3),
        Ratio("sse/fan-out", _ratio(outcome, FAN_OUT, PEER), 0.2),
        Ratio("sse/p99", _ratio(outcome, P99, BARE), 6.0, at_most=True),
        Ratio("sse/memory", _ratio(outcome, MEMORY, PEER), 3.0, at_most=True),
    ]
    outcome.settings = {
        PART: f"{STREAMS:,} streams of one process; {MESSAGES:,} notifications over 32 connections, one person each, "
        f"then 20 for a person with {CROWD:,} streams. nchan keeps messages in memory; Carillon commits each to "
        "PostgreSQL, claims it under a lease, numbers it in its person's log and settles it"
    }
    return outcome


def _ours(postgres: Postgres) -> dict[str, Any]:
    with carillon({"DATABASE_URL": postgres.database(), **SETTINGS}, "--blueprint", "sse") as (process, address):
        return _run("ours", int(address.rpartition(":")[2]), [process.pid])


def _nchan(dsn: str | None) -> dict[str, Any]:
    with nchan() as (port, pids):
        return _run("nchan", port, pids, dsn)


def _run(kind: str, port: int, pids: list[int], dsn: str | None = None) -> dict[str, Any]:
    asked = {"kind": kind, "port": port, "pids": pids, "streams": STREAMS, "total": MESSAGES, "dsn": dsn}
    return run("sse_readers", json.dumps(asked))


def _figures(who: str, results: list[dict[str, Any]]) -> list[Figure]:
    late = [result["latency_ms"] for result in results]
    return [
        Figure(PART, f"{who}, {RATE}", "a second", [result["rate"] for result in results]),
        Figure(PART, f"{who}, {FAN_OUT}", "a second", [result["fan_out"] for result in results]),
        Figure(PART, f"{who}, request to frame, p50", "ms", [percentile(values, 50) for values in late]),
        Figure(PART, f"{who}, {P99}", "ms", [percentile(values, 99) for values in late]),
        Figure(PART, f"{who}, {PROCESSOR}", "µs", [result["processor_us"] for result in results]),
        Figure(PART, f"{who}, {MEMORY}", "kB", [result["kilobytes"] for result in results]),
    ]


def _ratio(outcome: Outcome, what: str, peer: str) -> float:
    return outcome.median(f"{OURS}, {what}") / outcome.median(f"{peer}, {what}")


@contextmanager
def nchan() -> Iterator[tuple[int, list[int]]]:
    """The peer: one worker, messages kept in memory; gives its port and its processes."""
    folder = Path(tempfile.mkdtemp(prefix="cb-"))
    port = free_port()
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(
        f"load_module {NCHAN}; worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid {folder}/pid;\n"
        f"error_log {folder}/error.log; events {{ worker_connections 16000; }}\n"
        f"http {{ access_log off; keepalive_requests 10000000; {temporary}\n"
        "nchan_max_reserved_memory 256M; nchan_message_buffer_length 100; nchan_message_timeout 1h;\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096;\n"
        "location ~ ^/pub/(.+)$ { nchan_publisher; nchan_channel_id $1; }\n"
        "location ~ ^/sub/(.+)$ { nchan_subscriber eventsource; nchan_channel_id $1; } } }\n"
    )
    process = subprocess.Popen([find("nginx"), "-e", str(folder / "error.log"), "-c", str(conf)])
    try:
        await_port(port)
        # The port is open before the worker is born, whose memory is to be weighed.
        wait_until(lambda: bool(children_of(process.pid)), timeout=10, what="a worker of nginx")
        yield port, [process.pid, *children_of(process.pid)]
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
