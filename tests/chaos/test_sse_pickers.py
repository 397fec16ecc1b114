"""The sse blueprint's pickers in trouble: killed, crashing, overslept, cut off from their database."""

import asyncio
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.chaos.test_clocks import LIBRARY, wrong_clock
from tests.chaos.test_zombies import is_stopped
from tests.support.ledger_postgres import connected
from tests.support.picker_stand import KEEPER, PICKER, SINK, PickerStand
from tests.support.process import Line
from tests.support.proxy import FaultProxy
from tests.support.stream_builders import told
from tests.support.waiting import until

HOLD = "delay_seconds = 900"
PATIENT = "timeout_seconds = 1000"
AT_ONCE = {"CARILLON_PROVIDERS__SINK__DELAY_SECONDS": "0"}
QUICK = 'lease_cleanup_interval = "100ms"'
HELD = 60


@pytest.mark.req("S4-37", "S4-41", "S4-60", "S4-64", "S4-68")
@pytest.mark.parametrize("first", [KEEPER, PICKER], ids=["reset", "claimed again"])
async def test_a_picker_killed_with_its_batch(tmp_path: Path, postgres_dsn: str, first: tuple[str, ...]) -> None:
    """Nobody touches its batch before the lease is over, then all of it is delivered for one retry each."""
    settings = f'lease_duration = "8s"\n{QUICK}'
    async with PickerStand(tmp_path, postgres_dsn, picker=settings, sink=HOLD, policy=PATIENT) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(HELD))
        victim = await stand.start(*PICKER)
        await stand.until_status("processing", HELD)
        victim.kill()
        ends = {row["notification_id"]: row["processing_lease_expires_at"] for row in await stand.rows()}
        heir = await stand.start(*first, **AT_ONCE)
        if first == KEEPER:
            freed = await stand.until_status("not_pushed", HELD)
            assert {(row["retry_count"], row["last_error"], row["processing_by"]) for row in freed} == {
                (1, "Lease expired", None)
            }
            lines = await asyncio.to_thread(heir.wait_for, "leases_reset")
            assert (lines["message"], lines["level"]) == ("reset expired leases", "warning")

            async def all_told() -> bool:
                return sum(int(line["count"]) for line in heir.events("leases_reset")) == HELD

            await until(all_told, timeout=30, what="every reset said once")
            await stand.start(*PICKER, **AT_ONCE)
        rows = await stand.until_status("pushed", HELD)
        assert {row["retry_count"] for row in rows} == {1}, "one crash costs one retry"
        assert all(row["notification_pushed_timestamp"] >= ends[row["notification_id"]] for row in rows)


@pytest.mark.req("S4-20", "S4-38", "S4-66")
@pytest.mark.parametrize("last", [KEEPER, PICKER], ids=["reset", "claimed again"])
async def test_what_was_held_by_three_that_died_is_failed(
    tmp_path: Path, postgres_dsn: str, last: tuple[str, ...]
) -> None:
    settings = f'lease_duration = "500ms"\n{QUICK}'
    async with PickerStand(tmp_path, postgres_dsn, picker=settings) as stand:
        await stand.seed([told("ann", provider=SINK), told("bob", provider=SINK, priority=1)])
        for spent in (1, 2, 3):
            picker = stand.launch(*PICKER, CARILLON_FAULTPOINTS="after_claim=exit9")
            assert await asyncio.to_thread(picker.wait, 90) == -9
            assert {row["retry_count"] for row in await stand.rows()} == {spent - 1}
        await stand.start(*last)
        rows = await stand.until_status("failed", 2)
        assert {row["retry_count"] for row in rows} == {3}
        assert stand.book() == [], "no picker lived long enough to deliver"
        assert await stand.rows(where="status IN ('not_pushed', 'processing') AND retry_count >= 3") == []


@pytest.mark.req("S4-31", "S4-32")
async def test_a_picker_that_overslept_changes_nothing_of_the_thief_s(tmp_path: Path, postgres_dsn: str) -> None:
    async with PickerStand(tmp_path, postgres_dsn, sink='outcome = "unavailable"') as stand:
        await stand.seed([told("ann", provider=SINK)])
        sleeper = await stand.start(*PICKER, CARILLON_FAULTPOINTS="before_settle=stop")

        async def asleep() -> bool:
            return is_stopped(sleeper)

        await until(asleep, timeout=60, what="the picker stopped with a failure in its hands")
        async with connected(postgres_dsn) as thief:
            await thief.execute("UPDATE notifications.notifications SET processing_by = 'thief'")
        (before,) = await stand.rows()
        sleeper.cont()
        line = await sleeper.until("route_attempted", timeout=60)
        assert line["settled"] == "stale"
        (after,) = await stand.rows()
        assert after == before
        assert (after["status"], after["processing_by"], after["retry_count"]) == ("processing", "thief", 0)


@pytest.mark.req("S4-23", "S4-39", "S4-68")
async def test_a_database_that_goes_and_comes_back(tmp_path: Path, postgres_dsn: str) -> None:
    parts = urlsplit(postgres_dsn)
    async with FaultProxy(parts.hostname or "", parts.port or 0) as proxy:
        login = f"{parts.username}@" if parts.username else ""
        through = urlunsplit(parts._replace(netloc=f"{login}{proxy.address}"))
        async with PickerStand(tmp_path, postgres_dsn, picker=QUICK, DATABASE_URL=through) as stand:
            picker = await stand.start("--roles", "outbound,upkeep")
            proxy.refusing = True
            proxy.reset()
            for where in ("claim", "lease reset"):
                line = await picker.until("trouble", partial(_is_about, where), timeout=60)
                assert line["message"].startswith(f"{where} failed")
            await stand.seed(told(f"u{number}", provider=SINK) for number in range(20))
            proxy.refusing = False
            rows = await stand.until_status("pushed", 20)
            assert {row["retry_count"] for row in rows} == {0}
            assert picker.returncode is None


@pytest.mark.req("S4-19")
@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_the_database_s_clock_decides(tmp_path: Path, postgres_dsn: str) -> None:
    """Pickers an hour ahead and behind hold leases of the right length, and none takes the other's for expired."""
    async with PickerStand(tmp_path, postgres_dsn, picker="batch_size = 30", sink=HOLD, policy=PATIENT) as stand:
        await stand.seed(told(f"u{number}", provider=SINK) for number in range(60))
        for number, shift in ((30, "-1h"), (60, "+1h")):
            await stand.start(*PICKER, **wrong_clock(shift))
            await stand.until_status("processing", number)
        right = (
            "processing_lease_expires_at BETWEEN now() AND now() + interval '31 s' AND processing_started_at <= now()"
        )
        assert len(await stand.rows(where=f"{right} AND retry_count = 0")) == 60
        owners = [row["number"] for row in await stand.rows("count(*) AS number", "TRUE GROUP BY processing_by")]
        assert owners == [30, 30]


def _is_about(where: str, line: Line) -> bool:
    return bool(line["where"] == where)
