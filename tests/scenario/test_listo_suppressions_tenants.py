"""A vendor refuses a number for one tenant: that tenant's later sends say so, and no other tenant is harmed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from carillon.client import Client as CarillonClient
from carillon.client import Rejected
from tests.support import listo_callbacks as vendors
from tests.support import sns_stub, twilio_stub
from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.process import run_carillon
from tests.support.waiting import wait_until

listo = shared_fixture(JWT_SECRET_KEY=SECRET)
PATH = "/api/v1/suppressions"
ACME, GLOBEX = token("ada", role="admin", tenant="acme"), token("bob", role="admin", tenant="globex")
OPERATOR, PERSON = token("ops", role="admin"), token("carol", tenant="acme")


def refused_for(listo: Listo, headers: dict[str, str], number: str) -> str:
    """Send a text message that Twilio and Amazon refuse for good; the notification's id."""
    listo.twilio.answer(twilio_stub.error(21211))
    listo.sns.answer(sns_stub.error("InvalidParameter", "Invalid parameter: PhoneNumber Reason: it is not valid"))
    one = listo.sent("order_confirmed", "sms", recipient=number, headers=headers)
    listo.until(one, "failed", headers=headers)
    return one


def listed(listo: Listo, headers: dict[str, str], **query: str) -> list[dict[str, Any]]:
    asked = "&".join(f"{name}={value.replace('+', '%2B')}" for name, value in query.items())
    found = listo.client.get(f"{PATH}?{asked}", headers).body
    return list(found["items"])


def in_days(text: str) -> float:
    return (datetime.fromisoformat(text) - datetime.now(UTC)) / timedelta(days=1)


def test_a_refused_number_is_its_tenants_affair(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    calls = len(listo.calls("Twilio"))
    reply = listo.send("order_confirmed", "sms", recipient=number, headers=ACME)
    assert (reply.status, reply.body["status"]) == (202, "skipped")
    (skipped,) = reply.body["skipped"]
    assert (skipped["reason"], skipped["kind"], skipped["channel"]) == ("suppressed", "invalid", "sms")
    assert 29.9 < in_days(skipped["until"]) < 30.1
    assert len(listo.calls("Twilio")) == calls
    other = listo.send("order_confirmed", "sms", recipient=number, headers=GLOBEX)
    assert (other.body["status"], "skipped" in other.body) == ("queued", False)
    listo.until(other.body["notificationId"], "delivered", headers=GLOBEX)
    assert len(listo.calls("Twilio")) == calls + 1
    story = listo.story(reply.body["notificationId"], ACME)
    (route,) = story["routes"]
    assert (route["status"], route["lastError"]) == ("skipped", "the address is suppressed")
    assert route["suppression"] == {"id": skipped["suppressionId"], "kind": "invalid", "until": skipped["until"]}
    assert listo.story(other.body["notificationId"], GLOBEX)["routes"][0]["suppression"] is None


def test_its_administrator_sees_and_lifts_it_and_no_other_does(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    (seen,) = listed(listo, ACME, address=number)
    assert {name: seen[name] for name in ("tenantId", "kind", "source", "reason", "channel", "address")} == {
        "tenantId": "acme",
        "kind": "invalid",
        "source": "delivery",
        "reason": "invalid_number",
        "channel": "sms",
        "address": number,
    }
    assert listed(listo, ACME, kind="invalid")
    assert listed(listo, GLOBEX, address=number) == []
    assert not [each for each in listed(listo, GLOBEX) if each["tenantId"] != "globex"]
    assert [each["id"] for each in listed(listo, OPERATOR, address=number)] == [seen["id"]]
    assert listo.client.get(PATH, PERSON).status == 403
    for headers, status in ((PERSON, 403), (GLOBEX, 404), (ACME, 200), (ACME, 404)):
        assert listo.client.call("DELETE", f"{PATH}/{seen['id']}", None, headers).status == status
    for name in ("0", "nobody", "9" * 30):
        assert listo.client.call("DELETE", f"{PATH}/{name}", None, ACME).status == 404
    again = listo.send("order_confirmed", "sms", recipient=number, headers=ACME)
    assert again.body["status"] == "queued"
    listo.until(again.body["notificationId"], "delivered", headers=ACME)


def test_what_holds_for_everybody_is_seen_by_address_and_lifted_by_operators(listo: Listo) -> None:
    address = vendors.email()
    body = {"channel": "email", "address": address, "reason": "a trap"}
    shared = listo.client.call("POST", PATH, body, OPERATOR).body
    assert (shared["tenantId"], shared["kind"], shared["expiresAt"]) == (None, "manual", None)
    assert [each["id"] for each in listed(listo, OPERATOR, shared="true", address=address)] == [shared["id"]]
    for headers in (ACME, GLOBEX):
        assert [each["tenantId"] for each in listed(listo, headers, address=address)] == [None]
        assert address not in str(listed(listo, headers))
        assert listo.send(recipient=address, headers=headers).body["skipped"][0]["until"] is None
        assert listo.client.call("DELETE", f"{PATH}/{shared['id']}", None, headers).status == 404
    own = listo.client.call("POST", PATH, body, ACME).body
    assert own["tenantId"] == "acme"
    assert listo.client.call("DELETE", f"{PATH}/{shared['id']}", None, OPERATOR).status == 200
    assert listo.send(recipient=address, headers=ACME).body["status"] == "skipped"
    assert listo.send(recipient=address, headers=GLOBEX).body["status"] == "queued"


def test_an_end_is_what_was_asked_for_to_the_millisecond(listo: Listo) -> None:
    end = (datetime.now(UTC) + timedelta(hours=3)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    address = vendors.email()
    body = {"channel": "email", "address": address, "reason": "holidays", "expiresAt": end}
    assert listo.client.call("POST", PATH, body, ACME).body["expiresAt"] == end
    assert listo.send(recipient=address, headers=ACME).body["skipped"][0]["until"] == end
    later = (datetime.now(UTC) + timedelta(hours=4)).isoformat()
    assert listo.send(recipient=address, scheduledFor=later, headers=ACME).body["status"] == "queued"


def test_every_answer_says_so(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    (seen,) = listed(listo, ACME, address=number)
    item = {"templateKey": "order_confirmed", "channel": "sms", "recipient": number}
    batch = listo.client.call(
        "POST", "/api/v1/notifications/batch", {"notifications": [item, {**item, "recipient": vendors.phone()}]}, ACME
    ).body
    assert (batch["accepted"], batch["rejected"], batch["skipped"]) == (2, 0, 1)
    assert [result["status"] for result in batch["results"]] == ["skipped", "queued"]
    assert batch["results"][0]["skipped"][0]["suppressionId"] == seen["id"]
    assert "skipped" not in batch["results"][1]
    waiting = listo.send("order_confirmed", "sms", recipient=number, synchronous=True, headers=ACME)
    assert (waiting.status, waiting.body["error"]["code"]) == (502, "DELIVERY_FAILED")
    assert waiting.body["skipped"][0] == {
        **batch["results"][0]["skipped"][0],
        "routeId": waiting.body["skipped"][0]["routeId"],
    }
    said = listo.client.call("POST", "/api/v1/notifications/explain", item, ACME).body
    (gate,) = [step for step in said["steps"] if step["step"] == "suppression"]
    until = round(datetime.fromisoformat(seen["expiresAt"]).timestamp() * 1000)
    assert gate["detail"] == {
        "suppressed": True,
        "reason": "invalid_number",
        "source": "delivery",
        "scope": "acme",
        "suppressionId": seen["id"],
        "kind": "invalid",
        "until": until,
    }
    assert said["routes"][0]["suppression"] == {"suppressionId": seen["id"], "kind": "invalid", "until": until}
    assert (said["outcome"], said["message"]) == ("skipped", "the address is suppressed")


def test_a_repeat_under_the_same_key_says_the_same(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    for synchronous in (False, True):
        headers = {**ACME, "Idempotency-Key": f"again-{number}-{synchronous}"}
        first, second = (
            listo.send("order_confirmed", "sms", recipient=number, synchronous=synchronous, headers=headers)
            for _ in range(2)
        )
        assert second.headers["idempotent-replayed"] == "true"
        assert second.body["skipped"] == first.body["skipped"] != []


def test_the_client_library_and_the_command_say_so(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    bearer = ACME["Authorization"].removeprefix("Bearer ")
    with CarillonClient(listo.address, token=bearer) as client:
        accepted = client.send("order_confirmed", channel="sms", recipient=number)
        assert (accepted.status, [each.kind for each in accepted.skipped]) == ("skipped", ["invalid"])
        story = client.wait(accepted.notification_id)
        assert story.routes[0].suppression is not None
        assert story.routes[0].suppression.id == accepted.skipped[0].suppression_id
        with pytest.raises(Rejected) as problem:
            client.send("order_confirmed", channel="sms", recipient=number, synchronous=True)
        assert problem.value.problem["skipped"][0]["kind"] == "invalid"
    words = ["send", "order_confirmed", "--channel", "sms", "--to", number]
    sent = run_carillon([*words, "--url", listo.address, "--token", bearer])
    assert "skipped" in sent.stdout
    assert "the address is suppressed (invalid) until 2" in " ".join(sent.stdout.split())


def test_operators_hear_of_it(listo: Listo) -> None:
    number = vendors.phone()
    refused_for(listo, ACME, number)
    sent = listo.sent("order_confirmed", "sms", recipient=number, headers=ACME)
    program = listo.programs[-1]
    line = program.wait_for("route_suppressed", lambda each: each["notification_id"] == sent)
    assert (line["level"], line["kind"], line["tenant_id"]) == ("warning", "invalid", "acme")
    assert {each["kind"] for each in program.events("address_suppressed")} >= {"invalid"}
    recent = listo.client.get("/api/v1/console/overview", OPERATOR).body["recent"]
    assert [each["kind"] for each in recent if each.get("notification_id") == sent] == ["invalid"]


def test_a_complaint_and_an_unsubscribe_are_the_tenants_own(listo: Listo) -> None:
    for kind, word in (("spamreport", "complained"), ("unsubscribe", "unsubscribed")):
        address = vendors.email()
        message = mailed(listo, address)
        assert vendors.sendgrid(listo, vendors.event(kind, message, email=address)).status == 200
        # The callback was answered: it is written down.
        (seen,) = listed(listo, ACME, address=address)
        assert (seen["tenantId"], seen["kind"], seen["expiresAt"]) == ("acme", word, None)
        # Another person with the same address: the first has the channel off by now.
        assert listo.send(recipient=address, userId="another", headers=ACME).body["status"] == "skipped"
        assert listo.send(recipient=address, headers=GLOBEX).body["status"] == "queued"


def mailed(listo: Listo, address: str) -> str:
    """The vendor's id of a mail of acme to somebody of this address."""
    one = listo.sent("order_confirmed", "email", recipient=address, userId=address, headers=ACME)
    return str(listo.until(one, "delivered", headers=ACME)["providerMessageIds"][-1])


def bounce_twice(listo: Listo, address: str) -> None:
    """Two mails of acme bounce hard, whichever provider carries them."""
    for _ in range(2):
        message = mailed(listo, address)
        reply = vendors.sendgrid(listo, vendors.event("bounce", message, email=address, type="bounce"))
        assert reply.status == 200


def test_bounces_are_not_shared(listo: Listo) -> None:
    address = vendors.email()
    bounce_twice(listo, address)
    wait_until(lambda: bool(listed(listo, ACME, address=address)), timeout=20, what="the suppression")
    assert [each["tenantId"] for each in listed(listo, OPERATOR, address=address)] == ["acme"]
    assert listo.send(recipient=address, headers=GLOBEX).body["status"] == "queued"


def test_a_dead_letter_of_a_suppressed_address_stays(listo: Listo) -> None:
    number = vendors.phone()
    one = refused_for(listo, ACME, number)
    route_id = listo.story(one, ACME)["routes"][0]["routeId"]
    body = {"items": [{"notificationId": one, "routeId": route_id}]}
    assert listo.client.call("POST", "/api/v1/dead-letters/redrive", body, ACME).body == {
        "redriven": 0,
        "suppressed": 1,
    }
    override = {**ACME, "X-Admin-Override": "true"}
    by_hand = {"reason": "asked"}
    reply = listo.client.call("POST", f"/api/v1/admin/notifications/{one}/retry", by_hand, override)
    assert (reply.status, reply.body["error"]["code"]) == (409, "NOT_RETRYABLE")
    assert "lift the suppression" in reply.body["error"]["message"]
    named = {"reason": "asked", "dryRun": True, "items": body["items"]}
    counted = listo.client.call("POST", "/api/v1/admin/redrive", named, override).body
    assert (counted["matched"], counted["suppressed"]) == (1, 1)
    (seen,) = listed(listo, ACME, address=number)
    listo.client.call("DELETE", f"{PATH}/{seen['id']}", None, ACME)
    assert listo.client.call("POST", "/api/v1/dead-letters/redrive", body, ACME).body == {"redriven": 1}
    listo.until(one, "delivered", headers=ACME)
