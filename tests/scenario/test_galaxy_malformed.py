"""Entries that cannot become notifications: kept whole, told about, never in the way."""

import pytest

from tests.support.galaxy_seen import intent, number_is
from tests.support.galaxy_stand import READER, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("S1-58", "S1-59")
async def test_a_malformed_entry_is_kept_whole_and_told(galaxy: Galaxy) -> None:
    program = galaxy.start(NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED="true", OTEL_METRIC_EXPORT_INTERVAL="100")
    fields = intent(payload_json="{", idempotency_key="k-1", request_id="r-1", trace_id="t-1", surplus="kept as well")
    entry_id = await galaxy.publish(fields)
    await galaxy.offset_reaches(entry_id)
    row = await galaxy.malformed(entry_id)
    assert row["raw_fields"] == fields
    assert (row["notification_type"], row["producer"], row["idempotency_key"]) == (
        "game.turn.ready",
        "game_master",
        "k-1",
    )
    assert row["failure_code"] == "invalid_payload"
    assert row["failure_message"]
    assert row["recorded_at"] is not None
    assert not await galaxy.rows("SELECT 1 FROM records UNION ALL SELECT 1 FROM routes")
    line = await program.until("intent_malformed")
    known = {"notification_type": "game.turn.ready", "producer": "game_master", "audience_kind": "user"}
    known |= {"idempotency_key": "k-1", "request_id": "r-1", "trace_id": "t-1", "failure_code": "invalid_payload"}
    assert known.items() <= line.items()
    assert line["level"] == "warning"
    points = await number_is(program, "notification.intent.malformed", bool)
    assert points == [({"failure_code": "invalid_payload"}, 1)]
    next_id = await galaxy.publish(intent())
    await galaxy.routes(next_id, status="published")


@pytest.mark.req("S1-59")
async def test_the_columns_of_the_table(running: Galaxy) -> None:
    rows = await running.rows(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'notification' AND table_name = 'malformed_intents'"
    )
    columns = {row["column_name"]: row["data_type"] for row in rows}
    named = {"stream_entry_id", "notification_type", "producer", "idempotency_key", "failure_code", "failure_message"}
    assert set(columns) == named | {"raw_fields", "recorded_at"}
    assert (columns["raw_fields"], columns["recorded_at"]) == ("jsonb", "timestamp with time zone")


@pytest.mark.req("S1-59", "S1-61")
async def test_bytes_that_are_no_text_are_kept_as_far_as_they_can_be(running: Galaxy) -> None:
    fields = {**intent(), b"\xff\xfe": b"\x80", "payload_json": b"\xff\x00{", "idempotency_key": b"a\x00b"}
    entry_id = await running.publish(fields)
    row = await running.malformed(entry_id)
    assert row["failure_code"] == "invalid_envelope"
    assert row["raw_fields"]["notification_type"] == "game.turn.ready"
    assert len(row["raw_fields"]) == len(fields)
    await running.offset_reaches(entry_id)


@pytest.mark.req("S1-58")
async def test_a_bad_entry_between_good_ones_takes_nothing_along(running: Galaxy) -> None:
    async with running.redis.pipeline(transaction=True) as pipe:
        for fields in (intent(), intent(payload_json="[]"), intent()):
            pipe.xadd("notification:intents", fields)
        ids = [entry_id.decode() for entry_id in await pipe.execute()]
    for entry_id in (ids[0], ids[2]):
        await running.routes(entry_id, status="published")
    assert (await running.malformed(ids[1]))["failure_code"] == "invalid_payload"


@pytest.mark.req("S1-60")
async def test_a_crash_before_the_offset_leaves_one_row(galaxy: Galaxy) -> None:
    bad = await galaxy.publish(intent(occurred_at_ms="never"))
    first = galaxy.launch(CARILLON_FAULTPOINTS="before_stream_offset=exit9")
    assert first.wait() == -9
    assert await galaxy.offset() in {None, "0-0"}
    await galaxy.redis.delete(READER)
    before = await galaxy.malformed(bad)
    galaxy.start()
    await galaxy.offset_reaches(bad)
    rows = await galaxy.rows("SELECT stream_entry_id, recorded_at FROM malformed_intents")
    assert rows == [{"stream_entry_id": bad, "recorded_at": before["recorded_at"]}]


@pytest.mark.req("S1-61", "S1-86", "S1-92")
async def test_the_words_for_what_is_wrong(running: Galaxy) -> None:
    running.users.people["nobody"] = None
    fields = intent(idempotency_key="words")
    cases = {
        "invalid_envelope": intent(producer=None),
        "unsupported_notification_type": {**intent(), "notification_type": "lobby.invite.revoked"},
        "invalid_audience": intent(audience_kind="all"),
        "invalid_recipients": intent(recipient_user_ids_json="[]"),
        "invalid_payload": intent(payload_json="{}"),
        "recipient_not_found": intent(recipient_user_ids_json='["nobody"]'),
        "idempotency_conflict": {**fields, "occurred_at_ms": "7"},
    }
    await running.publish(fields)
    for code, entry in cases.items():
        assert (await running.malformed(await running.publish(entry)))["failure_code"] == code
