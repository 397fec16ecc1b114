"""How the stream is read: plain XREAD from a stored offset that moves behind the commit, in order, by one of many."""

import threading

import pytest

from tests.support.galaxy_seen import PATIENT, all_ready, intent, monitored
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, OFFSET, READER, Galaxy
from tests.support.vendor import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("S1-62", "S1-24")
async def test_the_stream_is_read_without_a_group(running: Galaxy) -> None:
    async with monitored(running.redis) as commands:
        entry_id = await running.publish(intent())
        await running.offset_reaches(entry_id)
        reads = await commands.until_some(lambda words: words[0] == "XREAD" and words[-1] == entry_id)
        assert not commands.of("XREADGROUP")
        assert not commands.of("XGROUP")
        assert not commands.of("XACK")
    words = reads[-1]
    assert words[words.index("BLOCK") + 1] == "2000"
    assert words[words.index("STREAMS") + 1 :] == [INTENTS, entry_id]
    assert await running.redis.xinfo_groups(INTENTS) == []


@pytest.mark.req("S1-64", "S1-166")
async def test_the_offset_is_a_plain_entry_id_for_ever(running: Galaxy) -> None:
    entry_id = await running.publish(intent())
    await running.offset_reaches(entry_id)
    assert OFFSET == "notification:stream_offsets:bm90aWZpY2F0aW9uOmludGVudHM"
    assert await running.redis.get(OFFSET) == entry_id.encode()
    assert await running.redis.ttl(OFFSET) == -1


@pytest.mark.req("S1-67")
async def test_entries_are_accepted_in_their_order(running: Galaxy) -> None:
    async with running.redis.pipeline() as pipe:
        for _ in range(300):
            pipe.xadd(INTENTS, intent(recipient_user_ids_json='["u"]'))
        ids = [entry_id.decode() for entry_id in await pipe.execute()]
    await running.offset_reaches(ids[-1])
    rows = await running.rows(
        "SELECT notification_id FROM records WHERE notification_id = ANY ($1) ORDER BY accepted_at", ids
    )
    assert [row["notification_id"] for row in rows] == ids


@pytest.mark.req("S1-65")
async def test_the_offset_waits_for_the_commit(running: Galaxy) -> None:
    before = await running.publish(intent())
    await running.offset_reaches(before)
    await running.execute("BEGIN")
    await running.execute("LOCK TABLE records, malformed_intents IN ACCESS EXCLUSIVE MODE")
    try:
        good, bad = await running.publish(intent()), await running.publish(intent(payload_json="{"))

        async def waits() -> bool:
            return bool(
                await running.rows("SELECT 1 FROM pg_locks WHERE relation = 'records'::regclass AND NOT granted")
            )

        await until(waits, timeout=40, what="an acceptance that waits")
        assert await running.offset() == before
    finally:
        await running.execute("COMMIT")
    await running.offset_reaches(bad)
    await running.routes(good, status="published")
    await running.malformed(bad)


@pytest.mark.req("S1-63", "S1-66")
async def test_from_the_beginning_and_then_from_where_it_was(galaxy: Galaxy) -> None:
    early = [await galaxy.publish(intent()) for _ in range(3)]
    assert await galaxy.offset() is None
    first = galaxy.start()
    for entry_id in early:
        await galaxy.routes(entry_id, status="published")
    await galaxy.offset_reaches(early[-1])
    first.terminate()
    assert first.wait() == 0
    later = [await galaxy.publish(intent()) for _ in range(3)]
    second = galaxy.start()
    for entry_id in later:
        await galaxy.routes(entry_id, status="published")
    await galaxy.offset_reaches(later[-1])
    await second.until("intent_accepted", lambda line: line["notification_id"] == later[-1])
    assert [line["notification_id"] for line in second.events("intent_accepted")] == later
    for stream in (GATEWAY, MAIL):
        assert len(await galaxy.published(stream, 12)) == 12


SILENCE = threading.Event()
REFUSALS = {
    "503": Reply(503),
    "429": Reply(429, headers={"Retry-After": "60"}),
    "500": Reply(500, body={"error": {"code": "internal", "message": "x"}}),
    "cut": Reply(reset=True),
    "hang": Reply(gate=SILENCE),
    "no json": Reply(body="<html>"),
    "no person": Reply(body={"id": "user-1"}),
    "401": Reply(401),
}


@pytest.mark.req("S1-68", "S1-31", "S1-69")
async def test_a_user_service_in_trouble_stops_the_stream_and_nothing_else(running: Galaxy) -> None:
    program = running.programs[0]
    for why, reply in REFUSALS.items():
        before = await running.publish(intent())
        await running.offset_reaches(before)
        mark = program.mark()
        # A client may ask once more by itself where a kept connection turned out to be dead.
        running.users.answer(reply, *([reply] * 4 if reply.reset else []), path="/api/v1/internal/users/stuck")
        entry_id = await running.publish(intent(recipient_user_ids_json='["stuck"]'))
        # The stub heals behind its bad answer, and nobody restarts anything.
        stopped = await program.until("door_stopped", since=mark)
        assert (stopped["stream_entry_id"], stopped["level"]) == (entry_id, "error"), why
        await running.routes(entry_id, status="published")
        await running.offset_reaches(entry_id)
    SILENCE.set()
    assert not await running.rows("SELECT 1 FROM malformed_intents WHERE failure_code = 'recipient_not_found'")


@pytest.mark.req("S1-68")
async def test_the_same_entry_is_tried_after_a_restart(galaxy: Galaxy) -> None:
    galaxy.users.default = Reply(503)
    program = galaxy.start()
    entry_id = await galaxy.publish(intent())
    behind = await galaxy.publish(intent(payload_json="{"))
    for _ in range(2):
        await program.until("door_stopped", since=program.mark())
    assert await galaxy.offset() in {None, "0-0"}
    assert not await galaxy.rows("SELECT 1 FROM records UNION ALL SELECT 1 FROM routes")
    # What stands behind it waits for its turn.
    assert not await galaxy.rows("SELECT 1 FROM malformed_intents")
    program.terminate()
    assert program.wait() == 0
    galaxy.users.default = galaxy.users.known
    galaxy.start()
    await galaxy.routes(entry_id, status="published")
    await galaxy.malformed(behind)


@pytest.mark.req("S1-69")
async def test_publishers_work_while_the_stream_stands_still(galaxy: Galaxy) -> None:
    await galaxy.redis.set(GATEWAY, "in the way")
    program = galaxy.start(NOTIFICATION_ROUTE_BACKOFF_MIN="50ms", NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS="1000")
    first = await galaxy.publish(intent())
    await program.until("route_attempted", lambda line: line["verdict"] == "retry")
    galaxy.users.default = Reply(503)
    second = await galaxy.publish(intent())
    await program.until("door_stopped")
    await galaxy.redis.delete(GATEWAY)
    await galaxy.routes(first, status="published")
    assert not await galaxy.rows("SELECT 1 FROM records WHERE notification_id = $1", second)
    waits = [line["retry_in_seconds"] for line in program.events("door_stopped")]
    assert max(waits) <= 5
    galaxy.users.default = galaxy.users.known
    await galaxy.routes(second, status="published")


@pytest.mark.timeout(300)
@pytest.mark.req("S1-70", "S1-124")
async def test_three_replicas_and_five_hundred_intents(galaxy: Galaxy) -> None:
    replicas = [galaxy.launch(**PATIENT) for _ in range(3)]
    await all_ready(replicas)
    async with galaxy.redis.pipeline() as pipe:
        for _ in range(500):
            pipe.xadd(INTENTS, intent(recipient_user_ids_json='["u"]'))
        ids = [entry_id.decode() for entry_id in await pipe.execute()]

    async def read() -> bool:
        # The lease only saves work: without it several read at once, and the table decides.
        await galaxy.redis.delete(READER)
        return bool(await galaxy.offset() == ids[-1])

    await until(read, timeout=60, what="the stream read by one of the replicas")
    (row,) = await galaxy.rows("SELECT count(*) AS n FROM records")
    assert row["n"] == 500

    def accepted() -> list[str]:
        return [line["notification_id"] for program in replicas for line in program.events("intent_accepted")]

    async def told() -> bool:
        # An entry that two of them read at once was accepted by the word of both; there is one record of it.
        return set(accepted()) >= set(ids)

    await until(told, timeout=60, what="a line for each")
    assert set(accepted()) == set(ids)

    async def finished() -> bool:
        return not await galaxy.rows("SELECT 1 FROM routes WHERE status <> 'published' LIMIT 1")

    await until(finished, timeout=60, what="a thousand routes published")
    for stream, name in ((GATEWAY, "event_id"), (MAIL, "delivery_id")):
        sent = [fields[name] for _, fields in await galaxy.published(stream, 500)]
        assert len(sent) == len(set(sent)) == 500
