"""What the document of the listo blueprint says, seen as its author would look for it."""

import json
import time
from typing import Any

import pytest
from redis import Redis
from standardwebhooks import Webhook

from tests.support import listo_callbacks as vendors
from tests.support import sendgrid_stub, sns_stub, twilio_stub
from tests.support.fcm_stub import fcm_error
from tests.support.listo_stand import DOWN, EMAIL, Listo, stand_fixture, token
from tests.support.smtp import SmtpServer
from tests.support.vendor import Vendor
from tests.support.waiting import wait_until

listo = stand_fixture(start=False)

INVALID = {
    "sms": (twilio_stub.error(21211, "Invalid 'To' Phone Number"), ["Twilio", "AWS_SNS"]),
    "email": (sendgrid_stub.complaint(400, "Does not contain a valid address."), ["SendGrid", "AZURE_ACS"]),
}
ON_LOOPBACK = 'allow_http = true\nallow_networks = ["127.0.0.0/8"]\nallow_ports = ["1024-65535"]'
SUPPRESSIONS = "SELECT channel, kind FROM suppressions"


def providers(story: Any) -> list[str]:
    return [each["provider"] for each in story["routes"][0]["attempts"]]


def primary(listo: Listo, channel: str) -> Any:
    return {"sms": listo.twilio, "email": listo.sendgrid, "push": listo.fcm}[channel]


@pytest.mark.req("S2-49", "X2-1")
@pytest.mark.parametrize("channel", ["sms", "email"])
def test_an_address_that_the_primary_calls_invalid_goes_to_the_secondary(listo: Listo, channel: str) -> None:
    listo.start()
    refusal, chain = INVALID[channel]
    primary(listo, channel).answer(refusal)
    first = listo.until(listo.sent("order_confirmed", channel), "delivered")
    assert providers(first) == chain
    assert first["routes"][0]["attempts"][0]["outcome"] == "refused"
    assert listo.rows(SUPPRESSIONS) == []
    # The second message to the same address is not skipped.
    assert providers(listo.until(listo.sent("order_confirmed", channel), "delivered")) == chain[:1]


@pytest.mark.req("S2-49", "X2-1")
def test_only_when_the_secondary_says_so_too_the_number_is_suppressed(listo: Listo) -> None:
    listo.start()
    number = "+15005550001"
    listo.sns.answer(sns_stub.error("InvalidParameter", "Invalid parameter: PhoneNumber Reason: it is not valid"))
    story = listo.until(listo.sent("order_confirmed", "sms", recipient=number), "failed")
    assert providers(story) == ["Twilio", "AWS_SNS"]
    assert [(row["channel"], row["kind"]) for row in listo.rows(SUPPRESSIONS)] == [("sms", "invalid")]
    again = listo.send("order_confirmed", "sms", recipient=number)
    assert (again.status, again.body["status"]) == (202, "skipped")
    assert len(listo.calls("Twilio")) == 1


@pytest.mark.req("S2-49", "X2-1")
def test_a_token_that_fcm_calls_invalid_is_suppressed_as_there_is_no_secondary(listo: Listo) -> None:
    listo.start()
    listo.fcm.answer(fcm_error("UNREGISTERED"), path="/v1/")
    story = listo.until(listo.sent("order_confirmed", "push"), "failed")
    assert (providers(story), len(listo.calls("FCM"))) == (["FCM"], 1)
    assert [(row["channel"], row["kind"]) for row in listo.rows(SUPPRESSIONS)] == [("push", "invalid")]
    # Another person's device is asked for as before.
    assert providers(listo.until(listo.sent("order_confirmed", "push", recipient=vendors.device()), "delivered")) == [
        "FCM"
    ]


@pytest.mark.req("S2-49", "X2-1")
def test_the_policy_forbids_it_by_class_and_a_person_who_opted_out_is_never_asked_again(listo: Listo) -> None:
    settings = listo.folder / "listo.toml"
    forbidding = '[policy.retry."orders/sms"]\nmax_attempts = 4\nno_failover_for = ["invalid_number", "opted_out"]\n'
    settings.write_text(f"{settings.read_text()}\n{forbidding}")
    listo.start()
    listo.twilio.answer(twilio_stub.error(21211), twilio_stub.error(21610))
    forbidden = listo.sent("order_confirmed", "sms", serviceOrigin="orders", recipient=vendors.phone())
    assert providers(listo.until(forbidden, "failed")) == ["Twilio"]
    opted_out = listo.sent("order_confirmed", "sms", recipient=vendors.phone())
    assert providers(listo.until(opted_out, "failed")) == ["Twilio"]
    assert listo.calls("AWS_SNS") == []
    assert sorted(row["kind"] for row in listo.rows(SUPPRESSIONS)) == ["invalid", "unsubscribed"]


@pytest.mark.req("X2-1")
def test_a_report_of_an_opt_out_is_final_and_one_of_a_dead_number_fails_over(listo: Listo) -> None:
    listo.start()
    gone, gone_sid = vendors.texted(listo)
    said_no, no_sid = vendors.texted(listo)
    assert vendors.twilio(listo, no_sid, "failed", ErrorCode="21610").status == 200
    listo.until(said_no, "failed")
    assert vendors.twilio(listo, gone_sid, "failed", ErrorCode="21211").status == 200
    assert providers(listo.until(gone, "delivered")) == ["Twilio", "AWS_SNS"]
    assert [row["kind"] for row in listo.rows(SUPPRESSIONS)] == ["unsubscribed"]


@pytest.mark.req("S2-49", "X2-1")
def test_a_synchronous_refusal_suppresses_nothing_while_a_secondary_is_left(listo: Listo) -> None:
    listo.start()
    listo.twilio.answer(twilio_stub.error(21211))
    reply = listo.send("login_otp", "sms", data={"code": "1"})
    assert (reply.status, reply.body["error"]["code"]) == (502, "DELIVERY_FAILED")
    assert listo.calls("AWS_SNS") == []
    assert listo.rows(SUPPRESSIONS) == []
    assert listo.send("login_otp", "sms", data={"code": "2"}).status == 200


@pytest.mark.req("S2-76")
def test_a_vendors_words_are_the_status(listo: Listo) -> None:
    listo.start()
    one, sid = vendors.texted(listo)
    other, _ = vendors.texted(listo)
    shown = []
    words = ("queued", "accepted", "scheduled", "sending", "sent", "accepted", "scheduled", "sending", "queued")
    for status in (*words, "delivered", "sent", "queued", "scheduled"):
        assert vendors.twilio(listo, sid, status).status == 200
        story = listo.story(one)
        shown.append(story["status"])
        assert (story["deliveredAt"] is not None) == (story["status"] == "delivered")
        found = listo.client.get(f"/api/v1/notifications?status={story['status']}").body["items"]
        assert one in [item["id"] for item in found]
        (row,) = [row for row in listo.rows('SELECT * FROM "NotificationQueue"') if row["Id"] == one]
        assert row["Status"] == story["status"]
    assert shown == ["queued"] * 4 + ["sent"] * 5 + ["delivered"] * 4
    # Nobody reported on the second message.
    assert listo.story(other)["status"] == "delivered"


@pytest.mark.req("X2-2")
def test_strict_receipts_hold_for_synchronous_sends(listo: Listo) -> None:
    listo.start(CARILLON_STRICT_RECEIPTS="true")
    key = {"X-Idempotency-Key": "otp-1"}
    reply = listo.send("login_otp", "sms", data={"code": "1"}, headers=key)
    assert (reply.status, reply.body["status"]) == (200, "sent")
    assert reply.body["sentAt"].endswith("Z")
    assert "deliveredAt" not in reply.body
    one = reply.body["notificationId"]
    assert listo.story(one)["status"] == "sent"
    assert listo.send("login_otp", "sms", data={"code": "1"}, headers=key).body == reply.body
    assert vendors.twilio(listo, reply.body["providerMessageId"], "delivered").status == 200
    again = listo.send("login_otp", "sms", data={"code": "1"}, headers=key)
    assert again.body["status"] == listo.story(one)["status"] == "delivered"
    assert again.body["deliveredAt"] == listo.story(one)["deliveredAt"]


@pytest.mark.req("X2-3", "S2-105")
def test_a_supported_language_without_a_template_stops_the_deployment(listo: Listo) -> None:
    listo.add_template("farewell", "email", "Good bye.", "en-US")
    refused = listo.launch()
    assert refused.wait() == 2
    assert "templates.strict: these templates are missing: farewell/es-MX/email" in refused.tail()
    listo.start(CARILLON_TEMPLATES__STRICT="false")
    assert listo.send("farewell").status == 202
    assert listo.send("farewell", locale="es-MX").body["error"]["code"] == "TEMPLATE_NOT_FOUND"


@pytest.mark.req("X2-4", "S2-63")
def test_used_up_retries_open_the_primarys_circuit(listo: Listo) -> None:
    # A health check would find SendGrid healthy and let a message probe it early.
    long = {"CARILLON_POLICY__BREAKER__SENDGRID__OPEN_SECONDS": "60000", "CARILLON_PROBING__INTERVAL_SECONDS": "60000"}
    listo.start(**long)
    listo.start(**long)
    listo.sendgrid.answer(DOWN, DOWN)
    first = listo.until(listo.sent(), "delivered")
    assert providers(first) == ["SendGrid", "SendGrid", "AZURE_ACS"]
    # SendGrid is healthy again, and two failures are fewer than its threshold; both processes know.
    time.sleep(0.5)  # how long a process may believe what it saw last
    later = [listo.until(listo.sent(recipient=vendors.email()), "delivered") for _ in range(4)]
    assert [providers(story) for story in later] == [["AZURE_ACS"]] * 4
    states = {each["provider"]: each["state"] for each in listo.client.get("/api/v1/admin/providers").body["items"]}
    assert (states["SendGrid"], states["AZURE_ACS"], states["Twilio"]) == ("open", "closed", "closed")


@pytest.mark.req("X2-4")
def test_a_channel_without_a_secondary_keeps_its_circuit_closed(listo: Listo) -> None:
    listo.start()
    listo.fcm.answer(*[DOWN] * 3, path="/v1/")
    listo.until(listo.sent("order_confirmed", "push", serviceOrigin="orders"), "failed")
    listo.until(listo.sent("order_confirmed", "push", recipient=vendors.device()), "delivered")


@pytest.mark.req("X2-7")
def test_a_push_carries_its_id_and_its_priority(listo: Listo) -> None:
    listo.start()
    for priority, android, apns in (("high", "HIGH", "10"), ("normal", "NORMAL", "5"), ("low", "NORMAL", "5")):
        one = listo.sent("order_confirmed", "push", priority=priority)
        listo.until(one, "delivered")
        (call,) = listo.calls("FCM", one)
        message = json.loads(call["body"])["message"]
        assert message["data"]["notification_id"] == one
        assert message["android"]["priority"] == android
        assert message["apns"]["headers"]["apns-priority"] == apns
    at_once: list[tuple[dict[str, Any], str]] = [({}, "NORMAL"), ({"priority": "high", "synchronous": True}, "HIGH")]
    for fields, android in at_once:
        now = listo.send("driver_assigned", "push", **fields)
        assert now.status == 200, now
        (call,) = listo.calls("FCM", now.body["notificationId"])
        assert json.loads(call["body"])["message"]["android"]["priority"] == android


@pytest.mark.req("X2-8", "S2-69", "S2-130")
def test_every_call_counts_over_an_administrators_retries(listo: Listo, redis_url: str) -> None:
    listo.start(REDIS_URL=redis_url)
    one = listo.sent("order_confirmed", "push", serviceOrigin="orders")
    two = listo.sent("order_confirmed", "push", recipient=vendors.device())
    listo.until(two, "delivered")
    counted = [listo.until(one, "delivered")["attemptCount"]]
    listo.fcm.answer(*[DOWN] * 6, path="/v1/")
    failing = listo.sent("order_confirmed", "push", serviceOrigin="orders")
    counted.append(listo.until(failing, "failed")["attemptCount"])
    retry(listo, failing)
    wait_until(lambda: calls_of(listo, failing) == (6, "failed"), timeout=40, what="six calls")
    counted.append(listo.story(failing)["attemptCount"])
    retry(listo, failing)
    counted.append(listo.until(failing, "delivered")["attemptCount"])
    assert counted == [1, 3, 6, 7]
    (row,) = [row for row in listo.rows('SELECT * FROM "NotificationQueue"') if row["Id"] == failing]
    assert row["AttemptCount"] == 7
    assert listo.story(two)["attemptCount"] == 1
    with Redis.from_url(redis_url, decode_responses=True) as client:
        wait_until(lambda: client.xlen("listo-notifications-alerts") == 2, timeout=40, what="two alerts")
        entries: Any = client.xrange("listo-notifications-alerts")
    alerts = [json.loads(fields["event"]) for _, fields in entries]
    assert [alert["attemptCount"] for alert in alerts] == [3, 6]


def calls_of(listo: Listo, notification_id: str) -> tuple[int, str]:
    story = listo.story(notification_id)
    return len(story["routes"][0]["attempts"]), story["status"]


def retry(listo: Listo, notification_id: str) -> None:
    reply = listo.client.call(
        "POST",
        f"/api/v1/admin/notifications/{notification_id}/retry",
        {"reason": "Customer escalation"},
        {"X-Admin-Override": "true", **token(role="admin")},
    )
    assert reply.status == 200, reply


@pytest.mark.req("X2-5")
def test_the_mail_server_and_the_secret_of_webhooks_come_from_the_usual_variables(listo: Listo) -> None:
    with SmtpServer(tls=False, credentials=None) as server, Vendor(listo.folder / "hook.jsonl") as receiver:
        listo.add_template("order_confirmed", "webhook", "Your order is confirmed.")
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        settings = listo.folder / "listo.toml"
        settings.write_text(f"{settings.read_text()}\n[providers.webhook]\n{ON_LOOPBACK}\n")
        listo.start(
            SMTP_URL=server.url,
            WEBHOOK_SIGNING_SECRET=secret,
            CARILLON_CHANNELS__EMAIL="smtp",
            CARILLON_CHANNELS__WEBHOOK="webhook",
        )
        mailed = listo.until(listo.sent(), "delivered")
        assert (mailed["providerNames"], [mail.recipients for mail in server.mails]) == (["smtp"], [(EMAIL,)])
        assert listo.calls("SendGrid") == []
        called = listo.sent("order_confirmed", "webhook", recipient=f"{receiver.url}/hook")
        listo.until(called, "delivered")
        (entry,) = receiver.entries
        Webhook(secret).verify(entry["body"], entry["headers"])
