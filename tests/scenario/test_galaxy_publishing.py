"""Due routes, leases, the order of XADD and commit, and replicas beside each other."""

import json
import time
from base64 import urlsafe_b64encode
from functools import partial

import pytest

from tests.support.galaxy_seen import all_ready, intent, monitored
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, READER, Galaxy
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASES = "notification:route_leases:"


def segment(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def lease(entry_id: str, route_id: str) -> str:
    return f"{LEASES}{segment(entry_id)}:{segment(route_id)}"


@pytest.mark.req("S1-47", "S1-121", "S1-125", "S1-128", "S1-148", "S1-149", "S1-151")
async def test_one_intent_end_to_end(galaxy: Galaxy) -> None:
    program = galaxy.start()
    entry_id = await galaxy.publish(request_id="r-1")
    routes = await galaxy.routes(entry_id, status="published")
    assert set(routes) == {f"{channel}:user:user-{n}" for channel in ("push", "email") for n in (1, 2)}
    pushed = await galaxy.published(GATEWAY, 2)
    assert {fields["event_id"] for _, fields in pushed} == {f"{entry_id}/push:user:user-{n}" for n in (1, 2)}
    mailed = await galaxy.published(MAIL, 2)
    assert json.loads(mailed[0][1]["payload_json"])["variables"]["game_name"] == "Nebula Clash"
    await galaxy.offset_reaches(entry_id)
    program.terminate()
    assert program.wait() == 0


@pytest.mark.req("S1-126")
async def test_the_first_attempt_is_made_at_once(running: Galaxy) -> None:
    waits = []
    # By Redis's own clock, which dates both entries; the best of a few, because the machine may have other work.
    for _ in range(10):
        entry_id = await running.publish(intent(recipient_user_ids_json='["u"]'))
        await running.routes(entry_id, status="published")
        event_id, _ = (await running.published(GATEWAY, 1))[-1]
        waits.append(int(event_id.partition("-")[0]) - int(entry_id.partition("-")[0]))
    assert min(waits) < 500


def takes(keys: set[str], words: list[str]) -> bool:
    return words[0].upper() == "SET" and words[1] in keys


async def gone(stand: Galaxy, entry_id: str) -> bool:
    return not await stand.redis.keys(f"{LEASES}{segment(entry_id)}:*")


@pytest.mark.req("S1-118", "S1-119", "S1-28")
async def test_the_lease_of_the_document(galaxy: Galaxy) -> None:
    galaxy.start()
    assert lease("1775121700000-0", "push:user:user-1") == f"{LEASES}MTc3NTEyMTcwMDAwMC0w:cHVzaDp1c2VyOnVzZXItMQ"
    longest = 0
    # Counted from the claim, which is a moment older: the best of a few, because the machine may have other work.
    for _ in range(10):
        async with monitored(galaxy.redis) as commands:
            entry_id = await galaxy.publish(intent(recipient_user_ids_json='["user-1"]'))
            await galaxy.routes(entry_id, status="published")
            keys = {lease(entry_id, f"{channel}:user:user-1") for channel in ("push", "email")}
            taken = await commands.until_some(partial(takes, keys), 2)
        assert {command[1] for command in taken} == keys
        for command in taken:
            words = [word.upper() for word in command]
            assert "NX" in words
            lasts = int(words[words.index("PX") + 1])
            assert lasts <= 5000
            longest = max(longest, lasts)
            assert len(command[2]) >= 8
        # Given back behind the commit.
        await until(partial(gone, galaxy, entry_id), timeout=40, what="no lease left")
        if longest >= 2500:
            break
    assert longest >= 2500


async def look_again(stand: Galaxy, entry_id: str) -> None:
    """A route that found its lease taken is due once more, instead of when that lease was to end."""
    query = (
        "UPDATE routes SET next_attempt_at = now() WHERE notification_id = $1 AND claim_token IS NULL"
        " AND next_attempt_at > now() + interval '1 min' RETURNING 1"
    )
    await stand.row_once(query, entry_id)


@pytest.mark.req("S1-119", "S1-120")
async def test_what_another_has_leased_is_left_alone_until_then(running: Galaxy) -> None:
    # The id is known before the entry is, and so is the name of its lease.
    entry_id = f"{int(time.time() * 1000) + 60_000}-0"
    key = lease(entry_id, "push:user:held")
    await running.redis.set(key, "another's", px=600_000)
    await running.redis.xadd(INTENTS, intent(recipient_user_ids_json='["held"]'), id=entry_id)
    await running.row_once(
        "SELECT 1 FROM routes WHERE notification_id = $1 AND channel = 'email' AND status = 'published'", entry_id
    )
    (row,) = await running.rows(
        "SELECT status, attempt_count FROM routes WHERE notification_id = $1 AND channel = 'push'", entry_id
    )
    assert row["status"] == "pending"
    assert await running.redis.get(key) == b"another's"
    began = time.monotonic()
    await running.redis.pexpire(key, 1500)
    await look_again(running, entry_id)
    routes = await running.routes(entry_id, status="published")
    assert time.monotonic() - began >= 1.4
    assert routes["push:user:held"]["attempt_count"] == 1


@pytest.mark.req("S1-117")
async def test_due_routes_go_oldest_first_and_each_publisher_takes_its_own(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "in the way")
    doors = galaxy.start("--roles", "doors")
    ids = [await galaxy.publish(intent(recipient_user_ids_json='["u"]')) for _ in range(5)]
    await galaxy.offset_reaches(ids[-1])
    doors.terminate()
    assert doors.wait() == 0
    await galaxy.execute(
        "UPDATE routes SET next_attempt_at = now() + interval '1 h' WHERE notification_id = $1", ids[0]
    )
    for age, entry_id in enumerate(ids[1:]):
        await galaxy.execute(
            "UPDATE routes SET next_attempt_at = now() - make_interval(mins => $2) WHERE notification_id = $1",
            entry_id,
            age + 1,
        )
    # One at a time, so that the order of claims is the order of entries.
    galaxy.start(CARILLON_WORK__CONCURRENCY="1")
    # The push publisher gets nothing through, and the email publisher does not care.
    mails = await galaxy.published(MAIL, 4)
    assert [fields["delivery_id"].partition("/")[0] for _, fields in mails] == ids[:0:-1]
    assert not await galaxy.rows("SELECT 1 FROM routes WHERE channel = 'push' AND status = 'published'")
    (row,) = await galaxy.rows("SELECT status FROM routes WHERE notification_id = $1 AND channel = 'email'", ids[0])
    assert row["status"] == "pending"


@pytest.mark.req("S1-119", "S1-121")
async def test_the_entry_is_there_before_the_commit(running: Galaxy) -> None:
    before = await running.redis.xlen(MAIL)
    entry_id = f"{int(time.time() * 1000) + 120_000}-0"
    key = lease(entry_id, "email:user:slow")
    await running.redis.set(key, "held by the test", px=600_000)
    await running.redis.xadd(INTENTS, intent(recipient_user_ids_json='["slow"]'), id=entry_id)
    await running.row_once(
        "SELECT 1 FROM routes WHERE notification_id = $1 AND channel = 'push' AND status = 'published'", entry_id
    )
    # Let it be claimed and published, and make the settlement wait for a lock on its row.
    await running.execute(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.status = 'published' THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF; "
        "RETURN NEW; END $$"
    )
    await running.execute("CREATE TRIGGER hold BEFORE UPDATE ON routes FOR EACH ROW EXECUTE FUNCTION hold()")
    await running.execute("SELECT pg_advisory_lock(4711)")
    await running.redis.delete(key)
    await look_again(running, entry_id)
    try:
        await running.published(MAIL, before + 1)
        (row,) = await running.rows("SELECT * FROM routes WHERE notification_id = $1 AND channel = 'email'", entry_id)
        assert (row["status"], row["published_at"]) == ("pending", None)
        # The lease is another's by now, and not ours to give back.
        await running.redis.set(key, "foreign", px=60_000)
    finally:
        await running.execute("SELECT pg_advisory_unlock(4711)")
    await running.routes(entry_id, status="published")
    await running.execute("DROP TRIGGER hold ON routes")
    assert await running.redis.xlen(MAIL) == before + 1
    # A later route's leases are given back behind this one's.
    await running.routes(await running.publish(intent()), status="published")
    assert await running.redis.get(key) == b"foreign"


@pytest.mark.req("S1-122")
async def test_who_overslept_changes_nothing(galaxy: Galaxy) -> None:
    sleeper = galaxy.start(CARILLON_FAULTPOINTS="before_settle=stop", NOTIFICATION_ROUTE_LEASE_TTL="3s")
    entry_id = await galaxy.publish(intent("lobby.invite.expired", recipient_user_ids_json='["u"]'))
    await galaxy.published(MAIL, 1)
    other = galaxy.start("--roles", "outbound", NOTIFICATION_ROUTE_LEASE_TTL="30s")
    fresh = (await galaxy.routes(entry_id, status="published"))["email:user:u"]
    assert fresh["attempt_count"] == 2
    sleeper.cont()
    late = await sleeper.until("route_attempted")
    assert late["settled"] == "stale"
    assert (await galaxy.routes(entry_id))["email:user:u"] == fresh
    assert other.returncode is None
    # At least once: both entries carry the ids a reader tells repeats by.
    first, second = (fields for _, fields in await galaxy.published(MAIL, 2))
    assert first == second


@pytest.mark.req("S1-123")
async def test_a_crash_between_xadd_and_commit_repeats_under_the_same_ids(galaxy: Galaxy) -> None:
    entry_id = await galaxy.publish(intent(recipient_user_ids_json='["u"]', request_id="r", trace_id="t"))
    killed = galaxy.launch(CARILLON_FAULTPOINTS="before_settle=exit9", NOTIFICATION_ROUTE_LEASE_TTL="3s")
    assert killed.wait() == -9
    sent = {stream: await galaxy.redis.xlen(stream) for stream in (GATEWAY, MAIL)}
    assert max(sent.values()) == 1
    await galaxy.redis.delete(READER)
    galaxy.start(NOTIFICATION_ROUTE_LEASE_TTL="30s")
    await galaxy.routes(entry_id, status="published")
    for stream, before in sent.items():
        entries = [fields for _, fields in await galaxy.published(stream, before + 1)]
        assert len(entries) == before + 1
        assert all(fields == entries[0] for fields in entries)
        ids = {fields.get("event_id") or fields["delivery_id"] for fields in entries}
        assert ids == {f"{entry_id}/{'push' if stream == GATEWAY else 'email'}:user:u"}


@pytest.mark.req("S1-124")
async def test_three_replicas_publish_each_route_once(galaxy: Galaxy) -> None:
    doors = galaxy.start("--roles", "doors")
    people = json.dumps([f"u{n}" for n in range(15)])
    ids = [await galaxy.publish(intent(recipient_user_ids_json=people)) for _ in range(10)]
    await galaxy.offset_reaches(ids[-1])
    replicas = [galaxy.launch("--roles", "outbound", NOTIFICATION_ROUTE_LEASE_TTL="30s") for _ in range(3)]
    await all_ready(replicas)

    async def finished() -> bool:
        return not await galaxy.rows("SELECT 1 FROM routes WHERE status <> 'published' LIMIT 1")

    await until(finished, timeout=60, what="three hundred routes published")
    for stream, name in ((GATEWAY, "event_id"), (MAIL, "delivery_id")):
        sent = [fields[name] for _, fields in await galaxy.published(stream, 150)]
        assert len(sent) == len(set(sent)) == 150
    rows = await galaxy.rows("SELECT DISTINCT attempt_count FROM routes")
    assert rows == [{"attempt_count": 1}]
    assert doors.returncode is None


@pytest.mark.req("S1-125", "S1-113")
async def test_what_a_published_route_looks_like(running: Galaxy) -> None:
    for row in (await running.routes(await running.publish(intent()), status="published")).values():
        assert row["published_at"] >= row["created_at"]
        assert (row["next_attempt_at"], row["attempt_count"], row["last_error_at"]) == (None, 1, None)
