"""The listo blueprint's sealed recipients: a dump of the database names nobody, and everything still works."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.listo_callbacks import event
from tests.support.listo_stand import SECRET, Listo, stand_fixture, token
from tests.support.vendor import Reply

listo = stand_fixture(start=False, JWT_SECRET_KEY=SECRET)

ADMIN = token("root", role="admin")
OWNER = token("owner")
OVERRIDE = {"X-Admin-Override": "true"}
MAIL, NUMBER, TOKEN = "planted.person@whereabouts.example", "+4915155512121", "planted-device-token-77"
STORED = "planted.stored@whereabouts.example"
CONTENT = "planted-content"
PLANTED = ("planted.person", "planted.stored", "15155512121", "planted-device-token", CONTENT)
NAMES = "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = current_schema()"
SUPPRESSIONS = "/api/v1/suppressions"


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def dump(listo: Listo) -> str:
    """Everything that lies in the database: SQLite's files as they are, PostgreSQL's rows as text."""
    if listo.url.startswith("sqlite"):
        path = Path(listo.url.removeprefix("sqlite:///"))
        return "".join(part.read_bytes().decode("latin-1") for part in sorted(path.parent.glob(f"{path.name}*")))
    names = [row["name"] for row in listo.rows(NAMES)]
    assert {"routes", "records", "receipts", "suppressions", "preferences", "NotificationQueue"} <= set(names)
    rows = [listo.rows(f'SELECT CAST(t AS text) AS line FROM "{name}" t') for name in names]  # noqa: S608 - its own names
    return "\n".join(row["line"] for found in rows for row in found)


def start(listo: Listo, *keys: str) -> None:
    listo.add_template("planted", "sms", "For you: {{text}}")
    while listo.programs:
        listo.programs.pop().close()
    listo.start(CARILLON_LEDGER__SEAL_KEYS=",".join(keys))


def sent(listo: Listo, channel: str, recipient: str | None, **fields: Any) -> str:
    key = "planted" if channel == "sms" else "order_confirmed"
    data = {"orderNumber": recipient or "7", "text": CONTENT}
    return listo.sent(key, channel, recipient=recipient, data=data, **{"headers": ADMIN, **fields})


def story(listo: Listo, known: str) -> Any:
    return listo.story(known, ADMIN)


def delivered(listo: Listo, channel: str, recipient: str | None, **fields: Any) -> Any:
    return listo.until(sent(listo, channel, recipient, **fields), "delivered", headers=ADMIN)


def found(listo: Listo, path: str) -> list[Any]:
    reply = listo.client.get(path, ADMIN)
    assert reply.status == 200, reply
    return list(reply.body["items"])


def plant(listo: Listo) -> str:
    """Leave an address in every place where one can be; gives the notification that was mailed."""
    contacts = {"email": STORED, "phone": NUMBER, "pushToken": TOKEN}
    said = listo.client.call("PATCH", "/api/v1/preferences", {"contacts": contacts}, OWNER)
    assert (said.status, said.body["contacts"]) == (200, contacts)
    assert delivered(listo, "email", None, headers=OWNER)["recipient"] == STORED
    for channel, recipient, provider in (("sms", NUMBER, "Twilio"), ("push", TOKEN, "FCM")):
        assert delivered(listo, channel, recipient)["recipient"] == recipient
        assert listo.calls(provider, recipient.strip("+"))
    mailed = delivered(listo, "email", MAIL)
    assert mailed["recipient"] == MAIL
    assert listo.calls("SendGrid", MAIL)
    assert listo.calls("Twilio", CONTENT)
    return str(mailed["id"])


def refuse(listo: Listo) -> str:
    """A vendor that refuses, and repeats the number while it does so."""
    listo.twilio.answer(Reply(400, body={"code": 21610, "message": f"{NUMBER[1:]} has opted out", "status": 400}))
    known = sent(listo, "sms", NUMBER)
    listo.until(known, "failed", headers=ADMIN)
    return known


@pytest.mark.req("S2-34")
def test_a_dump_names_nobody_and_everything_works(listo: Listo) -> None:
    start(listo, key())
    mailed = plant(listo)
    assert [item["id"] for item in found(listo, f"/api/v1/notifications?recipient={MAIL}")] == [mailed]
    message = story(listo, mailed)["providerMessageIds"][-1]
    bounce = event("bounce", message, email=MAIL, type="bounce", reason=f"550 5.1.1 <{MAIL.upper()}> is unknown")
    assert vendors.sendgrid(listo, bounce).status == 200
    vendors.until_route(listo, mailed, provider="AZURE_ACS", status="published")
    again = delivered(listo, "email", MAIL)
    complaint = event("spamreport", again["providerMessageIds"][-1], email=MAIL)
    assert vendors.sendgrid(listo, complaint).status == 200
    assert story(listo, sent(listo, "email", MAIL))["status"] == "skipped"
    assert [item["address"] for item in found(listo, f"{SUPPRESSIONS}?address={MAIL}")] == [MAIL]
    known = refuse(listo)
    assert story(listo, sent(listo, "sms", NUMBER))["status"] == "skipped"
    where = f"{SUPPRESSIONS}?channel=sms&address=%2B{NUMBER[1:]}"
    assert listo.client.call("DELETE", where, None, ADMIN).body == {"removed": 1}
    retry = f"/api/v1/admin/notifications/{known}/retry"
    assert listo.client.call("POST", retry, {"reason": "asked again"}, ADMIN | OVERRIDE).status == 200
    assert listo.until(known, "delivered", headers=ADMIN)["recipient"] == NUMBER
    silence = {"channel": "push", "address": TOKEN, "reason": "lost"}
    assert listo.client.call("POST", SUPPRESSIONS, silence, ADMIN).body["address"] == TOKEN
    seen = dump(listo).lower()
    assert [planted for planted in PLANTED if planted in seen] == []
    assert "order_confirmed" in seen


@pytest.mark.req("S2-34")
def test_without_keys_a_dump_names_everybody(listo: Listo) -> None:
    """The control: what is planted can be found."""
    start(listo)
    plant(listo)
    refuse(listo)
    seen = dump(listo)
    assert [planted for planted in PLANTED if planted not in seen] == []


@pytest.mark.req("S2-34")
def test_keys_change_while_everything_stays_readable(listo: Listo) -> None:
    old, new = key(), key()
    start(listo)
    before = delivered(listo, "email", MAIL)["id"]
    silence = {"channel": "push", "address": TOKEN, "reason": "lost"}
    assert listo.client.call("POST", SUPPRESSIONS, silence, ADMIN).status == 200
    for keys in ([old], [new, old], [new, old], [new]):
        start(listo, *keys)
        assert story(listo, before)["recipient"] == MAIL
        assert story(listo, sent(listo, "push", TOKEN))["status"] == "skipped"
        assert before in [item["id"] for item in found(listo, f"/api/v1/notifications?recipient={MAIL}")]
        delivered(listo, "email", MAIL)
    (row,) = listo.rows("SELECT key_id FROM seal_keys")
    sealed = [row["address"] for row in listo.rows("SELECT address FROM routes UNION SELECT address FROM suppressions")]
    assert {text.partition(":")[2].partition(":")[0] for text in sealed} == {row["key_id"]}


@pytest.mark.req("S2-34")
def test_a_start_without_the_right_key_is_refused(listo: Listo) -> None:
    start(listo, key())
    delivered(listo, "sms", NUMBER)
    listo.programs.pop().close()
    (row,) = listo.rows("SELECT key_id FROM seal_keys")
    for keys in (key(), ""):
        refused = listo.launch(CARILLON_LEDGER__SEAL_KEYS=keys)
        assert refused.wait() == 2
        assert f"sealed with the key {row['key_id']}" in refused.tail()
    for keys, said in (
        ("c2hvcnQ=", "is not 32 bytes in base64"),
        ("!", "is not 32 bytes"),
        (f"{(k := key())},{k}", "twice"),
    ):
        refused = listo.launch(CARILLON_LEDGER__SEAL_KEYS=keys)
        assert refused.wait() == 2
        assert said in refused.tail()


def test_keys_may_lie_in_a_file(listo: Listo) -> None:
    file = listo.folder / "keys"
    file.write_text(f"{key()}\n{key()}\n")
    listo.add_template("planted", "sms", "For you: {{text}}")
    listo.start(CARILLON_LEDGER__SEAL_KEYS_FILE=str(file))
    assert delivered(listo, "sms", NUMBER)["recipient"] == NUMBER
    assert NUMBER not in dump(listo)
    listo.programs.pop().close()
    refused = listo.launch(CARILLON_LEDGER__SEAL_KEYS_FILE=str(listo.folder / "nowhere"))
    assert refused.wait() == 2
    assert "seal_keys_file" in refused.tail()
