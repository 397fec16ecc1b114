"""Streams while the ledger or the relay is away: readers stay, nothing is lost, nothing costs a try."""

import asyncio
from pathlib import Path

import pytest

from tests.support.servers import Postgres, Redis
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

SETTINGS = "[sse]\npresence_seconds = 3\nheartbeat_seconds = 0.5\n[providers.sse]\nwritten_seconds = 1\n"


@pytest.mark.req("S4-23", "S4-68")
async def test_a_ledger_that_restarts_interrupts_no_stream(tmp_path: Path) -> None:
    with Postgres() as server:
        async with SseStand(tmp_path, server.database(), SETTINGS) as stand:
            await stand.start()
            reader = await stand.read("ada")
            await stand.tell("ada", payload={"n": 1})
            await reader.number(1)
            await asyncio.to_thread(server.stop)
            beats = len(reader.frames)
            # The open stream goes on, and new readers are told to try again.
            await reader.until(lambda frames: len(frames) >= beats + 4, "heartbeats")
            assert (await stand.read("bob")).status == 503
            await asyncio.to_thread(server.start)

            async def taken() -> bool:
                body = {"event_id": "after", "event_type": "job.new", "user_id": "ada", "payload": {"n": 2}}
                return (await stand.ask("POST", "/notifications", body)).status == 202

            await until(taken, timeout=60, what="accepted again")
            await reader.number(2)
            assert reader.payloads == [{"n": 1}, {"n": 2}]
            assert not reader.ended.is_set()


@pytest.mark.req("S4-54", "S4-68")
async def test_a_relay_that_is_away_delays_and_loses_nothing(tmp_path: Path, postgres: Postgres) -> None:
    dsn = postgres.database()
    with Redis() as redis:
        async with SseStand(tmp_path, dsn, SETTINGS, REDIS_URL=redis.url()) as stand:
            await stand.start("--roles", "doors")
            reader = await stand.read("ada")
            await stand.start("--roles", "outbound")
            at = stand.addresses[0]
            await stand.tell("ada", at=at, payload={"n": 1})
            await reader.number(1)
            await asyncio.to_thread(redis.stop)
            told = await stand.tell("ada", at=at, payload={"n": 2})
            row = await stand.until_row(told, status="not_pushed", last_error="no replica confirmed the delivery")
            assert row["retry_count"] == 0
            await asyncio.to_thread(redis.start)
            await reader.number(2)
            assert reader.payloads == [{"n": 1}, {"n": 2}]
            assert (await stand.until_row(told, status="pushed"))["retry_count"] == 0
    postgres.drop(dsn)
