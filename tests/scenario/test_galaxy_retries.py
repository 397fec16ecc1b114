"""Budgets, waits without dice, dead letters, and a stream that heals."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import GATEWAY, MAIL, READER, Galaxy
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = {"NOTIFICATION_ROUTE_BACKOFF_MIN": "20ms", "NOTIFICATION_ROUTE_BACKOFF_MAX": "160ms"}
ONE = '["u"]'


def waits(row: dict[str, Any]) -> timedelta:
    found: timedelta = row["next_attempt_at"] - row["last_error_at"]
    return found


@pytest.mark.req("S1-153", "S1-154", "S1-155", "S1-157", "S1-159", "S1-27")
async def test_both_budgets_are_spent_and_no_more(galaxy: Galaxy) -> None:
    for stream in (GATEWAY, MAIL):
        await galaxy.redis.set(stream, "not a stream")
    program = galaxy.start(**QUICK)
    entry_id = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    routes = await galaxy.routes(entry_id, status="dead_letter")
    for channel in ("push", "email"):
        # Lines follow what happened.
        await program.until(
            "route_attempted",
            lambda line, channel=channel: (line["channel"], line["verdict"]) == (channel, "bury"),  # type: ignore[misc]
        )
    lines = program.events("route_attempted")
    for channel, budget, word in (
        ("push", 3, "gateway_stream_publish_failed"),
        ("email", 7, "mail_stream_publish_failed"),
    ):
        attempts = [line for line in lines if line["channel"] == channel]
        assert [line["attempt"] for line in attempts] == list(range(1, budget + 1))
        assert [line["verdict"] for line in attempts] == ["retry"] * (budget - 1) + ["bury"]
        delays = [line["delay_seconds"] for line in attempts[:-1]]
        assert delays == [0.02, 0.04, 0.08, 0.16, 0.16, 0.16][: budget - 1]
        row = routes[f"{channel}:user:u"]
        assert (row["attempt_count"], row["max_attempts"], row["next_attempt_at"]) == (budget, budget, None)
        assert row["dead_lettered_at"] is not None
        assert row["last_error_classification"] == word
        (dead,) = await galaxy.rows("SELECT * FROM dead_letters WHERE route_id = $1", row["route_id"])
        assert (dead["final_attempt_count"], dead["max_attempts"]) == (budget, budget)
        assert (dead["failure_classification"], dead["channel"], dead["recipient_ref"]) == (word, channel, "user:u")
        assert "WRONGTYPE" in dead["failure_message"]
        assert dead["recovery_hint"]
        assert dead["created_at"] is not None
    (row,) = await galaxy.rows("SELECT count(*) AS n FROM dead_letters")
    assert row["n"] == 2


@pytest.mark.req("S1-28", "S1-154", "S1-155", "S1-156", "S1-113")
async def test_the_waits_of_the_document_to_the_microsecond(galaxy: Galaxy) -> None:
    await galaxy.redis.set(MAIL, "not a stream")
    galaxy.start()
    # The first waits are short: what each settlement wrote is kept, however late somebody looks.
    await galaxy.execute("CREATE TABLE settled AS SELECT * FROM routes WITH NO DATA")
    await galaxy.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO notification.settled SELECT NEW.*; RETURN NULL; END $$"
    )
    await galaxy.execute(
        "CREATE TRIGGER keep AFTER UPDATE ON routes FOR EACH ROW WHEN (NEW.status = 'failed' "
        "AND OLD.ticket IS NOT NULL AND NEW.ticket IS NULL) EXECUTE FUNCTION keep()"
    )
    entry_id = await galaxy.publish(intent("lobby.invite.expired", recipient_user_ids_json=ONE))
    seen: dict[int, dict[str, Any]] = {}
    query = "SELECT * FROM settled WHERE notification_id = $1 AND attempt_count = $2"
    for attempt in range(1, 7):
        row = await galaxy.row_once(query, entry_id, attempt)
        seen[attempt] = row
        assert row["last_error_classification"] == "mail_stream_publish_failed"
        assert "WRONGTYPE" in row["last_error_message"]
        # The next one need not be waited for.
        await galaxy.execute(
            "UPDATE routes SET next_attempt_at = now() "
            "WHERE notification_id = $1 AND next_attempt_at IS NOT NULL AND ticket IS NULL",
            entry_id,
        )
    assert [waits(row) for row in seen.values()] == [timedelta(seconds=2**n) for n in range(6)]


@pytest.mark.req("S1-28", "S1-154")
async def test_the_longest_wait(galaxy: Galaxy) -> None:
    await galaxy.redis.set(MAIL, "not a stream")
    galaxy.start(NOTIFICATION_ROUTE_BACKOFF_MIN="4m")
    entry_id = await galaxy.publish(intent("lobby.invite.expired", recipient_user_ids_json=ONE))
    query = "SELECT * FROM routes WHERE notification_id = $1 AND status = 'failed' AND ticket IS NULL"
    first = await galaxy.row_once(f"{query} AND attempt_count = 1", entry_id)
    await galaxy.execute("UPDATE routes SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    second = await galaxy.row_once(f"{query} AND attempt_count = 2", entry_id)
    assert [waits(first), waits(second)] == [timedelta(minutes=4), timedelta(minutes=5)]


@pytest.mark.req("S1-160", "S1-162")
async def test_a_dead_sibling_changes_nothing_and_a_healed_stream_publishes(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "not a stream")
    program = galaxy.start(**QUICK, NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS="2")
    first = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    await galaxy.row_once("SELECT 1 FROM dead_letters WHERE notification_id = $1", first)
    await galaxy.row_once("SELECT 1 FROM routes WHERE status = 'published'")
    routes = await galaxy.routes(first)
    assert {route_id: row["status"] for route_id, row in routes.items()} == {
        "push:user:u": "dead_letter",
        "email:user:u": "published",
    }
    mail = routes["email:user:u"]
    assert (mail["attempt_count"], mail["last_error_at"]) == (1, None)
    # A larger budget, which the stream's illness does not outlast however long it takes.
    program.terminate()
    assert program.wait() == 0
    program = galaxy.start(**QUICK, NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS="1000")
    second = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    await program.until("route_attempted", lambda line: (line["verdict"], line["notification_id"]) == ("retry", second))
    await galaxy.redis.delete(GATEWAY)
    push = (await galaxy.routes(second, status="published"))["push:user:u"]
    assert 2 <= push["attempt_count"] <= 1000
    assert push["published_at"] is not None
    assert (await galaxy.routes(first))["email:user:u"] == mail
    # What is dead stays dead.
    assert (await galaxy.routes(first))["push:user:u"]["status"] == "dead_letter"
    assert [fields["event_id"] for _, fields in await galaxy.published(GATEWAY, 1)] == [f"{second}/push:user:u"]


@pytest.mark.req("S1-157", "S1-158")
async def test_a_payload_that_cannot_be_encoded_spends_its_budget(galaxy: Galaxy) -> None:
    doors = galaxy.start("--roles", "doors")
    entry_id = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    await galaxy.routes(entry_id)
    doors.terminate()
    doors.wait()
    await galaxy.execute("UPDATE records SET payload_json = '{broken'")
    galaxy.start(**QUICK)
    routes = await galaxy.routes(entry_id, status="dead_letter")
    assert {row["channel"]: row["attempt_count"] for row in routes.values()} == {"push": 3, "email": 7}
    assert {row["last_error_classification"] for row in routes.values()} == {"payload_encoding_failed"}
    rows = await galaxy.rows("SELECT failure_classification FROM dead_letters")
    assert [row["failure_classification"] for row in rows] == ["payload_encoding_failed"] * 2
    assert await galaxy.redis.xlen(GATEWAY) == await galaxy.redis.xlen(MAIL) == 0


@pytest.mark.req("S1-161")
async def test_a_restart_in_mid_wait_goes_on_with_the_same_count(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "not a stream")
    slow = {"NOTIFICATION_ROUTE_BACKOFF_MIN": "4m"}
    first = galaxy.start(**slow)
    entry_id = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    for verdict in ("retry", "finish"):
        await first.until("route_attempted", lambda line, verdict=verdict: line["verdict"] == verdict)  # type: ignore[misc]
    before = (await galaxy.routes(entry_id))["push:user:u"]
    assert (before["status"], before["attempt_count"]) == ("failed", 1)
    first.kill()
    await galaxy.redis.delete(GATEWAY)
    second = galaxy.start(**slow)
    # Others go through, and this one waits on for its moment, which is then made to come.
    await galaxy.redis.delete(READER)
    await galaxy.routes(await galaxy.publish(intent()), status="published")
    assert (await galaxy.routes(entry_id))["push:user:u"] == before
    await galaxy.execute("UPDATE routes SET next_attempt_at = now() WHERE status = 'failed'")
    after = (await galaxy.routes(entry_id, status="published"))["push:user:u"]
    assert after["attempt_count"] == 2
    line = await second.until("route_attempted", lambda line: line["notification_id"] == entry_id)
    assert (line["attempt"], line["route_id"]) == (2, "push:user:u")


@pytest.mark.req("S1-153", "S1-162")
async def test_a_redis_that_refuses_writes_costs_attempts_and_heals(galaxy: Galaxy) -> None:
    galaxy.start(**QUICK, NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS="1000", NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS="1000")
    entry_id = await galaxy.publish(intent(recipient_user_ids_json=ONE))
    await galaxy.routes(entry_id, status="published")
    for stream in (GATEWAY, MAIL):
        await galaxy.redis.rename(stream, f"{stream}:kept")
        await galaxy.redis.set(stream, "not a stream")
    later = await galaxy.publish(intent(recipient_user_ids_json=ONE))

    async def failing() -> bool:
        rows = await galaxy.rows("SELECT attempt_count FROM routes WHERE notification_id = $1", later)
        return len(rows) == 2 and all(row["attempt_count"] >= 4 for row in rows)

    await until(failing, timeout=60, what="four failed attempts of each")
    for stream in (GATEWAY, MAIL):
        await galaxy.redis.delete(stream)
    await galaxy.routes(later, status="published")
    assert not await galaxy.rows("SELECT 1 FROM dead_letters")
