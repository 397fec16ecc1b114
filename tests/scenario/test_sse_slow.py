"""Readers who do not read, too many of them, and those who vanish: nobody else suffers, nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import tables
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = """
[sse]
buffer = 4
max_connections = 12
max_per_key = 3
lifetime_seconds = {lifetime}
write_seconds = {patience}
heartbeat_seconds = 0.5
[providers.sse]
written_seconds = 20
"""
LARGE = {"text": "x" * 200_000}
ROWS = "SELECT * FROM notifications.notifications"


def stand(folder: Path, *, patience: float = 60, lifetime: float = 3600) -> SseStand:
    settings = SETTINGS.format(patience=patience, lifetime=lifetime)
    return SseStand(folder, f"sqlite:///{folder / 'sse.db'}", settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SseStand]:
    async with stand(tmp_path_factory.mktemp("sse")) as running:
        await running.start()
        yield running


async def connections(sse: SseStand) -> int:
    return int((await sse.ask("GET", "/health")).json["active_connections"])


@pytest.mark.req("S4-51", "S4-24")
async def test_a_reader_who_does_not_read_loses_its_place_and_nothing_else(sse: SseStand) -> None:
    stalled = await sse.read("slow", receive_buffer=4096)
    beside, other = await sse.read("slow"), await sse.read("other")
    await stalled.stall()
    held = await connections(sse)
    number = 0

    async def given_up() -> bool:
        nonlocal number
        number += 1
        await sse.tell("slow", payload=LARGE)
        # Everybody else hears at once.
        await beside.number(number)
        return await connections(sse) < held

    await until(given_up, timeout=60, what="the stalled reader given up")
    await sse.tell("other")
    await other.number(1)
    seen = len(stalled.told)
    assert seen < number
    again = await sse.read("slow", headers={"Last-Event-ID": stalled.last_id})
    await again.number(number - seen)
    assert [int(frame.id or 0) for frame in again.told] == list(range(seen + 1, number + 1))
    assert not beside.ended.is_set()


BATCH = """
INSERT INTO notifications.notifications (user_id, event_type, priority, payload)
SELECT 'person-' || n, 'job.new', 'HIGH',
       CASE WHEN n = 0 THEN jsonb_build_object('text', repeat('x', 12000000)) ELSE '{}' END
FROM generate_series(0, 99) AS n
"""
"""A hundred rows in one statement, of which the oldest is more than a connection takes before its reader reads."""
NEVER = """
[sse]
max_connections = 120
write_seconds = 900
[providers.sse]
written_seconds = 900
[policy.retry."*/sse"]
timeout_seconds = 1000
"""


@pytest.mark.req("S4-24")
async def test_of_a_claim_of_a_hundred_one_slow_client_holds_up_none_of_the_others(
    tmp_path: Path, ledger_dsn: str
) -> None:
    """Nothing here ends by time: the slow client holds its row for as long as the test looks."""
    async with SseStand(tmp_path, ledger_dsn, NEVER) as sse:
        await sse.start()
        stalled = await sse.read("person-0", receive_buffer=4096)
        others = [await sse.read(f"person-{number}") for number in range(1, 100)]
        await stalled.stall()
        await tables.write(ledger_dsn, BATCH)
        await asyncio.gather(*(other.number(1) for other in others))

        async def pushed() -> bool:
            return len(await tables.read(ledger_dsn, f"{ROWS} WHERE status = 'pushed'")) == 99

        await until(pushed, timeout=60, what="99 pushed")
        (row,) = await tables.read(ledger_dsn, f"{ROWS} WHERE status <> 'pushed'")
        assert (row["user_id"], row["status"], row["retry_count"]) == ("person-0", "processing", 0), "still in hand"
        assert stalled.told == []
        claims = await tables.read(ledger_dsn, "SELECT claimed_at, count(*) AS rows FROM routes GROUP BY claimed_at")
        assert [each["rows"] for each in claims] == [100], "one claim had all of them"
        assert not any(other.ended.is_set() for other in others)


@pytest.mark.parametrize("mutant", ["buffer_without_end", "dropped_when_full"])
async def test_control_without_the_bound_a_stalled_reader_keeps_its_place(tmp_path: Path, mutant: str) -> None:
    async with stand(tmp_path) as sse:
        await sse.start(mutant=mutant)
        stalled, beside = await sse.read("slow", receive_buffer=4096), await sse.read("slow")
        await stalled.stall()
        for number in range(1, 41):
            await sse.tell("slow", payload=LARGE)
            await beside.number(number)
        assert await connections(sse) == 2


async def test_a_reader_who_takes_nothing_for_too_long_is_given_up(tmp_path: Path) -> None:
    async with stand(tmp_path, patience=8) as sse:
        await sse.start(CARILLON_SSE__BUFFER="1000")
        stalled, beside = await sse.read("slow", receive_buffer=4096), await sse.read("slow")
        await stalled.stall()
        told = [await sse.tell("slow", payload=LARGE) for _ in range(30)]
        await beside.number(len(told))

        async def given_up() -> bool:
            return await connections(sse) == 1

        await until(given_up, timeout=40, what="the stalled reader given up")


@pytest.mark.req("S4-53")
async def test_too_many_readers_are_sent_away(sse: SseStand) -> None:
    crowd = [await sse.read("crowd") for _ in range(3)]
    crowded = await sse.read("crowd")
    assert (crowded.status, crowded.headers["retry-after"]) == (429, "5")
    many = [await sse.read(f"many-{number}") for number in range(12)]
    refused = [reader for reader in many if reader.status == 503]
    assert refused
    assert {reader.status for reader in many} == {200, 503}
    assert "retry-after" in refused[0].headers
    for reader in (*crowd, *many):
        await reader.leave()

    async def room() -> bool:
        return (await sse.read("late")).status == 200

    await until(room, timeout=60, what="room again")


async def test_control_without_the_bound_everybody_sits_down(tmp_path: Path) -> None:
    async with stand(tmp_path) as sse:
        await sse.start(mutant="seats_without_end")
        readers = [await sse.read("crowd") for _ in range(13)]
        assert {reader.status for reader in readers} == {200}


async def test_a_stream_has_an_end_and_a_sequel(tmp_path: Path) -> None:
    async with stand(tmp_path, lifetime=6) as sse:
        await sse.start()
        reader = await sse.read("ada")
        assert (await reader.event("closing")).json == {"reason": "lifetime"}
        await reader.closed()
        await sse.tell("ada")
        await (await sse.read("ada", headers={"Last-Event-ID": reader.last_id})).number(1)


@pytest.mark.req("S4-30")
async def test_stopping_sends_readers_away_and_costs_nothing(tmp_path: Path) -> None:
    async with stand(tmp_path) as sse:
        program = await sse.start()
        reader = await sse.read("ada")
        await sse.tell("ada", payload={"n": 1})
        await reader.number(1)
        program.terminate()
        assert (await reader.event("closing")).json == {"reason": "shutdown"}
        await reader.closed()
        assert program.wait(40) == 0
        await sse.start()
        told = await sse.tell("ada", payload={"n": 2})
        again = await sse.read("ada", headers={"Last-Event-ID": reader.last_id})
        await again.number(1)
        assert again.payloads == [{"n": 2}]
        assert (await sse.until_row(told, status="pushed"))["retry_count"] == 0


@pytest.mark.req("S4-14", "S4-48")
async def test_what_retention_took_is_announced(tmp_path: Path) -> None:
    settings = "[retention]\nrecord_seconds = 5\ninterval_seconds = 0.2\n"
    async with SseStand(tmp_path, f"sqlite:///{tmp_path / 'sse.db'}", settings) as sse:
        await sse.start()
        reader = await sse.read("ada")
        await sse.tell("ada", payload={"n": 1})
        await sse.tell("ada", payload={"n": 2})
        await reader.number(2)

        async def gone() -> bool:
            return bool((await sse.ask("GET", "/notifications/ada")).json["count"] == 0)

        await until(gone, timeout=40, what="retention")
        late = await sse.read("ada", headers={"Last-Event-ID": "1"})
        assert (await late.event("gap")).json == {"last_event_id": 1, "oldest": 3}
        await sse.tell("ada", payload={"n": 3})
        (frame,) = await late.number(1)
        assert (frame.id, frame.json["payload"]) == ("3", {"n": 3})


async def test_exports_count_the_streams(tmp_path: Path) -> None:
    exported = {"CARILLON_METRICS__STDOUT": "true", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
    async with stand(tmp_path) as sse:
        program = await sse.start(**exported)
        for _ in range(2):
            await sse.read("ada")

        async def counted() -> bool:
            scopes = [
                scope
                for line in program.events("metrics")
                for resource in line["resource_metrics"]
                for scope in resource["scope_metrics"]
            ]
            found = [
                metric for scope in scopes for metric in scope["metrics"] if metric["name"] == "carillon.streams.open"
            ]
            newest = found[-1]["data"]["data_points"][0]["value"] if found else None
            return bool(newest == 2)

        await until(counted, timeout=40, what="an export")
