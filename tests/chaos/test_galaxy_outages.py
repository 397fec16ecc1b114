"""PostgreSQL or the User Service away while intents arrive: the offset stays behind, and all heals by itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import galaxy_promises as promises
from tests.chaos.properties import hold
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import GATEWAY, MAIL
from tests.support.servers import Postgres, Redis
from tests.support.vendor import Reply
from tests.support.waiting import until

FIRST, MORE = 60, 200
PATIENCE = {"NOTIFICATION_POSTGRES_OPERATION_TIMEOUT": "1s"}


@pytest.mark.req("S1-65")
@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_without_postgres_the_offset_stays(
    tmp_path: Path, own_postgres: Postgres, galaxy_redis: Redis, fault: str, figures: Callable[..., None]
) -> None:
    async with FaultyGalaxy(tmp_path, own_postgres.database(), galaxy_redis, **PATIENCE) as stand:
        program = await stand.run()
        await stand.offset_reaches((await stand.intents(range(FIRST)))[-1])
        before, since = await stand.offset(), program.mark()
        await asyncio.to_thread(own_postgres.kill if fault == "killed" else own_postgres.pause)
        last = (await stand.intents(range(FIRST, FIRST + MORE)))[-1]
        await program.until("trouble", lambda line: line["where"] == "redis_stream", since=since, timeout=40)
        hold("offset_behind_commit", await stand.offset() == before, await stand.offset())
        await asyncio.to_thread(own_postgres.start if fault == "killed" else own_postgres.resume)
        await stand.offset_reaches(last, within=60)
        await stand.flowed(FIRST + MORE)
        hold("heals_alone", program.returncode is None, program.returncode)
        await promises.nothing_lost(stand)
        # Only what PostgreSQL did not hear of in time is published again, and under the same ids.
        repeated = await promises.repeats(stand, 4 * FIRST)
        figures(fault=fault, intents=FIRST + MORE, repeats=repeated)


async def directory_away(stand: FaultyGalaxy, mutant: str | None = None) -> None:
    """Routes wait in PostgreSQL, the User Service goes, intents arrive; then it is back."""
    program = await stand.run(mutant=mutant, roles="doors")
    before = (await stand.intents(range(FIRST)))[-1]
    await stand.offset_reaches(before)
    stand.users.default = Reply(503)
    await stand.intents(range(FIRST, FIRST + 3), "lobby.invite.expired")
    last = (await stand.intents(range(FIRST + 3, FIRST + MORE)))[-1]

    async def stopped_or_passed() -> bool:
        return len(program.events("door_stopped")) >= 3 or await stand.offset() != before

    await until(stopped_or_passed, timeout=60, what="a door that stopped again and again")
    hold("stops_at_the_entry", await stand.offset() == before, (await stand.offset(), before))
    levels = {line["level"] for line in program.events("door_stopped")}
    hold("stops_at_the_entry", levels <= {"error", "critical"}, levels)
    # Publishers go on meanwhile: a process of their own finds what was accepted.
    await stand.run(roles="outbound")
    await stand.published(GATEWAY, 2 * FIRST)
    await stand.published(MAIL, 2 * FIRST)
    hold("stops_at_the_entry", await stand.number("SELECT count(*) FROM records") == FIRST, "accepted meanwhile")
    stand.users.default = stand.users.known
    await stand.offset_reaches(last)
    await stand.flowed(FIRST + MORE if mutant is None else FIRST)
    hold("heals_alone", program.returncode is None, program.returncode)
    await promises.nothing_lost(stand)
    await promises.repeats(stand)


@pytest.mark.req("S1-67", "S1-68", "S1-69")
async def test_without_the_user_service_the_stream_waits_and_publishers_go_on(galaxy: FaultyGalaxy) -> None:
    await directory_away(galaxy)
    rows = await galaxy.rows("SELECT idempotency_key FROM records ORDER BY accepted_at, ctid")
    assert [row["idempotency_key"] for row in rows] == galaxy.keys
    assert await galaxy.number("SELECT count(*) FROM malformed_intents") == 0
