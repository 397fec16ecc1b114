"""The same intent again, nearly the same, and the same key for something else."""

import asyncio
import hashlib
import json
from datetime import timedelta

import pytest

from tests.support.galaxy import payload_for
from tests.support.galaxy_seen import all_ready, intent
from tests.support.galaxy_stand import GATEWAY, MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLE = "320e8fa3793fb01f1cf7253a61a74cd199abb34c396e94a3f0047810058dc78a"
CANONICAL = '{"game_id":"game-123","game_name":"Nebula Clash","turn_number":54}'


async def repeated(stand: Galaxy, key: str, outcome: str = "duplicate") -> str:
    """Whom the newest repeat under a key repeats."""
    line = await stand.programs[0].until("intent_repeated", lambda line: line["idempotency_key"] == key)
    assert line["outcome"] == outcome
    return str(line["notification_id"])


@pytest.mark.req("S1-48", "S1-52")
async def test_the_fingerprint_of_the_catalogue(running: Galaxy) -> None:
    # Keys in another order, blanks, escapes: all insignificant.
    text = ' {"turn_number" : 54,\n"game_name":"\\u004eebula Clash", "game_id":"game-123"}'
    entry_id = await running.publish(intent(idempotency_key="game-master:game-123:turn-54", payload_json=text))
    row = await running.row_once("SELECT * FROM records WHERE notification_id = $1", entry_id)
    assert row["payload_json"] == CANONICAL
    assert row["request_fingerprint"] == EXAMPLE


@pytest.mark.req("S1-48", "S1-52")
async def test_other_alphabets_stay_as_they_are_and_administrators_are_null(running: Galaxy) -> None:
    payload = {"game_id": "g", "game_name": "Ωμέγα 🚀", "failure_reason": 'a "b" \\ c', "ａ": [2, 1], "Z": 1}  # noqa: RUF001 - a key far up in Unicode
    entry_id = await running.publish(
        intent("game.generation_failed", idempotency_key="greek", payload_json=json.dumps(payload))
    )
    row = await running.row_once("SELECT * FROM records WHERE notification_id = $1", entry_id)
    stored = json.dumps(dict(sorted(payload.items())), ensure_ascii=False, separators=(",", ":"))
    assert row["payload_json"] == stored
    whole = (
        '{"audience_kind":"admin_email","idempotency_key":"greek","notification_type":"game.generation_failed",'
        f'"occurred_at_ms":1775121700000,"payload":{stored},"producer":"game_master","recipient_user_ids":null}}'
    )
    assert row["request_fingerprint"] == hashlib.sha256(whole.encode()).hexdigest()


@pytest.mark.req("S1-50", "S1-51", "S1-53")
async def test_a_repeat_is_a_success_without_a_trace(running: Galaxy) -> None:
    fields = intent(idempotency_key="again", request_id="r-1", trace_id="t-1")
    first = await running.publish(fields)
    await running.routes(first, status="published")
    pushed = await running.redis.xlen(GATEWAY)
    other = {"request_id": "r-2", "trace_id": "t-2", "recipient_user_ids_json": '["user-2", "user-1"]'}
    second = await running.publish(fields | other)
    await running.offset_reaches(second)
    assert await repeated(running, "again") == first
    assert not await running.rows("SELECT 1 FROM records WHERE notification_id = $1", second)
    assert not await running.rows("SELECT 1 FROM routes WHERE notification_id = $1", second)
    assert not await running.rows("SELECT 1 FROM malformed_intents WHERE stream_entry_id = $1", second)
    assert await running.redis.xlen(GATEWAY) == pushed
    (row,) = await running.rows("SELECT request_id FROM records WHERE notification_id = $1", first)
    assert row["request_id"] == "r-1"


@pytest.mark.req("S1-49", "S1-54", "S1-61")
@pytest.mark.parametrize(
    "changes",
    [
        {"payload_json": CANONICAL.replace("54", "55")},
        {"payload_json": CANONICAL.replace("}", ',"share":54}')},
        {"recipient_user_ids_json": '["user-1"]'},
        {"occurred_at_ms": "1775121700001"},
    ],
)
async def test_one_key_for_something_else_is_a_conflict(running: Galaxy, changes: dict[str, str]) -> None:
    fields = intent(payload_json=CANONICAL.replace("}", ',"share":54.0}') if "share" in str(changes) else CANONICAL)
    first = await running.publish(fields)
    await running.routes(first, status="published")
    second = await running.publish(fields | changes)
    row = await running.malformed(second)
    assert row["failure_code"] == "idempotency_conflict"
    assert row["idempotency_key"] == fields["idempotency_key"]
    await running.offset_reaches(second)
    assert not await running.rows("SELECT 1 FROM routes WHERE notification_id = $1", second)
    # The order of an array is content.
    await running.routes(await running.publish(intent()), status="published")


@pytest.mark.req("S1-48")
async def test_the_order_of_an_array_is_content(running: Galaxy) -> None:
    whole = payload_for("game.turn.ready")
    fields = intent(payload_json=json.dumps(whole | {"seats": [1, 2]}))
    await running.publish(fields)
    row = await running.malformed(
        await running.publish(fields | {"payload_json": json.dumps(whole | {"seats": [2, 1]})})
    )
    assert row["failure_code"] == "idempotency_conflict"


@pytest.mark.req("S1-55")
async def test_a_key_belongs_to_its_producer(running: Galaxy) -> None:
    one = await running.publish(intent("game.finished", idempotency_key="shared"))
    two = await running.publish(intent("lobby.membership.approved", idempotency_key="shared"))
    for entry_id in (one, two):
        await running.routes(entry_id, status="published")


@pytest.mark.req("S1-28", "S1-57")
async def test_after_its_time_a_key_still_protects(galaxy: Galaxy) -> None:
    program = galaxy.start(NOTIFICATION_IDEMPOTENCY_TTL="1ms")
    fields = intent(idempotency_key="old")
    first = await galaxy.publish(fields)
    await galaxy.routes(first, status="published")
    second = await galaxy.publish(fields)
    await galaxy.offset_reaches(second)
    third = await galaxy.publish(fields | {"payload_json": CANONICAL.replace("54", "55")})
    row = await galaxy.malformed(third)
    assert row["failure_code"] == "idempotency_conflict"
    line = await program.until("intent_malformed", lambda line: line["stream_entry_id"] == third)
    assert line["reservation_expired"] is True
    (row,) = await galaxy.rows("SELECT notification_id, accepted_at, idempotency_expires_at FROM records")
    assert row["notification_id"] == first
    assert row["idempotency_expires_at"] - row["accepted_at"] == timedelta(milliseconds=1)


@pytest.mark.req("S1-28", "S1-57")
async def test_a_key_is_kept_a_week(running: Galaxy) -> None:
    entry_id = await running.publish(intent())
    row = await running.row_once("SELECT * FROM records WHERE notification_id = $1", entry_id)
    assert row["idempotency_expires_at"] - row["accepted_at"] == timedelta(hours=168)


@pytest.mark.req("S1-56", "S1-124")
async def test_two_replicas_make_one_record(galaxy: Galaxy) -> None:
    both = [galaxy.launch(), galaxy.launch()]
    await all_ready(both)
    fields = intent("lobby.invite.redeemed", idempotency_key="race", recipient_user_ids_json='["u"]')
    await asyncio.gather(*(galaxy.publish(fields) for _ in range(20)))
    last = await galaxy.publish(intent(recipient_user_ids_json='["u"]'))
    await galaxy.routes(last, status="published")
    rows = await galaxy.rows("SELECT notification_id FROM records WHERE idempotency_key = 'race'")
    assert len(rows) == 1
    await galaxy.routes(rows[0]["notification_id"], status="published")
    for stream, name in ((GATEWAY, "event_id"), (MAIL, "delivery_id")):
        ids = [fields[name] for _, fields in await galaxy.published(stream, 2)]
        assert sorted(ids) == sorted(set(ids))
        assert len([one for one in ids if one.startswith(rows[0]["notification_id"])]) == 1
