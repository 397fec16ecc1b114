"""Credentials that a vendor repeats are masked in every spelling."""

import base64
import html
import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.providers.echoes import credentials, without, without_in

TOKEN = "4f/9+aZ?k=~tok3n"
SECRETS = st.text(string.ascii_letters + string.digits, min_size=9, max_size=40)
SURROUNDINGS = st.text(".:!{}'é€ ", max_size=9)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS = {
    "plain": TOKEN,
    "URL": quote(TOKEN, safe=""),
    "base64": b64(TOKEN),
    "of a user": b64(f"AC123:{TOKEN}"),
    "URL of base64": quote(b64(f"AC123:{TOKEN}"), safe=""),
    "in the middle": b64(f'{{"a":"{TOKEN}","b":1}}'),
    "base64 for URLs": base64.urlsafe_b64encode(f"user:{TOKEN}!".encode()).decode(),
    "slashes of JSON": b64(f"AC123:{TOKEN}").replace("/", "\\/"),
    "escapes of JSON": TOKEN.replace("+", "\\u002b").replace("=", "\\u003d"),
    "HTML": html.escape(TOKEN),
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize(
    "header",
    [f"Authorization: Basic {b64(f'AC123:{TOKEN}')}", f"authorization: Bearer {TOKEN}", f"X-Api-Key: {TOKEN}"],
)
def test_every_spelling_is_masked(name: str, header: str) -> None:
    said = without(f"you sent {SPELLINGS[name]}, which is wrong".encode(), credentials([header])).decode()
    assert "***" in said
    assert TOKEN[:6] not in said
    assert b64(TOKEN)[:8] not in said
    assert b64(f"AC123:{TOKEN}")[9:17] not in said
    assert said.startswith("you sent ")
    assert said.endswith(", which is wrong")


@given(SECRETS, SURROUNDINGS, SURROUNDINGS)
def test_base64_of_any_text_around_it_is_masked(secret: str, before: str, behind: str) -> None:
    encoded = b64(before + secret + behind)
    said = without_in(encoded, (secret,))
    assert "***" in said
    for end in ("", "=", "=="):
        try:
            left = base64.b64decode(said.replace("***", "") + end)
        except ValueError:
            continue
        assert secret.encode() not in left


def test_other_text_stays() -> None:
    head = [
        "Content-Type: application/json",
        "Authorization: AWS4-HMAC Credential=AKIA12345678/sns, SignedHeaders=content-type;host, Signature=abcdef0123",
        "webhook-signature: v1,c2lnbmF0dXJl",
    ]
    found = credentials(head)
    assert len(found) == 1
    body = b'content-type: x, AWS4-HMAC "SignedHeaders" c2lnbmF0dXJl'
    assert without(body, found) == body
    assert without(b"got AKIA12345678/sns and abcdef0123", found) == b"got *** and ***"
    assert without(b"any", ()) == b"any"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_pass(body: bytes) -> None:
    assert without(body, ("not-in-there-at-all",)) == body


def test_json_stays_json() -> None:
    body = json.dumps({"echo": {"Authorization": f"Basic {b64(f'u:{TOKEN}')}"}, "code": 20003}).encode()
    assert json.loads(without(body, credentials([f"Authorization: Basic {b64(f'u:{TOKEN}')}"])))["code"] == 20003
