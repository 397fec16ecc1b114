"""Faults that happen to running processes: the metrics that these export make the alarms fire, and the calm does not.

One second of a run stands for fifteen, in ages and durations too: an export comes every second, and two minutes are
eight seconds.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.deploy.alarm_series import STEP, Timeline, complaints
from tests.support import tables
from tests.support.client import Client
from tests.support.otlp import Collector, collecting
from tests.support.process import Program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.req("P-633")]

WITHIN = 120 // STEP
CALM = 12
"""Seconds of load before the fault: three minutes."""
SETTINGS = """
extends = "local"
[http]
port = 0
max_requests_in_flight = 1000
anonymous_requests_per_second = 0
[ledger]
url = "{url}"
lease_seconds = 3
allow_unsafe = true
[channels]
email = ["mailer"]
sms = ["texter"]
push = ["pusher"]
[providers.mailer]
kind = "sandbox"
[providers.texter]
kind = "sandbox"
[providers.pusher]
kind = "sandbox"
[policy.retry."*/*"]
max_attempts = 8
base_delay_seconds = 0.2
max_delay_seconds = 0.5
jitter_seconds = 0
timeout_seconds = 2.5
[policy.retry."*/webhook"]
timeout_seconds = 2.5
[lanes.priority]
timeout_seconds = 2.5
[lanes.standard]
timeout_seconds = 2.5
[lanes.bulk]
timeout_seconds = 2.5
[policy.breaker.mailer]
failure_threshold = 100000
[policy.breaker.texter]
failure_threshold = 100000
[policy.breaker.pusher]
failure_threshold = 3
open_seconds = 600
"""
ADDRESSES = {"email": "ada@example.org", "sms": "+491701234567", "push": "device-1"}


class Watched(Collector):
    """Puts every export into the second in which it came."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__("")
        self.timeline = timeline
        self.began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def second(self) -> int:
        return int(time.monotonic() - self.began)

    def take(self, path: str, body: bytes) -> bool:
        with self._lock:
            self.timeline.add(self.second, ExportMetricsServiceRequest.FromString(body))
        return path == "/v1/metrics"


class Stand:
    """Processes over one ledger, load at their door, and the collector of their metrics."""

    def __init__(self, folder: Path, url: str, collector: Collector, watched: Watched) -> None:
        (folder / "carillon.toml").write_text(SETTINGS.format(url=url))
        self.url = url
        self.folder = folder
        self.watched = watched
        self._address = collector.address
        self._over = threading.Event()
        self.client: Client | None = None

    def start(self, roles: str) -> Program:
        env = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{self._address}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        program = Program("serve", "--config", "carillon.toml", "--roles", roles, env=env, cwd=self.folder)
        program.wait_ready(60)
        if "doors" in roles:
            self.client = Client.of(program)
        return program

    def send(self, channel: str, recipient: str | None = None, **more: Any) -> None:
        assert self.client is not None
        data = {"name": "Ada", "link": "https://example.org"}
        to = recipient or ADDRESSES[channel]
        body = {"templateKey": "welcome", "channel": channel, "recipient": to, "data": data, **more}
        with suppress(OSError, HTTPException):
            self.client.call("POST", "/api/v1/notifications/send", body)

    def change(self, after: str, more: str) -> None:
        """Add to the settings of the processes that start from now on."""
        config = self.folder / "carillon.toml"
        config.write_text(config.read_text().replace(after, after + more))

    def drawn(self, worker: Program) -> None:
        """Wait until this process calls the slow provider."""

        def holds() -> bool:
            rows = asyncio.run(tables.read(self.url, tables.ROUTES))
            return any(row["channel"] == "push" and str(row["lease_owner"]).endswith(f"/{worker.pid}") for row in rows)

        wait_until(holds, timeout=40, what="a call of the worker")

    def drill(self, name: str, **drill: Any) -> None:
        assert self.client is not None
        assert self.client.call("PUT", f"/api/v1/sandbox/drills/{name}", drill).status == 200

    @contextmanager
    def load(self, *channels: str) -> Iterator[None]:
        """Three messages of each channel a second."""

        def run() -> None:
            while not self._over.wait(0.3):
                for channel in channels or ADDRESSES:
                    self.send(channel)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def until(self, second: int) -> None:
        wait_until(lambda: self.watched.second >= second, timeout=120, what=f"second {second}")

    def judged(self, began: int, *alarms: str) -> str:
        fired = [(name, (began + WITHIN) * STEP) for name in alarms]
        # The export of the second in which the fault began may have it already.
        return complaints(self.folder, self.watched.timeline, calm_until=(began - 1) * STEP, fired=fired)


@pytest.fixture
def stand(tmp_path: Path, ledger_dsn: str) -> Iterator[Stand]:
    watched = Watched(Timeline(scale=STEP))
    with collecting() as collector:
        setattr(collector, "take", watched.take)  # noqa: B010 - what arrives is put into its second
        yield Stand(tmp_path, ledger_dsn, collector, watched)


def test_vendors_that_fail_are_slow_or_away_dead_letters_and_suppressed_addresses(stand: Stand) -> None:
    with stand.start("doors,outbound,upkeep") as program, stand.load():
        assert stand.client is not None
        gone = {"channel": "email", "address": "gone@example.org", "reason": "asked"}
        assert stand.client.call("POST", "/api/v1/suppressions", gone).status == 200
        stand.until(stand.watched.second + CALM)
        began = stand.watched.second
        stand.drill("email@mailer", outcome="unavailable", times=1)
        stand.drill("sms@texter", outcome="sent", delay_seconds=0.6)
        stand.drill("push@pusher", outcome="unavailable")
        stand.send("sms", metadata={"sandbox": {"outcome": "refused", "times": 1}})
        while stand.watched.second < began + WITHIN + 1:
            stand.send("email", "gone@example.org")
            time.sleep(0.05)
        program.terminate()
        assert program.wait(60) == 0
    alarms = ("CarillonProviderFails", "CarillonProviderSlow", "CarillonBreakerOpens", "CarillonDeadLetters")
    assert stand.judged(began, *alarms, "CarillonRoutesSuppressed") == ""


def test_workers_that_stand_still(stand: Stand) -> None:
    stand.change('[providers.pusher]\nkind = "sandbox"\n', "delay_seconds = 1.9\n")
    with stand.start("doors,upkeep") as door, stand.start("outbound") as worker, stand.load("email", "sms"):
        stand.until(stand.watched.second + CALM)
        began = stand.watched.second
        # It stops in the middle of a call, and its next act will be the renewal of the lease.
        stand.send("push")
        stand.drawn(worker)
        worker.stop()
        stand.until(began + WITHIN + 1)
        # It goes on: what it held has gone to another one meanwhile.
        with stand.start("outbound") as heir:
            wait_until(lambda: bool(heir.events("route_attempted")), timeout=40, what="the heir's work")
            again = stand.watched.second
            worker.cont()
            wait_until(lambda: bool(worker.events("lease_lost")), timeout=40, what="a lost lease")
            stand.until(again + WITHIN + 1)
        door.terminate()
    assert stand.judged(began, "CarillonRoutesWait") == ""
    calm = (began - 1) * STEP
    fired = [("CarillonLeasesLost", (again + WITHIN) * STEP)]
    assert complaints(stand.folder, stand.watched.timeline, calm_until=calm, fired=fired) == ""


def test_nobody_reports(stand: Stand) -> None:
    with stand.start("doors,outbound,upkeep") as program, stand.load():
        stand.until(stand.watched.second + CALM)
        began = stand.watched.second
        program.kill()
        stand.until(began + WITHIN + 1)
    stand.watched.timeline.steps = began + WITHIN + 2
    assert stand.judged(began, "CarillonSilent") == ""
