"""Every way in which an entry can be wrong, through the real stream into `malformed_intents`, and what is let in."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.galaxy import OCCURRED, TYPES, fields_for, payload_for
from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUIRED = ("notification_type", "producer", "audience_kind", "idempotency_key", "occurred_at_ms", "payload_json")
Case = tuple[dict[str, Any], str]


async def judged(stand: Galaxy, cases: list[Case]) -> None:
    """Every entry is kept as malformed under its code, and nothing of it became a notification."""
    ids = [await stand.publish(fields) for fields, _ in cases]
    await stand.offset_reaches(ids[-1])
    rows = await stand.rows("SELECT stream_entry_id, failure_code FROM malformed_intents")
    found = {row["stream_entry_id"]: row["failure_code"] for row in rows}
    for entry_id, (fields, code) in zip(ids, cases, strict=True):
        assert found.get(entry_id) == code, fields
    assert not await stand.rows("SELECT 1 FROM records WHERE notification_id = ANY ($1)", ids)


@pytest.mark.req("S1-37", "S1-61")
async def test_what_is_required(running: Galaxy) -> None:
    cases: list[Case] = [(intent(**{name: None}), "invalid_envelope") for name in REQUIRED]
    cases += [(intent(**{name: ""}), "invalid_envelope") for name in REQUIRED]
    cases += [({"nothing": "of the kind"}, "invalid_envelope")]
    await judged(running, cases)


@pytest.mark.req("S1-39")
async def test_the_moment(running: Galaxy) -> None:
    wrong = ("abc", "-1", "0", "1.5", "1e12", " 1775121700000", "0x10", "１７７５", "9" * 30, "2026-01-01")  # noqa: RUF001 - digits of another script
    await judged(running, [(intent(occurred_at_ms=text), "invalid_envelope") for text in wrong])
    entry_id = await running.publish(intent(occurred_at_ms="1775121700123"))
    row = await running.row_once("SELECT occurred_at FROM records WHERE notification_id = $1", entry_id)
    assert row["occurred_at"] == datetime.fromtimestamp(1775121700.123, UTC)


@pytest.mark.req("S1-40", "S1-46", "S1-61")
async def test_audience_and_producer_are_those_of_the_catalogue(running: Galaxy) -> None:
    kinds = ("everybody", "USER", "admin", "admin_email")
    cases: list[Case] = [(intent(audience_kind=kind), "invalid_audience") for kind in kinds]
    users = {"audience_kind": "user", "recipient_user_ids_json": '["user-1"]'}
    cases += [(intent("geo.review_recommended", **users), "invalid_audience")]
    cases += [(intent(producer=name), "invalid_envelope") for name in ("game_lobby", "geoprofile", "Game_Master")]
    await judged(running, cases)


@pytest.mark.req("S1-41", "S1-61")
async def test_recipients(running: Galaxy) -> None:
    wrong = ("[]", '["u","u"]', '"u"', "[1]", '["u",null]', '[""]', '{"0":"u"}', "[", "", "null", '[["u"]]')
    cases: list[Case] = [(intent(recipient_user_ids_json=text), "invalid_recipients") for text in wrong]
    await judged(running, [*cases, (intent(recipient_user_ids_json=None), "invalid_recipients")])


@pytest.mark.req("S1-42")
async def test_administrators_are_not_named_by_the_producer(running: Galaxy) -> None:
    wrong = ('["user-1"]', "[]", "")
    await judged(
        running,
        [(intent("game.generation_failed", recipient_user_ids_json=text), "invalid_recipients") for text in wrong],
    )


@pytest.mark.req("S1-43", "S1-61")
async def test_every_field_every_type_requires(running: Galaxy) -> None:
    cases: list[Case] = []
    for name in TYPES:
        for field, value in payload_for(name).items():
            strange: tuple[Any, ...] = (
                ("", None, 7, ["x"], True) if isinstance(value, str) else (-1, 1.5, "7", True, None)
            )
            for put in strange:
                payload = payload_for(name) | {field: put}
                cases.append((intent(name, payload_json=json.dumps(payload)), "invalid_payload"))
            without = {key: held for key, held in payload_for(name).items() if key != field}
            cases.append((intent(name, payload_json=json.dumps(without)), "invalid_payload"))
    cases += [(intent(payload_json=text), "invalid_payload") for text in ("[]", '"x"', "7", "null", "{", "not json")]
    await judged(running, cases)


@pytest.mark.req("S1-43")
async def test_a_number_may_be_nothing(running: Galaxy) -> None:
    payload = payload_for("game.turn.ready") | {"turn_number": 0}
    await running.routes(await running.publish(intent(payload_json=json.dumps(payload))), status="published")


@pytest.mark.req("S1-48")
async def test_json_that_means_two_things_or_none(running: Galaxy) -> None:
    whole = '"game_id":"g","game_name":"n","turn_number":1'
    wrong = (
        f'{{{whole},"game_id":"h"}}',
        f'{{{whole},"x":NaN}}',
        f'{{{whole},"x":Infinity}}',
        f'{{{whole},"x":"\\ud800"}}',
        f'{{{whole},"x":{{"a":1,"a":2}}}}',
        f"{{{whole},}}",
        f"{{{whole}}} more",
    )
    await judged(running, [(intent(payload_json=text), "invalid_payload") for text in wrong])


@pytest.mark.req("S1-38", "S1-130")
async def test_the_optional_may_be_left_out(running: Galaxy) -> None:
    fields = fields_for("game.generation_failed", idempotency_key="bare")
    assert set(fields) == set(REQUIRED)
    entry_id = await running.publish(fields)
    await running.routes(entry_id, status="published")
    (row,) = await running.rows("SELECT * FROM records WHERE notification_id = $1", entry_id)
    assert (row["request_id"], row["trace_id"], row["recipient_user_ids"]) == (None, None, None)


@pytest.mark.req("S1-44")
async def test_more_than_is_required_reaches_the_templates(running: Galaxy) -> None:
    payload = payload_for("game.turn.ready") | {"extra": {"deep": ["é", 1.0]}, "note": "new"}
    entry_id = await running.publish(intent(payload_json=json.dumps(payload), recipient_user_ids_json='["u"]'))
    await running.routes(entry_id, status="published")
    mailed = [fields for _, fields in await running.published(MAIL, 1) if fields["delivery_id"].startswith(entry_id)]
    assert json.loads(mailed[0]["payload_json"])["variables"] == payload


@pytest.mark.req("S1-44", "S1-45")
async def test_extra_payload_counts_and_extra_envelope_does_not(running: Galaxy) -> None:
    fields = intent(idempotency_key="extras")
    first = await running.publish({**fields, "x": "y", "occurred_at": "noise"})
    await running.routes(first, status="published")
    program = running.programs[0]
    await running.publish({**fields, "x": "z"})
    repeated = await program.until("intent_repeated", lambda line: line["idempotency_key"] == "extras")
    assert (repeated["outcome"], repeated["notification_id"]) == ("duplicate", first)
    more = json.dumps(payload_for("game.turn.ready") | {"extra": 1})
    row = await running.malformed(await running.publish({**fields, "payload_json": more}))
    assert row["failure_code"] == "idempotency_conflict"


@pytest.mark.req("S1-47")
async def test_the_entry_is_the_notification(running: Galaxy) -> None:
    entry_id = (await running.redis.xadd("notification:intents", intent(), id=f"{2 * OCCURRED}-7")).decode()
    await running.routes(entry_id, status="published")
    (row,) = await running.rows("SELECT notification_id FROM records WHERE notification_id = $1", entry_id)
    assert row["notification_id"] == f"{2 * OCCURRED}-7"
