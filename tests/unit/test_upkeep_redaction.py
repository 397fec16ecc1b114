"""Nothing secret, nothing personal and no control character survives the sink."""

import json
import re
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.upkeep.logs.redaction import CONTENT, REDACTED, Redaction, Throttle, encode, escape_control

CANARY = "CANARY-7f3a9c"
NAMES = [
    *("authorization", "Proxy-Authorization", "COOKIE", "Set-Cookie", "X-Api-Key", "api_key", "apiKey", "token"),
    *("access_token", "refreshToken", "id_token", "jwt", "secret", "client_secret", "password", "passwd", "pwd"),
    *("private_key", "signing_key", "whsec", "webhook-signature", "svix-signature", "X-Twilio-Signature"),
    *("x-hub-signature-256", "dsn", "DATABASE_URL", "redis_url", "amqp_url", "auth_token", "smtp_password"),
    *("otp", "code", "pin", "FCM_SERVER_KEY", "device_token", "AWS_SECRET_ACCESS_KEY", "account_sid"),
]
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
TEXTS = {
    f"got {JWT} from it": JWT,
    "signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw here": "MfKQ9r8GKYqr",
    "came with ck_0aB1cD2e_q3YtZk0mVw2Rb9Lx5Nd8Hs1Gf4Jc6PqRsTuVwXyZ012 again": "q3YtZk0mVw",
    f"Authorization: Bearer {CANARY}": CANARY,
    f"sent Bearer {CANARY}": CANARY,
    f"headers {{'Authorization': 'Basic {CANARY}=='}}": CANARY,
    f"postgresql://app:{CANARY}@db.example/x?y=1": CANARY,
    f"redis://:{CANARY}@cache:6379/0": CANARY,
    f"smtp://u:p@{CANARY}@mail:25": CANARY,
    f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----": CANARY,
    f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}": CANARY,
    f"connect(password='{CANARY}', host='db')": CANARY,
    f'{{"client_secret": "{CANARY}"}}': CANARY,
    f'body {{\\"api_key\\": \\"{CANARY}\\"}}': CANARY,
    f'password="{CANARY} cut off': CANARY,
    f"GET /x?access_token={CANARY}&y=1": CANARY,
    "card 4111 1111 1111 1111 12/29": "1111 1111",
    "card-5555555555554444": "5555555555554444",
    "to alice.smith@example.org": "alice",
    "to +49 151 1234-5689 now": "1234",
    f"dZ8example:APA91b{CANARY}": CANARY,
}


def test_every_name_is_hidden_in_any_spelling_and_depth() -> None:
    for name in NAMES:
        for spelled in (name, name.upper(), name.replace("_", "-")):
            fields = {
                "a": [{"b": {spelled: CANARY}}],
                spelled: CANARY,
                "headers": [(spelled.encode(), CANARY.encode())],
            }
            assert CANARY not in encode(Redaction().fields(fields, debug=True)), spelled


@pytest.mark.parametrize(("text", "secret"), TEXTS.items())
def test_patterns_are_hidden_in_text_names_and_bytes(text: str, secret: str) -> None:
    fields = {"error": text, "nested": {"deep": [text, text.encode()], text: 1}}
    assert secret not in encode(Redaction().fields(fields))
    assert secret in text


def test_people_stay_recognisable_to_operators_only() -> None:
    clean = Redaction().fields({"to": "alice@example.org", "sms": "+4915112345689", "phone": "015112345689"})
    assert clean == {"to": "a***@example.org", "sms": "+4915*****89", "phone": "0151*****89"}
    assert Redaction().fields({"account_sid": "AC0123456789abcdef0123456789abcdef"})["account_sid"] == "AC***cdef"


def test_content_shows_only_when_debugging() -> None:
    fields = {"payload_json": '{"name":"Ada"}', "body": "Dear Ada"}
    assert Redaction().fields(fields) == dict.fromkeys(fields, CONTENT)
    assert Redaction().fields(fields, debug=True) == fields


def test_configured_values_are_hidden_wherever_they_turn_up() -> None:
    odd = 'it"s\\odd'
    redaction = Redaction([CANARY, odd, "", "abc"])
    assert redaction.fields({"error": f"refused {CANARY}!", "x": odd, "y": "abc"}) == {
        "error": f"refused {REDACTED}!",
        "x": REDACTED,
        "y": "abc",
    }


@given(st.uuids(), st.integers(0, 2**40), st.floats(allow_nan=False))
def test_ids_and_numbers_survive(one: uuid.UUID, number: int, value: float) -> None:
    fields = {
        "notification_id": str(one),
        "route_id": f"push:user:{one}",
        "n": number,
        "at_ms": 1763240000000,
        "f": value,
    }
    assert Redaction().fields(fields) == fields


@given(st.text(), st.text(min_size=1, max_size=20), st.text(), st.sampled_from(NAMES))
def test_what_stands_around_a_secret_does_not_save_it(before: str, name: str, after: str, secret: str) -> None:
    line = encode(
        Redaction().fields({name: {secret: f"{before}{CANARY}{after}"}, "t": f"{before} Bearer {CANARY} {after}"})
    )
    assert CANARY not in line


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.characters(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_any_value_becomes_one_line_of_json(value: Any) -> None:
    line = encode(Redaction().fields({"x": value, "y": object()}))
    assert set(json.loads(line)) == {"x", "y"}
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", line)


def test_depth_width_and_length_are_bounded() -> None:
    knot: list[Any] = []
    knot.append(knot)
    line = encode(Redaction().fields({"knot": knot, "wide": list(range(10_000)), "long": "x" * 10**6, "big": 10**5000}))
    assert len(line) < 20_000


@pytest.mark.parametrize(
    "hostile", ["a", "eyJ", "a@", "token=", "-----BEGIN ", "4 ", "eyJ-", "'", 'pin="', "://", "+1"]
)
def test_hostile_text_costs_little(hostile: str) -> None:
    text = (hostile * 12_000)[:12_000] + "@"
    began = time.thread_time()
    Redaction().text(text)
    # Quadratic patterns take tens of seconds here, linear ones milliseconds.
    assert time.thread_time() - began < 2.0


def test_direction_and_control_characters_are_spelled_out() -> None:
    assert escape_control("a\r\n\x1b[2J\u202eb") == "a\\u000d\\u000a\\u001b[2J\\u202eb"


def test_a_flood_is_thinned_and_counted() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    assert [throttle.admit("k") for _ in range(14)] == [0] * 10 + [None] * 4
    assert throttle.admit("other") == 0
    now[0] = 10.0
    assert throttle.admit("k") == 4
    assert throttle.admit("k") == 0


def test_a_flood_of_keys_stays_bounded() -> None:
    throttle = Throttle(lambda: 0.0)
    for number in range(10_000):
        throttle.admit(str(number))
    assert len(throttle._windows) == 256  # noqa: SLF001 - the bound is the promise
