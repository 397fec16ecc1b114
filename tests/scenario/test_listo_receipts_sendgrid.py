"""The listo blueprint's SendGrid events: each on its own, proven by a signature; a bounce fails over to ACS."""

import json
import time
from typing import Any

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.listo_callbacks import event
from tests.support.listo_stand import Listo, shared_fixture

listo = shared_fixture()


@pytest.mark.req("S2-87", "S2-88", "S2-94")
def test_delivered(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    reply = vendors.sendgrid(listo, event("processed", message), event("deferred", message))
    assert (reply.status, reply.body) == (200, b"")
    assert vendors.route_of(listo, one)["receipt"] is None
    assert vendors.sendgrid(listo, event("delivered", message)).status == 200
    story = listo.story(one)
    assert story["status"] == "delivered"
    assert story["deliveredAt"] >= story["sentAt"]
    assert vendors.route_of(listo, one)["receipt"] == "delivered"


@pytest.mark.req("S2-87", "S2-89", "S2-114")
@pytest.mark.parametrize(("opened", "clicked"), [("open", "click"), ("opened", "clicked")])
def test_opened_and_clicked(listo: Listo, opened: str, clicked: str) -> None:
    one, message = vendors.mailed(listo)
    assert listo.story(one)["openedAt"] is None
    vendors.sendgrid(listo, event(opened, message))
    story = listo.story(one)
    assert story["status"] == story["routes"][0]["status"] == "opened"
    assert story["openedAt"] is not None
    assert story["deliveredAt"] is not None
    vendors.sendgrid(listo, event(clicked, message))
    assert listo.story(one)["routes"][0]["clickedAt"] is not None
    found = listo.client.get(f"/api/v1/notifications?status=opened&recipient={story['recipient']}").body
    assert [item["id"] for item in found["items"]] == [one]
    assert (
        listo.client.get(f"/api/v1/notifications?status=delivered&recipient={story['recipient']}").body["items"] == []
    )


@pytest.mark.req("S2-90")
@pytest.mark.parametrize(
    "fields",
    [
        {"event": "bounce", "type": "bounce", "reason": "550 no such user"},
        {"event": "bounce", "type": "blocked", "reason": "421 try later"},
        {"event": "dropped", "reason": "Bounced Address"},
        {"event": "dropped", "reason": "Spam Content"},
    ],
)
def test_what_bounced_goes_through_azure(listo: Listo, fields: dict[str, str]) -> None:
    one, message = vendors.mailed(listo)
    mails = len(listo.acs.mails)
    assert vendors.sendgrid(listo, event("", message, **fields)).status == 200
    vendors.until_route(listo, one, provider="AZURE_ACS", status="published")
    assert len(listo.acs.mails) == mails + 1
    story = listo.story(one)
    assert story["status"] == "delivered"
    assert story["providerMessageIds"] == [message, list(listo.acs.mails)[-1]]


@pytest.mark.req("S2-91")
@pytest.mark.parametrize("word", ["spamreport", "spam_report"])
def test_a_complaint_ends_it(listo: Listo, word: str) -> None:
    one, message = vendors.mailed(listo)
    mails = len(listo.acs.mails)
    vendors.sendgrid(listo, event("delivered", message), event(word, message))
    story = listo.story(one)
    assert (story["status"], story["attemptCount"]) == ("failed", 1)
    assert story["failedAt"] is not None
    assert "spam" in story["lastError"]
    assert len(listo.acs.mails) == mails
    later = listo.sent("order_confirmed", "email", recipient=story["recipient"])
    assert listo.until(later, "skipped")["attemptCount"] == 0


@pytest.mark.req("S2-92")
@pytest.mark.parametrize("word", ["unsubscribe", "group_unsubscribe"])
def test_an_unsubscribe_switches_email_off(listo: Listo, word: str) -> None:
    user = f"user-{word}"
    one, message = vendors.mailed(listo, userId=user)
    mails = len(listo.acs.mails)
    vendors.sendgrid(listo, event(word, message))
    assert listo.story(one)["status"] == "delivered"
    (row,) = [row for row in listo.rows("SELECT * FROM preferences") if row["user_id"] == user]
    assert json.loads(row["channels_json"]) == {"email": False}
    refused = listo.send("order_confirmed", "email", userId=user)
    assert (refused.status, refused.body["error"]["code"]) == (422, "CHANNEL_DISABLED")
    assert len(listo.acs.mails) == mails


@pytest.mark.req("S2-83")
def test_one_bad_event_does_not_drop_the_others(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    other, second = vendors.mailed(listo)
    mark = listo.programs[-1].mark()
    strange: list[Any] = [event("evaporated", message), {"event": 7}, "text", None, [], {}]
    reply = vendors.sendgrid(listo, event("delivered", message), *strange, event("open", second))
    assert reply.status == 200
    assert vendors.route_of(listo, one)["receipt"] == "delivered"
    assert vendors.route_of(listo, other)["receipt"] == "opened"
    listo.programs[-1].wait_for("callback_refused", since=mark)


@pytest.mark.req("S2-84", "S2-85")
@pytest.mark.parametrize("change", ["tampered", "no signature", "no timestamp", "another key", "another time"])
def test_only_the_signed_bytes_are_believed(listo: Listo, change: str) -> None:
    one, message = vendors.mailed(listo)
    body = json.dumps([event("bounce", message, type="bounce")]).encode()
    now = int(time.time())
    headers = listo.signer.headers(body, now)
    if change == "tampered":
        body = body.replace(b"bounce", b"bouncf", 1)
    if change == "another key":
        headers = type(listo.signer)().headers(body, now)
    if change == "another time":
        headers["x-twilio-email-event-webhook-timestamp"] = str(now - 1)
    if change.startswith("no "):
        del headers[f"x-twilio-email-event-webhook-{change.removeprefix('no ')}"]
    reply = vendors.post(listo, vendors.SENDGRID, body, headers)
    assert (reply.status, reply.body["error"]["code"]) == (401, "CALLBACK_REFUSED")
    assert vendors.route_of(listo, one)["attempt_count"] == 1
    assert vendors.receipts_of(listo, message) == []


@pytest.mark.req("S2-86")
def test_an_old_timestamp_is_refused(listo: Listo) -> None:
    _, message = vendors.mailed(listo)
    assert vendors.sendgrid(listo, event("delivered", message), age=1200).status == 401
    assert vendors.sendgrid(listo, event("delivered", message), age=300).status == 200


@pytest.mark.req("S2-93")
def test_by_the_notification_where_the_message_is_not_named(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    vendors.sendgrid(listo, event("delivered", None, notificationId=one))
    assert vendors.route_of(listo, one)["receipt"] == "delivered"
    other, _ = vendors.mailed(listo)
    told = event("bounce", "made-up", notificationId=other, type="bounce")
    vendors.sendgrid(listo, told)
    vendors.until_route(listo, other, provider="AZURE_ACS")
    (mail,) = [mail for name, mail in listo.sendgrid.mails.items() if name == message]
    assert mail["custom_args"]["notificationId"] == one


@pytest.mark.req("S2-93", "S2-80")
def test_an_event_that_comes_again_is_one_event(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    mails = len(listo.acs.mails)
    bounce = event("bounce", message, type="bounce")
    for _ in range(3):
        assert vendors.sendgrid(listo, bounce, bounce).status == 200
    vendors.until_route(listo, one, attempt_count=2, status="published")
    assert len(listo.acs.mails) == mails + 1
    assert [row["effect"] for row in vendors.receipts_of(listo, message)] == ["failed_over"]


@pytest.mark.req("S2-90")
def test_a_second_hard_bounce_suppresses_the_address(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    vendors.sendgrid(listo, event("bounce", message, type="bounce"))
    vendors.until_route(listo, one, provider="AZURE_ACS", status="published")
    assert (
        vendors.azure(listo, vendors.azure_report(listo.story(one)["providerMessageIds"][-1], "Bounced")).status == 200
    )
    story = listo.until(one, "failed")
    found = listo.client.get(f"/api/v1/suppressions?address={story['recipient']}").body
    assert [item["source"] for item in found["items"]] == ["receipt"]


def test_a_large_batch_is_taken(listo: Listo) -> None:
    one, message = vendors.mailed(listo)
    many = [event("delivered", f"stranger-{number}", padding="x" * 750) for number in range(999)]
    assert len(json.dumps(many)) > 900_000
    assert vendors.sendgrid(listo, *many, event("open", message)).status == 200
    assert listo.story(one)["status"] == "opened"
    assert vendors.sendgrid(listo, *many, *many).status == 413
