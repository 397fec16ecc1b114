"""What is old goes, what is still due stays, and the offset never goes."""

import pytest

from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import GATEWAY, OFFSET, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = {"NOTIFICATION_CLEANUP_INTERVAL": "200ms"}


async def grows_old(stand: Galaxy, table: str, column: str, key: str, *ids: str) -> None:
    await stand.execute(f"UPDATE {table} SET {column} = now() - interval '1 h' WHERE {key} = ANY ($1)", list(ids))  # noqa: S608 - names of this file


@pytest.mark.req("S1-29", "S1-163", "S1-165", "S1-166", "S1-111")
async def test_old_records_go_with_everything_that_hangs_on_them(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "not a stream")
    quick = {"NOTIFICATION_ROUTE_BACKOFF_MIN": "10ms", "NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS": "1"}
    program = galaxy.start(NOTIFICATION_RECORD_RETENTION="30m", **SOON, **quick)
    dead = await galaxy.publish(intent(recipient_user_ids_json='["u"]'))
    await galaxy.row_once("SELECT 1 FROM dead_letters WHERE notification_id = $1", dead)
    young = await galaxy.publish(intent("lobby.invite.expired"))
    due = await galaxy.publish(intent("lobby.invite.expired"))
    for entry_id in (young, due):
        await galaxy.routes(entry_id, status="published")
    await galaxy.row_once(
        "SELECT 1 FROM routes WHERE notification_id = $1 AND channel = 'email' AND status = 'published'", dead
    )
    await galaxy.execute(
        "UPDATE routes SET status = 'failed', next_attempt_at = now() + interval '1 d', published_at = NULL "
        "WHERE notification_id = $1 AND route_id = 'email:user:user-1'",
        due,
    )
    await grows_old(galaxy, "records", "accepted_at", "notification_id", dead, due)

    pruned = await program.until("pruned")
    assert (pruned["records"], pruned["malformed_intents"]) == (1, 0)
    for table in ("routes", "dead_letters"):
        assert not await galaxy.rows(f"SELECT 1 FROM {table} WHERE notification_id = $1", dead)  # noqa: S608 - two names
    kept = {row["notification_id"] for row in await galaxy.rows("SELECT notification_id FROM records")}
    assert kept == {young, due}
    # Once nothing of it is due it goes as well.
    mark = program.mark()
    await galaxy.execute(
        "UPDATE routes SET status = 'published', next_attempt_at = NULL, published_at = now() "
        "WHERE notification_id = $1 AND status = 'failed'",
        due,
    )
    await program.until("pruned", lambda line: line["records"] == 1, since=mark)
    assert [row["notification_id"] for row in await galaxy.rows("SELECT notification_id FROM records")] == [young]
    assert await galaxy.offset() == due
    assert await galaxy.redis.ttl(OFFSET) == -1


@pytest.mark.req("S1-29", "S1-164", "S1-166")
async def test_malformed_entries_have_their_own_time(galaxy: Galaxy) -> None:
    program = galaxy.start(NOTIFICATION_MALFORMED_INTENT_RETENTION="30m", **SOON)
    old, young = [await galaxy.publish(intent(payload_json="{")) for _ in range(2)]
    good = await galaxy.publish(intent())
    await galaxy.routes(good, status="published")
    await grows_old(galaxy, "malformed_intents", "recorded_at", "stream_entry_id", old)
    await grows_old(galaxy, "records", "accepted_at", "notification_id", good)
    pruned = await program.until("pruned")
    assert (pruned["records"], pruned["malformed_intents"]) == (0, 1)
    rows = await galaxy.rows("SELECT stream_entry_id FROM malformed_intents")
    assert [row["stream_entry_id"] for row in rows] == [young]
    # An hour is nothing to records, which are kept for thirty days, and so are their dead letters.
    assert await galaxy.rows("SELECT 1 FROM records WHERE notification_id = $1", good)
