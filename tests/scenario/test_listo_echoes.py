"""Vendors that repeat the headers of a request they refuse: our credentials reach no table, no answer and no log."""

import base64
import json
from urllib.parse import quote

import pytest

from tests.support import sendgrid_stub, twilio_stub
from tests.support.listo_stand import Listo, shared_fixture
from tests.support.vendor import Entry, Reply

listo = shared_fixture()


def echo(entry: Entry) -> Reply:
    """A refusal that says everything, in several spellings."""
    shown = entry["headers"].get("authorization", "")
    word = shown.rpartition(" ")[2]
    said = f"{word} {base64.b64encode(shown.encode()).decode()} {quote(shown, safe='')} {shown} {word[::1]}"
    return Reply(400, body={"message": said, "errors": [{"message": said}], "code": 99999, "error": {"message": said}})


def spellings(secret: str) -> set[str]:
    forms = {secret, quote(secret, safe="")}
    for before in ("", "x", "xx"):
        forms.add(base64.b64encode((before + secret + "xxx").encode()).decode()[4:-8])
    return forms


@pytest.mark.parametrize("channel", ["sms", "email", "push"])
def test_no_credential_comes_back(listo: Listo, channel: str) -> None:
    for stub in (listo.twilio, listo.sns, listo.sendgrid, listo.acs):
        stub.answer(*[echo] * 40)
    listo.fcm.answer(*[echo] * 40, path="/v1/")
    one = listo.sent("order_confirmed", channel)
    story = listo.until(one, "failed")
    letters = listo.client.get("/api/v1/dead-letters")
    assert letters.status == 200
    statements = ("SELECT * FROM attempts_told", "SELECT * FROM dead_letters", "SELECT * FROM routes")
    tables = [dict(row) for statement in statements for row in listo.rows(statement)]
    logs = listo.programs[-1].lines + listo.programs[-1].noise
    seen = json.dumps([story, letters.body, tables, logs], default=str)
    assert "***" in json.dumps(story)
    tokens = [
        entry["headers"]["authorization"].rpartition(" ")[2] for entry in listo.fcm.entries if "/v1/" in entry["path"]
    ]
    signatures = [
        entry["headers"]["authorization"].rpartition("Signature=")[2]
        for stub in (listo.sns, listo.acs)
        for entry in stub.entries
        if "authorization" in entry["headers"]
    ]
    secrets = [
        twilio_stub.TOKEN,
        f"{twilio_stub.ACCOUNT}:{twilio_stub.TOKEN}",
        sendgrid_stub.API_KEY,
        *tokens,
        *signatures,
    ]
    for secret in secrets:
        for form in spellings(secret):
            assert form not in seen, channel
    listo.up()
