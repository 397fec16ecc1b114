"""Whose choices count when somebody writes to an address and names no person."""

import itertools
import json
from typing import Any

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.client import Reply
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token

URL = "https://messages.example.org"
SETTINGS = f"""
[consent]
keys = ["a key of this test, thirty-two characters"]
url = "{URL}"
[preferences]
quiet_hours = true
[categories.news]
throttle = "3 in 1h"
[categories.orders]
"""
listo = shared_fixture(SETTINGS, JWT_SECRET_KEY=SECRET)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
QUIET = {"enabled": True, "startTime": "00:00", "endTime": "23:59", "timezone": "UTC"}
WAYS = ["send", "batch", "synchronous"]
_numbers = itertools.count()


@pytest.fixture
def boss() -> dict[str, str]:
    """An administrator of this test alone."""
    return token(f"boss-{next(_numbers)}", role="admin")


@pytest.fixture
def address() -> str:
    return f"reader-{next(_numbers)}@example.org"


def own(listo: Listo, who: dict[str, str], change: dict[str, Any] | None = None) -> Any:
    return listo.client.call("GET" if change is None else "PATCH", "/api/v1/preferences", change, who).body


def send(listo: Listo, who: dict[str, str], way: str, **fields: Any) -> Reply:
    """One send by each way over HTTP."""
    body = {"templateKey": "order_confirmed", "channel": "email", "category": "orders", **fields}
    if way == "batch":
        return listo.client.call("POST", "/api/v1/notifications/batch", {"notifications": [body]}, who)
    more = {"synchronous": True} if way == "synchronous" else {}
    return listo.client.call("POST", "/api/v1/notifications/send", body | more, who)


def gates(listo: Listo, who: dict[str, str], **fields: Any) -> dict[str, Any]:
    body = {"templateKey": "order_confirmed", "channel": "email", "category": "orders", **fields}
    said = listo.client.call("POST", "/api/v1/notifications/explain", body, who).body
    return {"outcome": said["outcome"], **{step["step"]: step["verdict"] for step in said["steps"]}}


def gate_of(reply: Reply) -> str | None:
    """The gate that skipped it, in the answer of each way."""
    body = reply.body["results"][0] if "results" in reply.body else reply.body
    return body["skipped"][0]["reason"] if body.get("skipped") else None


def record_of(listo: Listo, notification_id: str) -> Any:
    found = [row for row in listo.rows("SELECT * FROM records") if row["notification_id"] == notification_id]
    return found[0] if found else None


def one_click(listo: Listo, notification_id: str) -> str:
    """Press the button of the mail; its path."""
    (call,) = [*listo.calls("SendGrid", notification_id), *listo.calls("AZURE_ACS", notification_id)]
    path = json.loads(call["body"])["headers"]["List-Unsubscribe"].strip("<>").removeprefix(URL)
    reply = listo.client.call("POST", path, b"List-Unsubscribe=One-Click", FORM)
    assert reply.status == 200
    return str(path)


@pytest.mark.req("P-760", "P-214")
@pytest.mark.parametrize("way", WAYS)
def test_one_click_leaves_for_the_address_and_not_for_the_administrator(
    listo: Listo, boss: dict[str, str], address: str, way: str
) -> None:
    before = own(listo, boss)
    reply = send(listo, boss, "send", recipient=address)
    sent = reply.body["notificationId"]
    listo.until(sent, "delivered", headers=boss)
    one_click(listo, sent)
    assert own(listo, boss) == before
    held = listo.client.call("GET", f"/api/v1/preferences/user/email:{address}", None, boss).body
    assert held["categories"]["orders"]["email"] is False
    # The address gets no more of it from all senders of the tenant and in every way; the next address does.
    assert gate_of(send(listo, boss, way, recipient=address.upper())) == "category"
    assert gate_of(send(listo, token("other", role="admin"), way, recipient=address)) == "category"
    assert gate_of(send(listo, boss, way, recipient=f"next-{address}")) is None
    assert gates(listo, boss, recipient=address) | {"outcome": "skipped", "category": "stop"} == gates(
        listo, boss, recipient=address
    )
    assert gates(listo, boss, recipient=f"next-{address}")["outcome"] == "queued"


@pytest.mark.req("P-760")
def test_a_waiting_mail_is_skipped_by_the_choice_of_its_address(
    listo: Listo, boss: dict[str, str], address: str
) -> None:
    first = send(listo, boss, "send", recipient=address).body["notificationId"]
    listo.until(first, "delivered", headers=boss)
    later = send(listo, boss, "send", recipient=address, scheduledFor="2096-01-01T00:00:00Z").body["notificationId"]
    one_click(listo, first)
    body = {"notificationId": later, "scheduledFor": "2020-01-01T00:00:00Z"}
    assert listo.client.call("POST", "/api/v1/notifications/change", body, boss).body["done"] == 1
    assert listo.until(later, "skipped", headers=boss)["routes"][0]["gate"] == "category"


@pytest.mark.req("P-760", "S2-04", "S2-100")
@pytest.mark.parametrize("way", WAYS)
def test_what_administrators_chose_for_themselves_holds_nobody_else_back(
    listo: Listo, boss: dict[str, str], address: str, way: str
) -> None:
    name = own(listo, boss)["userId"]
    choices = {"categories": {"orders": {"email": False}}, "channels": {"email": {"isEnabled": False}}}
    own(listo, boss, {**choices, "quietHours": QUIET, "preferredLocale": "es-MX"})
    reply = send(listo, boss, way, recipient=address)
    assert (reply.status in {200, 202}, gate_of(reply)) == (True, None), reply.body
    body = reply.body["results"][0] if way == "batch" else reply.body
    story = listo.until(body["notificationId"], "delivered", headers=boss)
    # The record is the caller's and so is the language, as the document says.
    assert (story["userId"], story["locale"], story["recipient"]) == (name, "es-MX", address)
    assert story["scheduledFor"] is None
    assert send(listo, boss, way, recipient=address, category=None).status in {200, 202}
    # Named, the administrator is a person like all others.
    assert gate_of(send(listo, boss, way, recipient=address, userId=name)) == "category"
    assert gates(listo, boss, recipient=address)["outcome"] == "queued"
    assert gates(listo, boss, recipient=address, userId=name)["outcome"] == "skipped"


@pytest.mark.req("P-850", "S2-04")
def test_a_persons_own_address_is_the_person(listo: Listo, address: str) -> None:
    name = f"ada-{next(_numbers)}"
    ada = token(name)
    own(listo, ada, {"categories": {"orders": {"email": False}}, "contacts": {"email": address}})
    for way in WAYS:
        assert gate_of(send(listo, ada, way, recipient=address.upper())) == "category"
        # The person says that this address is theirs too.
        assert gate_of(send(listo, ada, way, recipient=f"new-{address}", userId=name)) == "category"
    assert gates(listo, ada, recipient=address)["category"] == "stop"
    assert send(listo, ada, "send", recipient=address, category="news").body["status"] == "queued"


@pytest.mark.req("P-850")
@pytest.mark.parametrize("way", WAYS)
def test_what_people_chose_for_themselves_holds_nobody_else_back(listo: Listo, address: str, way: str) -> None:
    name = f"ada-{next(_numbers)}"
    ada = token(name)
    choices = {"categories": {"orders": {"email": False}}, "channels": {"email": {"isEnabled": False}}}
    own(listo, ada, {**choices, "quietHours": QUIET, "contacts": {"email": f"mine-{address}"}})
    reply = send(listo, ada, way, recipient=address)
    assert (reply.status in {200, 202}, gate_of(reply)) == (True, None), reply.body
    body = reply.body["results"][0] if way == "batch" else reply.body
    story = listo.until(body["notificationId"], "delivered", headers=ada)
    assert (story["userId"], story["recipient"], story["scheduledFor"]) == (name, address, None)
    assert send(listo, ada, way, recipient=address, category=None).status in {200, 202}
    assert gates(listo, ada, recipient=address)["outcome"] == "queued"


@pytest.mark.req("P-850", "P-214")
def test_one_click_of_a_reader_leaves_nothing_for_the_person_who_wrote(listo: Listo, address: str) -> None:
    ada, root = token(f"ada-{next(_numbers)}"), token("root", role="admin")
    before = own(listo, ada)
    sent = send(listo, ada, "send", recipient=address).body["notificationId"]
    listo.until(sent, "delivered", headers=ada)
    one_click(listo, sent)
    assert own(listo, ada) == before
    held = listo.client.call("GET", f"/api/v1/preferences/user/email:{address}", None, root).body
    assert held["categories"]["orders"]["email"] is False
    for way in WAYS:
        assert gate_of(send(listo, ada, way, recipient=address)) == "category"
        assert gate_of(send(listo, token("eve"), way, recipient=address)) == "category"
        assert gate_of(send(listo, ada, way, recipient=f"next-{address}")) is None
    # The report of the reader is not the writer's to give.
    assert listo.client.call("POST", f"/api/v1/notifications/{sent}/receipts", {"kind": "read"}, ada).status >= 400


@pytest.mark.req("P-850")
def test_throttles_digests_and_quiet_hours_are_those_of_the_reader(listo: Listo, address: str) -> None:
    ada, root = token(f"ada-{next(_numbers)}"), token("root", role="admin")
    for _ in range(3):
        assert gate_of(send(listo, ada, "send", recipient=address, category="news")) is None
    assert gate_of(send(listo, ada, "send", recipient=address, category="news")) == "throttle"
    assert gates(listo, ada, recipient=address, category="news")["throttle"] == "stop"
    assert gate_of(send(listo, ada, "send", recipient=f"next-{address}", category="news")) is None
    # Two readers of one writer do not share a digest.
    wish = {"digest": {"key": "comments", "window": "1h", "max": 2}}
    readers = (f"third-{address}", f"fourth-{address}")
    for to in readers:
        assert send(listo, ada, "send", recipient=to, **wish).status == 202
    owners = {row["audience"] for row in listo.rows("SELECT audience FROM digests")}
    assert {f"email:{to}" for to in readers} <= owners
    listo.client.call("PATCH", f"/api/v1/preferences/user/email:{address}", {"quietHours": QUIET}, root)
    assert gates(listo, ada, recipient=address)["quiet_hours"] in {"note", "pass"}
    assert "quiet_hours" not in gates(listo, ada, recipient=f"next-{address}")


@pytest.mark.req("P-851")
def test_a_person_writes_into_no_other_inbox(listo: Listo) -> None:
    ada, bob = f"ada-{next(_numbers)}", f"bob-{next(_numbers)}"
    for way in ("send", "batch"):
        reply = send(listo, token(ada), way, channel="inApp", recipient=bob)
        error = reply.body["results"][0]["error"] if way == "batch" else reply.body["error"]
        assert (error["code"], error["message"]) == (
            "FORBIDDEN",
            "this belongs to another person; use an administrator's token",
        )
    assert listo.client.get(f"/notifications/{bob}", token(bob)).body["notifications"] == []
    sent = send(listo, token(ada), "send", channel="inApp", recipient=ada)
    assert listo.until(sent.body["notificationId"], "delivered", headers=token(ada))["userId"] == ada


@pytest.mark.req("P-760")
def test_a_throttle_counts_each_address(listo: Listo, boss: dict[str, str], address: str) -> None:
    for _ in range(3):
        for to in (address, f"next-{address}"):
            assert gate_of(send(listo, boss, "send", recipient=to, category="news")) is None
    assert gate_of(send(listo, boss, "send", recipient=address, category="news")) == "throttle"
    assert gates(listo, boss, recipient=address, category="news")["throttle"] == "stop"
    assert gate_of(send(listo, boss, "send", recipient=f"third-{address}", category="news")) is None


@pytest.mark.req("P-760", "S2-92")
def test_a_vendors_unsubscribe_switches_nothing_off_for_the_administrator(
    listo: Listo, boss: dict[str, str], address: str
) -> None:
    before = own(listo, boss)
    sent = send(listo, boss, "send", recipient=address).body["notificationId"]
    story = listo.until(sent, "delivered", headers=boss)
    event = {"event": "unsubscribe", "sg_message_id": f"{story['providerMessageIds'][0]}.filter", "sg_event_id": sent}
    assert vendors.sendgrid(listo, {**event, "timestamp": 1, "email": address}).status == 200
    assert gate_of(send(listo, boss, "send", recipient=address)) == "suppressed"
    assert own(listo, boss) == before
    assert gate_of(send(listo, boss, "send", recipient=f"next-{address}")) is None


@pytest.mark.req("P-761")
@pytest.mark.parametrize("role", ["admin", "service"])
def test_the_address_of_an_inbox_is_a_person_with_choices(listo: Listo, role: str) -> None:
    bob, sender = f"bob-{next(_numbers)}", token(f"sender-{next(_numbers)}", role=role)
    fields = {"channel": "inApp", "recipient": bob}
    sent = listo.until(send(listo, sender, "send", **fields).body["notificationId"], "delivered", headers=sender)
    assert sent["userId"] == bob
    inbox = listo.client.get(f"/notifications/{bob}", token(bob)).body
    assert [one["notification_id"] for one in inbox["notifications"]] == [sent["id"]]
    own(listo, token(bob), {"categories": {"orders": {"inApp": False}}})
    assert gate_of(send(listo, sender, "send", **fields)) == "category"
    assert gate_of(send(listo, sender, "batch", **fields)) == "category"
    assert gates(listo, sender, **fields)["category"] == "stop"


@pytest.mark.req("P-760")
def test_an_erasure_of_the_address_or_of_the_administrator_takes_its_own(
    listo: Listo, boss: dict[str, str], address: str
) -> None:
    name, mark = own(listo, boss)["userId"], f"mark of {address}"
    data = {"metadata": {"secret": mark}}
    first = send(listo, boss, "send", recipient=address, **data).body["notificationId"]
    other = send(listo, boss, "send", recipient=f"next-{address}").body["notificationId"]
    for sent in (first, other):
        listo.until(sent, "delivered", headers=boss)
    erased = listo.client.call("DELETE", f"/api/v1/people/email:{address}", None, boss)
    assert erased.body["finished"] is True
    assert record_of(listo, first) is None
    # The administrator asked for the other mail, which stays its reader's.
    assert listo.client.call("DELETE", f"/api/v1/people/{name}", None, boss).body["finished"] is True
    kept = record_of(listo, other)
    assert kept is not None
    assert kept["user_id"] is None
