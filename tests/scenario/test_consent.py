"""Consent from outside: categories, choices, and what becomes of a message that a person does not want."""

import datetime as dt
import itertools
import json
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import EMAIL, PHONE, SECRET, Listo, shared_fixture, token

SETTINGS = """
[categories.security]
required = true
[categories.news]
channels = { sms = false }
titles = { en = "News" }
[categories.orders]
[tenant.acme.categories.rides]
[tenant.acme.categories.news]
required = true
"""
listo = shared_fixture(SETTINGS, JWT_SECRET_KEY=SECRET)

OWN = "/api/v1/preferences"
ADMIN = token("root", role="admin")
_numbers = itertools.count()


@pytest.fixture
def user(listo: Listo) -> str:
    user = f"person-{next(_numbers)}"
    listo.client.call("PATCH", OWN, {"contacts": {"email": EMAIL, "phone": PHONE}}, token(user))
    return user


def choose(listo: Listo, user: str, **choices: dict[str, bool | None]) -> Reply:
    return listo.client.call("PATCH", OWN, {"categories": choices}, token(user))


def send(listo: Listo, user: str, category: str | None, channel: str = "email", **fields: Any) -> Reply:
    said = {"recipient": None, "headers": token(user), "category": category, **fields}
    return listo.send("order_confirmed", channel, **said)


@pytest.mark.req("P-205")
def test_what_a_person_does_not_want_is_skipped_and_says_so(listo: Listo, user: str) -> None:
    assert choose(listo, user, news={"email": False}).status == 200
    reply = send(listo, user, "news")
    assert (reply.status, reply.body["status"]) == (202, "skipped")
    (skipped,) = reply.body["skipped"]
    assert (skipped["reason"], skipped["channel"]) == ("category", "email")
    assert skipped["because"] == "the person switched news off for email"
    story = listo.story(reply.body["notificationId"], token(user))
    assert (story["status"], story["category"], story["routes"][0]["gate"]) == ("skipped", "news", "category")
    # The second category, the second channel and the second person get theirs.
    assert send(listo, user, "orders").body["status"] == "queued"
    assert send(listo, user, "news", "sms").body["status"] == "skipped"
    assert choose(listo, user, news={"sms": True}).status == 200
    assert send(listo, user, "news", "sms").body["status"] == "queued"
    assert send(listo, f"{user}-2", "news", recipient=EMAIL).body["status"] == "queued"


@pytest.mark.req("P-205")
def test_a_repeat_is_answered_as_the_first_was(listo: Listo, user: str) -> None:
    choose(listo, user, news={"email": False})
    headers = {**token(user), "Idempotency-Key": f"k-{user}"}
    first = send(listo, user, "news", headers=headers)
    choose(listo, user, news={"email": True})
    again = send(listo, user, "news", headers=headers)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.body == first.body


@pytest.mark.req("P-205")
def test_explain_names_the_gate(listo: Listo, user: str) -> None:
    body = {"templateKey": "order_confirmed", "channel": "email", "category": "news"}
    said = listo.client.call("POST", "/api/v1/notifications/explain", body, token(user)).body
    (step,) = [step for step in said["steps"] if step["step"] == "category"]
    assert (said["outcome"], step["verdict"], step["detail"]) == (
        "queued",
        "pass",
        {"category": "news", "required": False},
    )
    choose(listo, user, news={"email": False})
    said = listo.client.call("POST", "/api/v1/notifications/explain", body, token(user)).body
    (step,) = [step for step in said["steps"] if step["step"] == "category"]
    assert (said["outcome"], step["verdict"], said["routes"][0]["gate"]) == ("skipped", "stop", "category")
    assert step["detail"]["because"] == said["message"] == "the person switched news off for email"


@pytest.mark.req("P-204")
def test_a_batch_and_a_synchronous_send_meet_the_gate(listo: Listo, user: str) -> None:
    choose(listo, user, news={"email": False})
    one = {"templateKey": "order_confirmed", "channel": "email", "userId": user}
    items = [{**one, "category": "news"}, {**one, "category": "orders"}, {**one, "category": "noise"}]
    batch = listo.client.call("POST", "/api/v1/notifications/batch", {"notifications": items}, ADMIN).body
    assert [each["status"] for each in batch["results"]] == ["skipped", "queued", "rejected"]
    assert (batch["skipped"], batch["results"][2]["error"]["code"]) == (1, "UNKNOWN_CATEGORY")
    reply = send(listo, user, "news", synchronous=True)
    assert (reply.status, reply.body["error"]["code"]) == (502, "DELIVERY_FAILED")
    assert reply.body["skipped"][0]["reason"] == "category"
    assert listo.calls("SendGrid", "the-marker") == []


@pytest.mark.req("P-206")
def test_required_and_unknown_categories(listo: Listo, user: str) -> None:
    refused = choose(listo, user, security={"email": False})
    assert (refused.status, refused.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert "security is required" in refused.body["error"]["message"]
    refused = choose(listo, user, noise={"email": False})
    assert "known are news, orders, security" in refused.body["error"]["message"]
    # Even who switched the whole channel off gets what is required, and nothing else.
    listo.client.call("PATCH", OWN, {"channels": {"email": {"isEnabled": False}}}, token(user))
    assert send(listo, user, "security").body["status"] == "queued"
    assert send(listo, user, "orders").body["skipped"][0]["because"] == "the person switched email off"
    assert send(listo, user, None).body["error"]["code"] == "CHANNEL_DISABLED"
    choose(listo, user, orders={"email": True})
    assert send(listo, user, "orders").body["status"] == "queued"
    reply = send(listo, user, "noise")
    assert (reply.status, reply.body["error"]["code"]) == (422, "UNKNOWN_CATEGORY")


@pytest.mark.req("P-202")
def test_the_answer_shows_what_holds(listo: Listo, user: str) -> None:
    body = {
        "timeZone": "Europe/Berlin",
        "quietHours": {"from": "22:00", "to": "07:00", "days": ["sun", "mon"]},
        "categories": {"news": {"push": False}},
    }
    held = listo.client.call("PATCH", OWN, body, token(user)).body
    assert held["categories"]["news"] == {"email": True, "sms": False, "push": False, "inApp": True, "webhook": True}
    assert (held["required"], held["timeZone"]) == (["security"], "Europe/Berlin")
    assert held["quietHours"] == {
        "enabled": True,
        "startTime": "22:00",
        "endTime": "07:00",
        "timezone": "Europe/Berlin",
        "days": ["mon", "sun"],
        "holidays": None,
    }
    for wrong in ({"timeZone": "Mars/Base"}, {"quietHours": {"from": "22:00", "to": "07:00", "days": ["moonday"]}}):
        assert listo.client.call("PATCH", OWN, wrong, token(user)).status == 400
    assert listo.client.call("GET", OWN, None, token(user)).body == held


@pytest.mark.req("P-207")
def test_a_template_names_the_category_and_tenants_have_their_own(listo: Listo, user: str) -> None:
    made = {"templateKey": f"ride_{user}", "channel": "email", "subjectTemplate": "Ride", "bodyTemplate": "A ride."}
    refused = listo.client.call("POST", "/api/v1/templates", {**made, "category": "rides"}, ADMIN)
    assert "there is no category rides" in refused.body["error"]["message"]
    boss, mine = token("boss", role="admin", tenant="acme"), token(user, tenant="acme")
    view = listo.client.call("POST", "/api/v1/templates", {**made, "category": "rides"}, boss).body
    assert view["category"] == "rides"
    listo.client.call("PATCH", OWN, {"contacts": {"email": EMAIL}, "categories": {"rides": {"email": False}}}, mine)
    reply = listo.send(made["templateKey"], "email", recipient=None, headers=mine)
    assert (reply.body["status"], reply.body["skipped"][0]["reason"]) == ("skipped", "category")
    # A request names another one; acme requires what others may leave.
    assert (
        listo.send(made["templateKey"], "email", recipient=None, headers=mine, category="orders").body["status"]
        == "queued"
    )
    held = listo.client.call("GET", OWN, None, mine).body
    assert held["required"] == ["news", "security"]
    changed = listo.client.call("PUT", f"/api/v1/templates/{view['id']}", {"category": None}, boss).body
    assert changed["category"] is None
    assert listo.send(made["templateKey"], "email", recipient=None, headers=mine).body["status"] == "queued"


@pytest.mark.req("P-203")
def test_a_person_who_leaves_while_a_message_waits_does_not_get_it(listo: Listo, user: str) -> None:
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)).isoformat()
    waiting = send(listo, user, "news", scheduledFor=later).body["notificationId"]
    other = send(listo, user, "orders", scheduledFor=later).body["notificationId"]
    choose(listo, user, news={"email": False})

    (route,) = listo.until(waiting, "skipped", headers=token(user))["routes"]
    assert (route["gate"], route["lastError"], route["attempts"]) == (
        "category",
        "the person switched news off for email",
        [],
    )
    listo.until(other, "delivered", headers=token(user))
    assert not [row for row in listo.rows("SELECT notification_id FROM dead_letters") if waiting in json.dumps(row)]
