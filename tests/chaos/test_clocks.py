"""Workers whose clocks are an hour wrong, ahead and behind, lease and retry by the database's clock."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos import properties
from tests.support.stand import Rules, Stand
from tests.support.vendor import Entry, Reply

MESSAGES, DELAY, TOLERANCE = 120, 1.0, 30.0
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def wrong_clock(shift: str) -> dict[str, str]:
    # Only the wall clock: the other one counts since the machine's start and is nobody's to set.
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


async def wrong_clocks(stand: Stand, mutant: str | None = None) -> tuple[float, float]:
    """Every message is refused once and then taken, slowly, so that leases are renewed meanwhile."""
    seen: set[str] = set()

    def answer(entry: Entry) -> Reply:
        again = entry["path"] in seen
        seen.add(entry["path"])
        return Reply(delay=3.2) if again else Reply(status=503)

    stand.vendor.default = answer
    await stand.start("doors")
    clocks: tuple[dict[str, str], ...] = ({}, wrong_clock("+1h"), wrong_clock("-1h"))
    workers = await asyncio.gather(*(stand.start("outbound", env=env, mutant=mutant) for env in clocks))
    stamps = [datetime.fromisoformat(worker.events("ready")[0]["timestamp"]) for worker in workers]
    assert [round((stamp - stamps[0]).total_seconds() / 3600) for stamp in stamps] == [0, 1, -1]
    await stand.send(stand.webhooks(f"m{place}" for place in range(MESSAGES)))
    await stand.until_terminal(MESSAGES)
    found = retried_in_time(stand)
    # With 120 messages and 60 slots each takes some, unless its clock tells it that nothing is due.
    idle = [place for place, worker in enumerate(workers) if not worker.events("route_attempted")]
    properties.hold("retried_in_time", not idle, f"workers that attempted nothing: {idle}")
    return found


def retried_in_time(stand: Stand) -> tuple[float, float]:
    """Two calls of each message, a delay apart, no sooner, and later by a busy machine's share, not by an hour."""
    times: dict[str, list[int]] = {}
    for entry in stand.vendor.entries:
        times.setdefault(str(entry["id"]), []).append(entry["time_us"])
    strangers = {name: len(each) for name, each in times.items() if len(each) != 2}
    properties.hold("retried_in_time", not strangers, f"not called twice: {dict(list(strangers.items())[:3])}")
    waits = [(later - sooner) / 1e6 for each in times.values() for sooner, later in pairwise(each)]
    kept = min(waits) >= DELAY - 0.01 and max(waits) <= DELAY + TOLERANCE
    properties.hold("retried_in_time", kept, f"{min(waits):.3f} to {max(waits):.3f} s")
    return min(waits), max(waits)


def clock_rules() -> Rules:
    return Rules(lease=9.0, timeout=8.0, delay=DELAY, concurrency=60)


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_wrong_clocks_neither_lose_leases_nor_shift_retries(
    durable_dsn: str, tmp_path: Path, figures: Callable[..., None]
) -> None:
    async with Stand(tmp_path / "stand", durable_dsn, clock_rules()) as stand:
        soonest, latest = await wrong_clocks(stand)
        report = await properties.everything_holds(stand)
        assert report.duplicates == {}
        figures(messages=MESSAGES, workers="0 +1h -1h", repeats=0, waits=f"{soonest:.3f}..{latest:.3f} of {DELAY}")
