"""One mailbox, many spellings, from outside: suppressions, one click, erasure, explain and search."""

import itertools
import json
from urllib.parse import quote

import pytest

from tests.support.listo_stand import SECRET, Listo, shared_fixture, token

KEY = "k" * 40
SETTINGS = f"""
[consent]
keys = ["{KEY}"]
url = "https://bells.example.org"
[categories.news]
"""
listo = shared_fixture(SETTINGS, JWT_SECRET_KEY=SECRET)
ADMIN = token("root", role="admin")
SERVICE = token("shop", role="service")
"""It is no person: what it sends to an address belongs to nobody but the owner of the address."""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_numbers = itertools.count()


@pytest.fixture
def given() -> str:
    return f"Reader.{next(_numbers)}@Example.ORG"


def suppress(listo: Listo, address: str, channel: str = "email") -> int:
    body = {"channel": channel, "address": address, "reason": "asked"}
    return listo.client.call("POST", "/api/v1/suppressions", body, ADMIN).status


def status(listo: Listo, address: str, **fields: object) -> str:
    return str(listo.send("order_confirmed", "email", headers=SERVICE, recipient=address, **fields).body["status"])


@pytest.mark.req("P-671")
def test_a_suppressed_mailbox_gets_nothing_however_it_is_spelled(listo: Listo, given: str) -> None:
    assert status(listo, given.lower()) == "queued"
    assert suppress(listo, given) == 200
    for spelled in (given, given.lower(), given.upper()):
        assert status(listo, spelled) == "skipped"
        body = {"templateKey": "order_confirmed", "channel": "email", "recipient": spelled}
        said = listo.client.call("POST", "/api/v1/notifications/explain", body, ADMIN).body
        assert (said["outcome"], said["routes"][0]["gate"]) == ("skipped", "suppressed")
        listed = listo.client.get(f"/api/v1/suppressions?address={quote(spelled)}", ADMIN).body["items"]
        assert [one["address"] for one in listed] == [given.lower()]
    lifted = f"/api/v1/suppressions?channel=email&address={quote(given.upper())}"
    assert listo.client.call("DELETE", lifted, None, ADMIN).body == {"removed": 1}
    assert status(listo, given) == "queued"


@pytest.mark.req("P-671")
def test_a_suppression_of_old_still_holds_for_its_spelling(listo: Listo, given: str) -> None:
    assert suppress(listo, given) == 200
    listo.rows(f"UPDATE suppressions SET address = '{given}' WHERE address = '{given.lower()}' RETURNING address")  # noqa: S608 - ours
    assert status(listo, given) == "skipped"
    assert listo.client.get(f"/api/v1/suppressions?address={quote(given)}", ADMIN).body["totalCount"] == 1


@pytest.mark.req("P-671")
def test_one_click_under_one_spelling_holds_for_the_others(listo: Listo, given: str) -> None:
    sent = listo.sent("order_confirmed", "email", headers=SERVICE, recipient=given, category="news")
    story = listo.until(sent, "delivered", headers=ADMIN)
    assert story["recipient"] == given.lower()
    for asked in (f"recipient={quote(given)}", f"q={quote(given)}", f"q={quote(given[:12].upper())}"):
        listed = listo.client.get(f"/api/v1/notifications?{asked}", ADMIN).body["items"]
        assert [one["id"] for one in listed] == [sent], asked
    (call,) = listo.calls("SendGrid", sent)
    path = json.loads(call["body"])["headers"]["List-Unsubscribe"].strip("<>").removeprefix("https://bells.example.org")
    assert listo.client.call("POST", path, b"List-Unsubscribe=One-Click", FORM).status == 200
    for spelled in (given, given.lower(), given.upper()):
        assert status(listo, spelled, category="news") == "skipped"
    found = listo.client.get(f"/api/v1/preferences/user/email:{quote(given)}", ADMIN).body
    assert found["categories"]["news"]["email"] is False


@pytest.mark.req("P-671")
def test_an_erasure_under_one_spelling_finds_the_others(listo: Listo, given: str) -> None:
    listo.until(listo.sent("order_confirmed", "email", headers=SERVICE, recipient=given), "delivered", headers=ADMIN)
    assert suppress(listo, given) == 200
    erased = listo.client.call("DELETE", f"/api/v1/people/email:{quote(given)}", None, ADMIN).body
    assert (erased["finished"], erased["removed"]["records"], erased["suppressionsKept"]) == (True, 1, 1)
    listo.start()
    for spelled in (given, given.lower()):
        assert status(listo, spelled) == "skipped"


@pytest.mark.parametrize(
    ("channel", "address", "said"),
    [
        ("email", "not a mailbox", "address must be an e-mail address"),
        ("sms", "+49 151 1234567", "address must be an E.164 number such as +4915112345678"),
        ("fax", "1", "there is no channel fax; known are email, inApp, push, sms, webhook"),
    ],
)
@pytest.mark.req("P-671")
def test_a_suppression_that_could_hold_nobody_back_is_refused(
    listo: Listo, channel: str, address: str, said: str
) -> None:
    body = {"channel": channel, "address": address, "reason": "asked"}
    refused = listo.client.call("POST", "/api/v1/suppressions", body, ADMIN)
    assert (refused.status, refused.body["detail"]) == (400, said)
