"""Every way in which an entry of the intent stream can be wrong, and the code it is filed under."""

import json
from typing import Any

import pytest

from carillon.blueprints.galaxy import envelope
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.intents import Intent, Malformed, canonical
from tests.support.galaxy import CATALOGUE, ENTRY_ID, TYPES, fields_for, payload_for

WIRE = GalaxyWire.open(CATALOGUE, {})
TURN = "game.turn.ready"
ADMIN = "geo.review_recommended"


def refused(fields: dict[str, str]) -> Malformed:
    read = WIRE.decode(ENTRY_ID, fields)
    assert isinstance(read, Malformed), read
    return read


def payload(text: str) -> str:
    """The payload of game.turn.ready with one more member, given as JSON text."""
    return canonical(payload_for(TURN))[:-1] + f",{text}}}"


@pytest.mark.req("S1-37", "S1-61")
@pytest.mark.parametrize("name", envelope.REQUIRED)
@pytest.mark.parametrize("value", [None, ""])
def test_required_fields(name: str, value: str | None) -> None:
    found = refused(fields_for(TURN, **{name: value}))
    assert found.failure_code == "invalid_envelope"
    assert name in found.failure_message


@pytest.mark.req("S1-39")
@pytest.mark.parametrize(
    "value", ["abc", "-1", "0", "1.5", "1e3", "+5", " 5", "5 ", "\u0665", "²", "0x10", "1_000", "9" * 15, "9" * 5000]
)
def test_times(value: str) -> None:
    found = refused(fields_for(TURN, occurred_at_ms=value))
    assert found.failure_code == "invalid_envelope"
    assert "occurred_at_ms" in found.failure_message


@pytest.mark.req("S1-40", "S1-46")
@pytest.mark.parametrize(
    ("name", "kind"),
    [(TURN, "everybody"), (TURN, "User"), (TURN, "admin_email"), (ADMIN, "user"), ("lobby.invite.created", "email")],
)
def test_audiences(name: str, kind: str) -> None:
    found = refused(fields_for(name, audience_kind=kind))
    assert found.failure_code == "invalid_audience"
    assert "must be" in found.failure_message


@pytest.mark.req("S1-46")
@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_one_producer(name: str) -> None:
    found = refused(fields_for(name, producer="somebody_else"))
    assert found.failure_code == "invalid_envelope"
    assert f"published by {CATALOGUE.types[name].producer} only" in found.failure_message


@pytest.mark.req("S1-04", "S1-86", "S1-61")
@pytest.mark.parametrize(
    "name", ["lobby.invite.revoked", "auth.login_code", "game.turn", "GAME.TURN.READY", "x" * 9000]
)
def test_types_outside_the_catalogue(name: str) -> None:
    found = refused(fields_for(TURN, notification_type=name))
    assert found.failure_code == "unsupported_notification_type"
    assert len(found.failure_message) < 1000


@pytest.mark.req("S1-41")
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "[]",
        '["u","u"]',
        '"u"',
        "[1]",
        "[null]",
        '[""]',
        '["u",["v"]]',
        '{"u":1}',
        "null",
        "[",
        "u",
        "[NaN]",
        '["\\ud800"]',
        '["\\u0000"]',
        '["a\x00"]',
        '["\ud800"]',
        json.dumps(["x" * 257]),
    ],
)
def test_recipients_of_users(value: str | None) -> None:
    found = refused(fields_for(TURN, recipient_user_ids_json=value))
    assert found.failure_code == "invalid_recipients"
    assert found.failure_message


@pytest.mark.req("S1-42")
@pytest.mark.parametrize("value", ['["u"]', "[]", "null", ""])
def test_recipients_of_administrators_are_nobodys_to_choose(value: str) -> None:
    found = refused(fields_for(ADMIN, recipient_user_ids_json=value))
    assert found.failure_code == "invalid_recipients"


WRONG_VALUES: dict[str, list[Any]] = {
    "string": [None, "", 7, True, ["x"], {"x": 1}],
    "integer": [None, -1, 54.0, "54", True, [54]],
}


@pytest.mark.req("S1-43")
@pytest.mark.parametrize("name", TYPES)
def test_each_required_payload_field(name: str) -> None:
    for field, kind in CATALOGUE.types[name].required.items():
        without = {key: value for key, value in payload_for(name).items() if key != field}
        for wrong in [without, *(without | {field: value} for value in WRONG_VALUES[kind])]:
            found = refused(fields_for(name, payload_json=json.dumps(wrong)))
            assert found.failure_code == "invalid_payload"
            assert field in found.failure_message


@pytest.mark.req("S1-43", "S1-48")
@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        '"x"',
        "7",
        "{",
        "not json",
        "{}",
        '{"game_id":}',
        payload('"game_id":"twice"'),
        payload('"a":{"b":1,"b":1}'),
        payload('"a":NaN'),
        payload('"a":Infinity'),
        payload('"a":1e999'),
        payload('"a":"\\ud800"'),
        payload('"\\udfff":1'),
        payload('"a":"\\u0000"'),
        payload('"a":"\x00"'),
        payload('"a":"\ud800"'),
        payload('"a":9223372036854775808'),
        payload('"a":' + "[" * 40 + "]" * 40),
        payload('"a":1') + "x",
        payload('"a":"' + "x" * envelope.LARGEST_PAYLOAD + '"'),
        "[" * 60_000,
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_payloads(text: str) -> None:
    found = refused(fields_for(TURN, payload_json=text))
    assert found.failure_code == "invalid_payload"
    assert found.failure_message.startswith("payload_json")


@pytest.mark.parametrize("name", ["idempotency_key", "request_id", "trace_id"])
@pytest.mark.parametrize("value", ["a\x00b", "a\udcffb", "k" * (envelope.LONGEST_WORD + 1)])
def test_words_a_store_cannot_hold(name: str, value: str) -> None:
    found = refused(fields_for(TURN, **{name: value}))
    assert found.failure_code == "invalid_envelope"
    assert name in found.failure_message


def test_limits_are_limits_and_not_less() -> None:
    users = [f"{number:0{envelope.LONGEST_USER_ID}}" for number in range(envelope.MOST_RECIPIENTS)]
    fits = fields_for(TURN, recipient_user_ids_json=json.dumps(users), idempotency_key="k" * envelope.LONGEST_WORD)
    read = WIRE.decode(ENTRY_ID, fits)
    assert isinstance(read, Intent)
    assert len(read.recipients) == envelope.MOST_RECIPIENTS
    crowd = refused(fits | {"recipient_user_ids_json": json.dumps([*users, "one more"])})
    assert (crowd.failure_code, str(envelope.MOST_RECIPIENTS) in crowd.failure_message) == ("invalid_recipients", True)
    huge = refused(fits | {"recipient_user_ids_json": " " * (envelope.LARGEST_RECIPIENTS + 1)})
    assert huge.failure_code == "invalid_recipients"
    longest = payload('"a":"' + "x" * (envelope.LARGEST_PAYLOAD - len(payload('"a":""'))) + '"')
    assert len(longest) == envelope.LARGEST_PAYLOAD
    assert isinstance(WIRE.decode(ENTRY_ID, fields_for(TURN, payload_json=longest)), Intent)


def test_a_malformed_entry_keeps_what_it_carried() -> None:
    fields = fields_for(TURN, audience_kind="nobody", request_id="r", x="y")
    found = refused(fields)
    assert found.raw_fields == fields
    assert (found.stream_entry_id, found.notification_type) == (ENTRY_ID, TURN)
    assert (found.producer, found.idempotency_key) == ("game_master", fields["idempotency_key"])
    bare = refused({})
    assert (bare.notification_type, bare.producer, bare.idempotency_key, bare.raw_fields) == (None, None, None, {})


def test_a_novel_is_kept_in_part() -> None:
    found = refused({"payload_json": "x" * 10_000_000} | {f"x{number}": "y" for number in range(100_000)})
    assert len(canonical(found.raw_fields)) < 300_000
