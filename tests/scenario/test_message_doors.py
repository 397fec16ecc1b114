"""What an email carries arrives through the Python client and an embedded engine too, and a sealed ledger seals it."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.client import Client, InAppAction, InAppParts, PushParts, Rejected, attachment
from tests.support.blueprint_stand import database
from tests.support.mail_parts import BCC, CC, PDF
from tests.support.mail_stand import ADA, MailStand
from tests.support.vendor import Reply

KEY = base64.b64encode(secrets.token_bytes(32)).decode()
PLAIN = base64.b64encode(PDF).decode()[:400]


@pytest.fixture(params=["sqlite", "postgres"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MailStand]:
    for url in database(request, tmp_path):
        with MailStand(tmp_path, url) as stand:
            stand.start(CARILLON_LEDGER__SEAL_KEYS=KEY)
            stand.template("order")
            yield stand


@pytest.mark.req("P-111", "P-113")
def test_files_and_copies_are_sealed_where_the_ledger_is(sealed: MailStand, tmp_path: Path) -> None:
    path = tmp_path / "bill.pdf"
    path.write_bytes(PDF)
    good = Reply(headers={"Content-Type": "application/pdf"}, body=PDF)
    sealed.files.answer(good, path="/terms.pdf")
    sealed.smtp.answer_recipient(ADA, "451 4.3.0 later")
    with Client(sealed.programs[-1].wait_ready()["addresses"][0]) as client:
        accepted = client.send(
            "order",
            channel="email",
            recipient=ADA,
            data={"number": "7"},
            attachments=[attachment(path), attachment(f"{sealed.files.url}/terms.pdf")],
            cc=[CC],
            bcc=[BCC],
            reply_to="help@example.org",
            headers={"X-Order": "7"},
        )
        client.wait(accepted.notification_id)
    (mail,) = sealed.smtp.mails
    files = {part.get_filename(): part.get_content() for part in mail.parsed().iter_attachments()}
    assert files == {"bill.pdf": PDF, "terms.pdf": PDF}
    (row,) = sealed.rows("SELECT message_json FROM routes")
    for told in (PLAIN, CC, BCC, "bill.pdf", "terms.pdf"):
        assert told not in row["message_json"]
    message: Any = sealed.story(accepted.notification_id)["routes"][0]["message"]
    assert [one["bytes"] for one in message["mail"]["attachments"]] == [len(PDF), len(PDF)]


@pytest.mark.req("P-111", "P-121", "P-122")
async def test_an_embedded_engine_takes_the_same_and_refuses_the_same(tmp_path: Path) -> None:
    path = tmp_path / "bill.pdf"
    path.write_bytes(PDF)
    given: dict[str, Any] = {"data": {"name": "Ada", "link": "https://example.org/"}}
    async with carillon.open(str(tmp_path / "app.db"), environ={"CARILLON_DRILL__TIME_SCALE": "0.001"}) as c:
        mail = await c.send("welcome", channel="email", recipient=ADA, attachments=[attachment(path)], cc=[CC], **given)
        push = await c.send("welcome", channel="push", recipient="device", push=PushParts(badge=3), **given)
        actions = (InAppAction("Go", "/start"),)
        inbox = InAppParts(url="/start", actions=actions)
        told = await c.send("welcome", channel="inApp", user_id="ada", in_app=inbox, **given)
        for one in (mail, push, told):
            assert (await c.wait(one.notification_id)).status == "delivered"
        with pytest.raises(Rejected, match="cc"):
            await c.send("welcome", channel="email", recipient=ADA, cc=["nobody"], **given)
        with pytest.raises(Rejected, match=r"inApp\.url"):
            await c.send(
                "welcome", channel="inApp", user_id="ada", in_app=InAppParts(url="javascript:alert(1)"), **given
            )
