"""A person comes back to a live stream: seconds for each notification that waited, a few waiting and many."""

import asyncio
import re
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Outcome, Ratio
from bench.stage import carillon
from tests.support.kafka import Kafka, Topic
from tests.support.servers import Postgres
from tests.support.tables import number as number_of
from tests.support.waiting import wait_until

PART = "returning"
FEW, MANY = 100, 1_000
PARTITIONS = 4
CHUNK = 5
"""So many in a row go into one partition."""
LIMIT_SECONDS = 120.0
HELD = (
    "SELECT count(*) AS n FROM routes WHERE recipient_ref = 'user:{user}' AND claim_token IS NULL "
    "AND last_error_classification = 'throttled'"
)
ENGINES = ("PostgreSQL", "SQLite")
_FRAME = re.compile(rb"event: notification")


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3) -> Outcome:
    """From the request for the stream to the last frame; every person is new, and everything came through Kafka."""
    took: dict[tuple[str, int], list[float]] = {(engine, size): [] for engine in ENGINES for size in (FEW, MANY)}
    with Kafka() as kafka, tempfile.TemporaryDirectory() as folder:
        for engine in ENGINES:
            url = postgres.database() if engine == "PostgreSQL" else f"sqlite:///{Path(folder) / 'sse.db'}"
            with (
                kafka.topic(PARTITIONS) as topic,
                carillon(_settings(url, topic), "--blueprint", "sse") as (_, address),
            ):
                for number in range(rounds):
                    for size in (FEW, MANY):
                        progress(f"{PART}: {engine}, {size} waiting, round {number + 1} of {rounds}")
                        seconds = _returns(topic, url, address, f"person-{number}-{size}", size)
                        took[engine, size].append(seconds / size * 1000)
    outcome = Outcome(
        [Figure(PART, f"{engine}, {size:,} waiting", "ms each", ms) for (engine, size), ms in took.items()]
    )
    outcome.settings = {PART: f"one person, {PARTITIONS} partitions in turn, one process, one reader"}
    outcome.ratios = [
        Ratio(
            f"returning/{engine.lower()}",
            outcome.median(f"{engine}, {MANY:,} waiting") / outcome.median(f"{engine}, {FEW:,} waiting"),
            2.0,
            at_most=True,
        )
        for engine in ENGINES
    ]
    return outcome


def _settings(url: str, topic: Topic) -> dict[str, str]:
    return {
        "DATABASE_URL": url,
        "KAFKA_BOOTSTRAP_SERVERS": topic.kafka.bootstrap,
        "KAFKA_TOPIC": topic.name,
        "KAFKA_GROUP_ID": topic.group,
    }


def _returns(topic: Topic, url: str, address: str, user: str, size: int) -> float:
    said = [
        {"event_id": f"{user}-{number}", "event_type": "job.new", "user_id": user, "payload": {"n": number}}
        for number in range(size)
    ]
    for first in range(0, size, PARTITIONS * CHUNK):
        for partition in range(PARTITIONS):
            begin = first + partition * CHUNK
            topic.write_all(said[begin : begin + CHUNK], partition=partition)
    held = HELD.format(user=user)
    wait_until(
        lambda: asyncio.run(number_of(url, held)) == size, timeout=LIMIT_SECONDS, what=f"{size} that wait for {user}"
    )
    return _read(int(address.rpartition(":")[2]), user, size)


def _read(port: int, user: str, size: int) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as stream:
        stream.sendall(f"GET /notifications/stream?user_id={user} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        seen, kept = 0, b""
        while seen < size:
            if time.perf_counter() - began > LIMIT_SECONDS:
                raise RuntimeError(f"{seen} of {size} notifications came in {LIMIT_SECONDS:g} s")
            data = stream.recv(1 << 20)
            if not data:
                raise RuntimeError(f"the stream ended after {seen} of {size} notifications")
            data = kept + data
            seen += len(_FRAME.findall(data))
            kept = data[-20:] if not _FRAME.search(data[-20:]) else b""
        return time.perf_counter() - began
