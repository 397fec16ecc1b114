"""A process that dies in the middle of an erasure: the next one finishes it, and nothing names the person."""

import asyncio
import json
import re
import sqlite3
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import asyncpg
import pytest

from carillon.ledger.columns import COLUMNS
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.client import Client
from tests.support.process import Program
from tests.support.stand import Stand

pytestmark = pytest.mark.slow

POINTS = (
    *("erasure_begun", "erasure_window", "erasure_notifications", "erasure_person"),
    *("erasure_mentions", "erasure_history", "erasure_noted"),
)
PERSON, ADDRESS = "canary-person", "canary-device-token"


async def live(stand: Stand) -> None:
    """Notifications, a dead letter or two, preferences and a suppression of the person, and one of somebody else."""
    client = Client(stand.address)
    for who, address in ((PERSON, ADDRESS), ("other-person", "other-device")):
        data = {"name": who, "link": "https://example.org/start"}
        body = {"templateKey": "welcome", "channel": "push", "userId": who, "recipient": address, "data": data}
        wanted = {"contacts": {"email": f"{address}@example.org"}}
        for _ in range(3):
            reply = await asyncio.to_thread(client.call, "POST", "/api/v1/notifications/send", body)
            assert reply.status in {200, 202}, reply
        await asyncio.to_thread(client.call, "PATCH", f"/api/v1/preferences/user/{who}", wanted)
        held = {"channel": "push", "address": address, "reason": "asked"}
        await asyncio.to_thread(client.call, "POST", "/api/v1/suppressions", held)


async def naming(stand: Stand, text: str) -> list[str]:
    """The tables in which a text can be read."""
    found = []
    for table in COLUMNS:
        try:
            rows = await tables.read(stand.url, f"SELECT * FROM {table}")  # noqa: S608 - our own names
        except (sqlite3.Error, asyncpg.PostgresError):
            continue
        if text in json.dumps(rows, default=str):
            found.append(table)
    return found


async def until_finished(stand: Stand) -> None:
    for _ in range(300):
        if not await tables.read(stand.url, "SELECT subject FROM erasures"):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the erasure is not finished")


async def stopped(program: Program) -> None:
    program.terminate()
    assert await asyncio.to_thread(program.wait, 60) == 0


@pytest.mark.req("P-222", "P-225")
async def test_an_erasure_is_finished_after_death_at_every_step(make_stand: MakeStand) -> None:
    async with make_stand(sandbox={"delay_seconds": 0.01}) as stand:
        program = await stand.start()
        programs = [program]
        for point in POINTS:
            await live(stand)
            assert {"records", "routes", "preferences"} <= set(await naming(stand, "canary"))
            await stopped(program)
            dying = await stand.start(faults=f"{point}=exit9")
            with suppress(HTTPException, OSError):
                await asyncio.to_thread(Client(stand.address).call, "DELETE", f"/api/v1/people/{PERSON}")
            assert await asyncio.to_thread(dying.wait, 60) == -9, f"{point} was not reached"
            assert await tables.read(stand.url, "SELECT subject FROM erasures"), "nobody would go on"
            program = await stand.start()
            programs += [dying, program]
            await until_finished(stand)
            assert not await naming(stand, "canary"), point
            assert {"records", "routes", "preferences"} <= set(await naming(stand, "other-"))
            (last,) = await tables.read(
                stand.url,
                "SELECT detail_json FROM admin_actions WHERE action = 'erase' ORDER BY action_id DESC LIMIT 1",
            )
            assert json.loads(last["detail_json"])["finished"] is True
        await stopped(program)
        # What our processes wrote to their logs names no address.
        assert not [each for each in programs if ADDRESS in each.tail(100_000)]
        if stand.url.startswith("sqlite"):
            # Freed pages too: deleted rows are overwritten.
            folder = Path(stand.url.removeprefix("sqlite:///")).parent
            files = [each for each in folder.glob("ledger.db*") if each.is_file()]
            assert files
            assert not [each.name for each in files if re.search(rb"canary-", each.read_bytes())]
