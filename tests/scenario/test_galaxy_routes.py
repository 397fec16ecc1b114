"""From one accepted intent to its record and routes."""

import re

import pytest

from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import GATEWAY, MAIL, READER, Galaxy
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("S1-99")
@pytest.mark.parametrize("point", ["after_stream_read", "after_accept_commit"])
async def test_a_kill_during_acceptance_leaves_both_or_none(galaxy: Galaxy, point: str) -> None:
    ids = [await galaxy.publish(intent()) for _ in range(20)]
    killed = galaxy.launch("--roles", "doors", CARILLON_FAULTPOINTS=f"{point}=exit9")
    assert killed.wait() == -9
    await galaxy.redis.delete(READER)
    records = await galaxy.rows("SELECT notification_id FROM records")
    routes = await galaxy.rows("SELECT notification_id FROM routes GROUP BY 1 HAVING count(*) = 4")
    assert {row["notification_id"] for row in records} == {row["notification_id"] for row in routes}
    galaxy.start()
    await galaxy.offset_reaches(ids[-1])
    for entry_id in ids:
        assert len(await galaxy.routes(entry_id, status="published")) == 4


@pytest.mark.req("S1-99")
async def test_a_connection_killed_in_mid_statement_leaves_both_or_none(galaxy: Galaxy) -> None:
    program = galaxy.start()
    await galaxy.execute("BEGIN")
    await galaxy.execute("LOCK TABLE routes IN ACCESS EXCLUSIVE MODE")
    entry_id = await galaxy.publish(intent())
    blocked = """SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'carillon-intake'"""
    pids: list[int] = []

    async def waits() -> bool:
        # Inside a transaction the view would stay as it was first seen.
        await galaxy.rows("SELECT pg_stat_clear_snapshot()")
        pids[:] = [row["pid"] for row in await galaxy.rows(blocked)]
        return bool(pids)

    await until(waits, timeout=30, what="an acceptance between its two tables")
    program.kill()
    await galaxy.redis.delete(READER)
    for pid in pids:
        await galaxy.rows("SELECT pg_terminate_backend($1)", pid)
    await galaxy.execute("COMMIT")
    assert not await galaxy.rows("SELECT 1 FROM records UNION ALL SELECT 1 FROM routes")
    galaxy.start()
    await galaxy.routes(entry_id, status="published")


@pytest.mark.req("S1-100", "S1-101")
async def test_the_names_of_routes(running: Galaxy) -> None:
    users = await running.routes(await running.publish(intent()), status="published")
    assert set(users) == {f"{channel}:user:user-{n}" for channel in ("push", "email") for n in (1, 2)}
    for route_id, row in users.items():
        assert route_id == f"{row['channel']}:{row['recipient_ref']}"
    entry_id = await running.publish(intent("geo.review_recommended"))
    routes = await running.routes(entry_id, status="published")
    assert {route_id: row["status"] for route_id, row in routes.items()} == {
        "email:email:ops@example.com": "published",
        "push:email:ops@example.com": "skipped",
    }


@pytest.mark.req("S1-32", "S1-33", "S1-34", "S1-100", "S1-102", "S1-150")
async def test_administrators_by_type(galaxy: Galaxy) -> None:
    galaxy.start(NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED=" A@x.com, a@x.com ,b@x.com,")
    two = await galaxy.routes(await galaxy.publish(intent("game.generation_failed")), status="published")
    assert {route_id: row["status"] for route_id, row in two.items()} == {
        "email:email:a@x.com": "published",
        "push:email:a@x.com": "skipped",
        "email:email:b@x.com": "published",
        "push:email:b@x.com": "skipped",
    }
    for name in ("geo.review_recommended", "lobby.runtime_paused_after_start", "lobby.application.submitted"):
        routes = await galaxy.routes(await galaxy.publish(intent(name, "admin_email")))
        assert {route_id: row["status"] for route_id, row in routes.items()} == {f"email:config:{name}": "skipped"}
        (row,) = routes.values()
        assert name in row["last_error_message"]
    mails = await galaxy.published(MAIL, 2)
    assert len(mails) == 2


@pytest.mark.req("S1-103", "S1-104")
async def test_five_statuses_and_no_aggregate(running: Galaxy) -> None:
    (row,) = await running.rows(
        "SELECT pg_get_constraintdef(oid) AS said FROM pg_constraint WHERE conname = 'routes_status'"
    )
    words = set(re.findall(r"'(\w+)'", row["said"]))
    assert words == {"pending", "published", "failed", "dead_letter", "skipped"}
    columns = await running.rows(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'notification' AND table_name = 'records'"
    )
    assert not [column for column in columns if "status" in column["column_name"]]
    # Whatever becomes of its routes, a record says the same as when it was accepted.
    entry_id = await running.publish(intent())
    query = "SELECT * FROM records WHERE notification_id = $1"
    before = await running.row_once(query, entry_id)
    await running.routes(entry_id, status="published")
    assert await running.rows(query, entry_id) == [before]


@pytest.mark.req("S1-105", "S1-106", "S1-113")
async def test_what_a_new_route_looks_like(galaxy: Galaxy) -> None:
    program = galaxy.start("--roles", "doors", NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED="ops@x.com")
    entry_id = await galaxy.publish(intent("lobby.invite.expired"))
    routes = await galaxy.routes(entry_id)
    (record,) = await galaxy.rows("SELECT accepted_at FROM records")
    for route_id, row in routes.items():
        if route_id.startswith("email:"):
            assert (row["status"], row["attempt_count"]) == ("pending", 0)
            assert row["next_attempt_at"] == record["accepted_at"]
            assert row["skipped_at"] is None
        else:
            assert (row["status"], row["next_attempt_at"]) == ("skipped", None)
            assert row["skipped_at"] is not None
    program.terminate()
    assert program.wait() == 0
    galaxy.start()
    await galaxy.routes(entry_id, status="published")
    assert await galaxy.redis.xlen(GATEWAY) == 0
