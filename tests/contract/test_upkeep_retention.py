"""Retention removes old finished work from the ledger, all of it and nothing else."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from carillon.compose.upkeep import retention_rules
from carillon.config.reading import load
from carillon.domain.digests import ThrottleEntry, ThrottleRule
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Event, Pruned, Trouble
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Enrolment, Notification, Route, Status
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.upkeep.cleanup import Retention, RetentionRules

# Older than minus one second is everything, so that no test waits for anything to become old.
EVERYTHING = RetentionRules(record_seconds=-1.0, malformed_seconds=-1.0, batch=3, interval_seconds=60.0)


class Days:
    """A clock whose waits are over at once, and which ends the loop after a number of them."""

    def __init__(self, waits: int) -> None:
        self.slept: list[float] = []
        self._waits = waits

    def monotonic(self) -> float:
        return sum(self.slept)

    def wall(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= self._waits:
            raise asyncio.CancelledError


class Outages(SqliteLedger):
    """The real ledger, out of reach for the first calls."""

    away = 0

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        if self.away:
            self.away -= 1
            raise LedgerUnavailable("the disk is away")
        return await super().prune(records_older_than, malformed_older_than, limit)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Outages]:
    opened = await Outages.open(tmp_path / "ledger.db")
    assert isinstance(opened, Outages)
    await opened.migrate()
    yield opened
    await opened.aclose()


def enrolment(number: int, status: Status) -> Enrolment:
    notification = Notification(
        notification_id=f"n{number}",
        notification_type="order.shipped",
        producer="shop",
        audience_kind="user",
        payload_json="{}",
        request_fingerprint=f"f{number}",
        priority=2,
        idempotency_key=f"k{number}",
    )
    route: dict[str, Any] = {"route_id": "push:user:1", "channel": "push", "recipient_ref": "user:1", "lane": 2}
    route |= {"provider": "fcm", "policy": "*/*", "max_attempts": 3, "status": status}
    if status is Status.SKIPPED:
        route["skipped_because"] = "unsubscribed"
    return Enrolment(notification, (Route(**route),))


async def fill(ledger: SqliteLedger, finished: int, live: int) -> None:
    await ledger.enrol([enrolment(number, Status.SKIPPED) for number in range(finished)])
    await ledger.enrol([enrolment(100 + number, Status.PENDING) for number in range(live)])


async def run(ledger: SqliteLedger, waits: int, settings: RetentionRules = EVERYTHING) -> tuple[list[Event], Days]:
    seen: list[Event] = []
    clock = Days(waits)
    with contextlib.suppress(asyncio.CancelledError):
        await Retention(ledger, seen.append, clock, settings).run()
    return seen, clock


@pytest.mark.req("S1-165")
async def test_all_that_is_old_goes_in_batches_and_live_work_stays(ledger: Outages) -> None:
    await fill(ledger, finished=7, live=2)
    await ledger.keep_malformed(
        [Malformed(stream_entry_id=f"1-{n}", failure_code="x", failure_message="x", raw_fields={}) for n in range(4)]
    )
    seen, clock = await run(ledger, waits=4)
    assert seen == [Pruned(records=7, malformed_intents=4)]
    # Three batches with something in them, one that finds nothing, then the interval.
    assert clock.slept == [0.05, 0.05, 0.05, 60.0]
    assert [await ledger.story(f"n{number}", None) for number in range(7)] == [None] * 7
    assert all([await ledger.story(f"n{100 + number}", None) for number in range(2)])


async def test_what_is_younger_stays(ledger: Outages) -> None:
    await fill(ledger, finished=2, live=0)
    assert (await run(ledger, 2, RetentionRules()))[0] == []
    assert await ledger.story("n0", None) is not None


async def test_outages_are_outlived_with_waits_of_at_most_five_seconds(ledger: Outages) -> None:
    await fill(ledger, finished=1, live=0)
    ledger.away = 7
    seen, clock = await run(ledger, waits=9)
    assert clock.slept[:7] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert seen[:7] == [
        Trouble(where="retention", error="the disk is away", retry_in_seconds=w) for w in clock.slept[:7]
    ]
    assert seen[7:] == [Pruned(records=1, malformed_intents=0)]


async def test_what_went_before_an_outage_is_still_told(ledger: Outages) -> None:
    await fill(ledger, finished=4, live=0)

    class Fails(Days):
        async def sleep(self, seconds: float) -> None:
            ledger.away = 1
            await super().sleep(seconds)

    seen: list[Event] = []
    with contextlib.suppress(LedgerUnavailable):
        await Retention(ledger, seen.append, Fails(9), EVERYTHING).prune()
    assert seen == [Pruned(records=3, malformed_intents=0)]


@pytest.mark.req("P-1111")
async def test_a_throttle_counts_for_its_whole_time(ledger: Outages, tmp_path: Path) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text('extends = "local"\n[tenant.acme.categories.surveys]\nthrottle = "1 in 60d"\n')
    rules = retention_rules(load(None, config, {}))
    assert (rules.record_seconds, rules.throttle_seconds) == (30 * 86_400.0, 60 * 86_400.0)
    counted = ThrottleEntry(
        audience="user:1", category="surveys", throttle=ThrottleRule(1, rules.throttle_seconds, "1 in 60d")
    )
    await ledger.enrol([replace(enrolment(1, Status.PENDING), throttles=(counted,))])
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as file:
        file.execute("UPDATE throttles SET updated_at = updated_at - 40 * 86400000")
        file.commit()
    await run(ledger, 1, rules)
    assert len(await ledger.throttle_times(None, "user:1", "surveys")) == 1
    await run(ledger, 1, RetentionRules())
    assert await ledger.throttle_times(None, "user:1", "surveys") == []
