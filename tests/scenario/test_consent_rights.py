"""A person's rights from outside: export and erasure over HTTP and by hand, and who may ask."""

import itertools
import json
import os
import subprocess
import threading
import urllib.request
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.process import carillon_command

listo = shared_fixture(JWT_SECRET_KEY=SECRET)
ADMIN = token("root", role="admin")
_numbers = itertools.count()


@pytest.fixture
def user(listo: Listo) -> str:
    """A person with a contact and two mails."""
    user = f"rightful-{next(_numbers)}"
    address = f"{user}@example.org"
    listo.client.call("PATCH", "/api/v1/preferences", {"contacts": {"email": address}}, token(user))
    for _ in range(2):
        sent = listo.sent("order_confirmed", "email", recipient=None, headers=token(user))
        listo.until(sent, "delivered", headers=ADMIN)
    return user


def export(listo: Listo, user: str) -> list[dict[str, Any]]:
    """Every line of an export."""
    asked = urllib.request.Request(f"{listo.address}/api/v1/people/{user}/export", headers=ADMIN)  # noqa: S310 - loopback
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - loopback
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.headers["content-length"] is None, "written as it is read"
        *things, end = [json.loads(line) for line in answer.read().splitlines()]
        assert end == {"what": "end", "count": len(things)}
        return things


@pytest.mark.req("P-223")
def test_an_administrator_exports_and_erases_a_person(listo: Listo, user: str) -> None:
    things = export(listo, user)
    assert [thing["what"] for thing in things] == ["person", "preferences", "notification", "notification"]
    assert things[2]["routes"][0]["message"]["text"]
    for headers in (token(user), token("eve")):
        assert listo.client.call("GET", f"/api/v1/people/{user}/export", None, headers).status == 403
        assert listo.client.call("DELETE", f"/api/v1/people/{user}", None, headers).status == 403
    erased = listo.client.call("DELETE", f"/api/v1/people/{user}", None, ADMIN)
    assert (erased.status, erased.body["finished"], erased.body["removed"]["records"]) == (200, True, 2)
    assert listo.client.call("GET", f"/api/v1/notifications?userId={user}", None, ADMIN).body["totalCount"] == 0
    assert len(export(listo, user)) == 1
    # What our program has written about the person names no address.
    assert not [
        line for line in listo.programs[-1].events("route_attempted") if f"{user}@example.org" in json.dumps(line)
    ]


@pytest.mark.req("P-1054", "P-221")
def test_no_send_to_an_erased_and_suppressed_address_goes_out_in_any_process(listo: Listo, user: str) -> None:
    address = f"{user}@example.org"
    other = Client.of(listo.start())
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": address}
    began: set[str] = set()
    asked, over = threading.Event(), threading.Event()

    def sending() -> None:
        while True:
            for client in (listo.client, other):
                began.add(client.call("POST", "/api/v1/notifications/send", body, ADMIN).body["status"])
            asked.set()
            if over.wait(0.2):
                return

    listo.client.call(
        "POST", "/api/v1/suppressions", {"channel": "email", "address": address, "reason": "asked"}, ADMIN
    )
    sender = threading.Thread(target=sending)
    sender.start()
    assert asked.wait(30), "each process has read its marks"
    erased = listo.client.call("DELETE", f"/api/v1/people/{user}", None, ADMIN)
    over.set()
    sender.join()
    assert erased.body["suppressionsKept"] == 1
    assert began == {"skipped"}, "before and while the erasure ran"
    for client in (listo.client, other):
        reply = client.call("POST", "/api/v1/notifications/send", body, ADMIN)
        assert (reply.body["status"], reply.body["skipped"][0]["reason"]) == ("skipped", "suppressed")
    said = listo.client.call("POST", "/api/v1/notifications/explain", body, ADMIN).body
    assert (said["outcome"], said["routes"][0]["gate"]) == ("skipped", "suppressed")


@pytest.mark.req("P-220")
def test_the_command_does_the_same(listo: Listo, user: str) -> None:
    command = [*carillon_command(), "people"]
    given = ["--config", str(listo.folder / "listo.toml")]
    environment = {**os.environ, **listo.environment()}
    done = subprocess.run(
        [*command, "export", user, *given], capture_output=True, text=True, env=environment, check=True
    )
    assert [json.loads(line)["what"] for line in done.stdout.splitlines()][-2:] == ["notification", "end"]
    assert done.stderr.splitlines()[-1] == f"{len(done.stdout.splitlines())} lines, whole"
    done = subprocess.run(
        [*command, "erase", user, "--yes", "--json", *given],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert json.loads(done.stdout)["finished"] is True
    done = subprocess.run(
        [*command, "export", user, *given], capture_output=True, text=True, env=environment, check=True
    )
    assert [json.loads(line)["what"] for line in done.stdout.splitlines()] == ["person", "end"]


@pytest.mark.req("P-224")
def test_adding_and_lifting_a_suppression_is_in_the_audit_trail(listo: Listo) -> None:
    body = {"channel": "email", "address": "trail@example.org", "reason": "asked"}
    number = listo.client.call("POST", "/api/v1/suppressions", body, ADMIN).body["id"]
    assert listo.client.call("DELETE", f"/api/v1/suppressions/{number}", None, ADMIN).status == 200
    for action in ("suppress", "unsuppress"):
        found = listo.rows(f"SELECT actor, subject, detail_json FROM admin_actions WHERE action = '{action}'")  # noqa: S608 - our own words
        assert [row["actor"] for row in found if row["subject"] == str(number)] == ["root"]
        assert "trail@example.org" not in json.dumps(found, default=str)


@pytest.mark.req("P-1104")
def test_an_id_that_is_an_address_is_erased_as_one_and_so_is_an_inbox(listo: Listo) -> None:
    user = f"rightful-{next(_numbers)}@example.org"
    listo.client.call("PATCH", "/api/v1/preferences", {"contacts": {"email": user}}, token(user))
    bare = {"templateKey": "order_confirmed", "channel": "email", "recipient": user}
    sent = listo.client.call("POST", "/api/v1/notifications/send", bare, ADMIN).body["notificationId"]
    for channel in ("email", "inApp"):
        body = {"channel": channel, "address": user, "reason": "asked"}
        assert listo.client.call("POST", "/api/v1/suppressions", body, ADMIN).status == 200
    things = export(listo, user)
    assert {thing["channel"] for thing in things if thing["what"] == "suppression"} == {"email", "inApp"}
    assert [thing["id"] for thing in things if thing["what"] == "notification"] == [sent]
    erased = listo.client.call("DELETE", f"/api/v1/people/{user}", None, ADMIN).body
    assert (erased["finished"], erased["removed"]["records"], erased["suppressionsKept"]) == (True, 1, 2)
    assert listo.client.call("GET", f"/api/v1/notifications/{sent}", None, ADMIN).status == 404
    assert user not in json.dumps(listo.rows("SELECT * FROM suppressions"), default=str)
    assert listo.client.call("POST", "/api/v1/notifications/send", bare, ADMIN).body["status"] == "skipped"


@pytest.mark.req("P-1265")
@pytest.mark.parametrize("capital", [False, True])
def test_an_id_that_is_an_address_is_one_also_of_somebody_who_never_was_a_user(listo: Listo, *, capital: bool) -> None:
    address = f"rightful-{next(_numbers)}@example.org"
    bare = {"templateKey": "order_confirmed", "channel": "email", "recipient": address}
    sent = listo.client.call("POST", "/api/v1/notifications/send", bare, ADMIN).body["notificationId"]
    choice = {"channels": {"push": {"isEnabled": False}}}
    changed = listo.client.call("PATCH", f"/api/v1/preferences/user/email:{address}", choice, ADMIN)
    assert changed.status == 200
    named = address.capitalize() if capital else address
    found = [thing["what"] for thing in export(listo, named)]
    assert (found.count("preferences"), found.count("notification")) == (1, 1)
    erased = listo.client.call("DELETE", f"/api/v1/people/{named}", None, ADMIN).body
    assert (erased["finished"], erased["removed"]["records"], erased["removed"]["preferences"]) == (True, 1, 1)
    assert listo.client.call("GET", f"/api/v1/notifications/{sent}", None, ADMIN).status == 404


@pytest.mark.req("P-1105")
def test_an_export_has_the_choices_of_the_persons_addresses_too(listo: Listo, user: str) -> None:
    address = f"{user}@example.org"
    choice = {"channels": {"email": {"isEnabled": False}}}
    reply = listo.client.call("PATCH", f"/api/v1/preferences/user/email:{address}", choice, ADMIN)
    assert reply.status == 200
    held = {thing["userId"]: thing for thing in export(listo, user) if thing["what"] == "preferences"}
    assert set(held) == {user, f"email:{address}"}
    assert held[f"email:{address}"]["channels"] == {"email": False}
    erased = listo.client.call("DELETE", f"/api/v1/people/{user}", None, ADMIN).body
    assert erased["removed"]["preferences"] == 2, "the export shows what the erasure removes"
