"""Messages of list queues: what their bytes mean, and how they change."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.jobs import (
    BadMessage,
    Envelope,
    age_seconds,
    encode_message,
    message_id,
    moment,
    read_message,
    with_attempts,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def text(found: object) -> bytes:
    return json.dumps(found).encode()


@pytest.mark.req("S3-08", "S3-09")
def test_an_envelope_has_exactly_the_documents_fields() -> None:
    raw = encode_message(Envelope(id="i", action="renewal", created_at=moment(1735689600.0), payload={"a": 1}), 1000)
    assert raw == (
        b'{"id":"i","action":"renewal","correlation_id":null,"idempotency_key":null,'
        b'"created_at":"2025-01-01T00:00:00+00:00","attempts":0,"max_attempts":null,"payload":{"a":1}}'
    )


@pytest.mark.req("S3-13")
@pytest.mark.parametrize(
    ("found", "enveloped"),
    [
        ({"payload": {}, "action": "trial"}, True),
        ({"payload": {}, "action": "anything at all"}, True),
        ({"payload": {"x": 1}}, False),
        ({"action": "trial"}, False),
        ({"payload": [1], "action": "trial"}, False),
        ({}, False),
    ],
)
def test_an_envelope_is_an_object_with_payload_and_action(found: dict[str, object], *, enveloped: bool) -> None:
    message = read_message(text(found), "i", "webhook")
    assert message is not None
    assert message.enveloped is enveloped
    assert message.payload == (found["payload"] if enveloped else found)
    assert message.action == found.get("action", "webhook")


@pytest.mark.req("S3-14")
@pytest.mark.parametrize(
    "raw", [b"", b"garbage", b"[1]", b'"text"', b"12", b"null", b"{", b'{"a":NaN}', b"\xff\xfe", b"[" * 9999]
)
def test_what_is_no_object_is_no_message(raw: bytes) -> None:
    assert read_message(raw, "i", "a") is None
    assert message_id(raw) == hashlib.sha256(raw).hexdigest()


@pytest.mark.req("S3-11")
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"id": "abc"}, "abc"),
        ({"id": 42}, "42"),
        ({"id": 42.0}, "42"),
        ({"id": -7}, "-7"),
        ({"id": ""}, None),
        ({"id": None}, None),
        ({"id": True}, None),
        ({"id": 1.5}, None),
        ({"id": 2**60}, None),
        ({"id": ["x"]}, None),
        ({"id": "x" * 513}, None),
        ({"transaction_id": "t"}, None),
    ],
)
def test_the_id_is_the_messages_own_or_the_hash_of_its_text(found: dict[str, object], expected: str | None) -> None:
    raw = text(found)
    assert message_id(raw) == (expected or hashlib.sha256(raw).hexdigest())


@pytest.mark.req("S3-11")
@pytest.mark.parametrize(
    ("said", "attempts"), [(3, 3), (2.0, 2), (None, 0), ("2", 0), (-1, 0), (True, 0), ([], 0), (1e300, 2**53)]
)
def test_attempts_are_what_the_message_says_or_none(said: object, attempts: int) -> None:
    message = read_message(text({"attempts": said}), "i", "a")
    assert message is not None
    assert message.attempts == attempts


@pytest.mark.req("S3-12", "S3-15")
@given(OBJECTS, st.integers(0, 99), st.integers(0, 99))
def test_only_the_attempts_change_however_often(found: dict[str, object], first: int, second: int) -> None:
    once = with_attempts(text(found), first)
    assert json.loads(once) == {**found, "attempts": first}
    twice = with_attempts(once, second)
    assert json.loads(twice) == {**found, "attempts": second}
    assert list(json.loads(twice)) == list({**found, "attempts": 0})


@pytest.mark.req("S3-12", "S3-15")
def test_numbers_and_spacing_survive_to_the_byte() -> None:
    raw = b'{ "big": 123456789012345678901234567890, "price": 1.10, "attempts" : 0, "nested": {"a" :  1.0} }'
    changed = with_attempts(raw, 1)
    assert b"123456789012345678901234567890" in changed
    assert b"1.10" in changed
    assert b'{"a" :  1.0}' in changed
    assert with_attempts(b'{"a": 1}', 1) == b'{"a": 1,"attempts":1}'


@pytest.mark.req("S3-11", "S3-12", "S3-46")
@given(OBJECTS.filter(lambda found: found and "attempts" not in found and "id" not in found), st.integers(0, 20))
def test_a_message_without_an_id_keeps_the_id_of_its_text(found: dict[str, object], attempts: int) -> None:
    raw = text(found)
    changed = with_attempts(raw, attempts)
    assert message_id(changed) == message_id(changed + b" \t\r\n") == message_id(raw) == hashlib.sha256(raw).hexdigest()


@pytest.mark.req("S3-21")
@pytest.mark.parametrize(("said", "most"), [(1, 1), (0, 0), (None, None), ("many", None), (-3, None)])
def test_a_message_may_bring_its_own_budget(said: object, most: int | None) -> None:
    message = read_message(text({"payload": {}, "action": "a", "max_attempts": said}), "i", "a")
    assert message is not None
    assert message.max_attempts == most


@pytest.mark.parametrize("payload", [{"x": object()}, {1: {2j: 1}}, {"x": "y" * 2000}])
def test_what_cannot_be_written_is_refused_by_name(payload: dict[str, object]) -> None:
    with pytest.raises(BadMessage, match=r"JSON|bytes"):
        encode_message({"payload": payload}, 1000)


@pytest.mark.parametrize(
    ("created_at", "age"),
    [
        ("1970-01-01T00:00:10+00:00", 90.0),
        ("1970-01-01T00:00:10Z", 90.0),
        ("1970-01-01T00:00:10", 90.0),
        ("1970-01-01T01:00:10+01:00", 90.0),
        ("2100-01-01T00:00:00+00:00", 0.0),
        ("yesterday", None),
        (None, None),
    ],
)
def test_the_age_of_a_message(created_at: str | None, age: float | None) -> None:
    assert age_seconds(created_at, 100.0) == age
