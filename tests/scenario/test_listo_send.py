"""The listo blueprint's send endpoint from outside: what it takes, what it answers, what it stores."""

import re
from typing import Any

import pytest

from tests.support.listo_stand import DEVICE, EMAIL, Listo, shared_fixture

listo = shared_fixture()

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.mark.req("S2-06", "S2-12")
def test_scenario_three_is_accepted(listo: Listo) -> None:
    reply = listo.send("order_confirmed", "email", priority="normal")
    assert reply.status == 202
    assert reply.body == {
        "notificationId": reply.body["notificationId"],
        "status": "queued",
        "queueName": "listo-notifications-queue",
    }
    assert UUID.fullmatch(reply.body["notificationId"])
    listo.until(reply.body["notificationId"], "delivered")


@pytest.mark.req("S2-12")
def test_any_opaque_string_is_taken_for_an_id(listo: Listo) -> None:
    reply = listo.client.get("/api/v1/notifications/notif-123")
    assert (reply.status, reply.body["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.req("S2-01")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"templateKey": "driver_assigned", "priority": "high", "synchronous": True, "channel": "push"}, 200),
        ({"templateKey": "driver_assigned", "synchronous": True}, 200),
        ({"templateKey": "order_confirmed", "priority": "normal", "channel": "email"}, 202),
    ],
)
def test_the_scenarios_bodies_need_nothing_but_a_recipient(listo: Listo, body: dict[str, Any], status: int) -> None:
    recipient = EMAIL if body.get("channel") == "email" else DEVICE
    reply = listo.client.call("POST", "/api/v1/notifications/send", {**body, "recipient": recipient})
    assert reply.status == status, reply


@pytest.mark.req("S2-02", "S2-112")
def test_every_field_is_kept(listo: Listo) -> None:
    given: dict[str, Any] = {
        "userId": "user-7",
        "tenantId": "tenant-1",
        "serviceOrigin": "orders",
        "data": {"order": "A-1"},
        "isBulk": True,
        "locale": "es-MX",
        "metadata": {"campaign": "spring"},
        "scheduledFor": "2020-01-01T00:00:00.000Z",
        "correlationId": "corr-1",
    }
    read = listo.until(listo.sent(**given), "delivered")
    assert {name: read[name] for name in given} == given
    assert (read["recipient"], read["templateKey"], read["channel"]) == (EMAIL, "order_confirmed", "email")
    assert read["routes"][0]["message"]["subject"] == "Tu pedido está confirmado"


@pytest.mark.req("S2-02")
def test_variables_is_another_name_for_data_and_system_the_default_origin(listo: Listo) -> None:
    read = listo.until(listo.sent("newsletter", variables={"title": "News", "text": "Enough."}), "delivered")
    assert (read["data"], read["serviceOrigin"]) == ({"title": "News", "text": "Enough."}, "system")


@pytest.mark.req("S2-03")
def test_the_channel_may_be_left_out_where_the_template_has_one(listo: Listo) -> None:
    reply = listo.send("driver_assigned", None, recipient=DEVICE)
    assert listo.story(reply.body["notificationId"])["channel"] == "push"
    refused = listo.send("order_confirmed", None, recipient=EMAIL)
    assert (refused.status, refused.body["error"]["code"]) == (400, "CHANNEL_REQUIRED")


@pytest.mark.req("S2-05")
@pytest.mark.parametrize(
    ("channel", "recipient"),
    [("sms", "4155550100"), ("sms", "+0123"), ("email", "ada"), ("email", "a@b@c.d"), ("push", ""), ("push", "a b")],
)
def test_a_recipient_that_cannot_be_reached_is_refused(listo: Listo, channel: str, recipient: str) -> None:
    reply = listo.send("order_confirmed", channel, recipient=recipient)
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert reply.body["error"]["details"][0]["field"] == "recipient"


@pytest.mark.req("S2-11", "S2-10")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"channel": "pigeon"}, "channel"),
        ({"priority": "urgent"}, "priority"),
        ({"synchronous": "yes"}, "synchronous"),
        ({"data": []}, "data"),
        ({"templateKey": "No Key"}, "templateKey"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_is_wrong_is_named(listo: Listo, fields: dict[str, Any], field: str) -> None:
    body = {"templateKey": "order_confirmed", "channel": "email", "recipient": EMAIL, **fields}
    reply = listo.client.call("POST", "/api/v1/notifications/send", body)
    assert reply.status == 400
    error = reply.body["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert error["details"][0]["field"] == field
    assert error.keys() >= {"code", "message", "details", "timestamp", "traceId"}


@pytest.mark.req("S2-11")
def test_what_is_no_json_is_refused(listo: Listo) -> None:
    reply = listo.client.call("POST", "/api/v1/notifications/send", b'{"templateKey":')
    assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")


@pytest.mark.req("S2-13")
def test_a_key_is_good_for_one_notification_of_its_origin(listo: Listo) -> None:
    headers = {"X-Idempotency-Key": "order-77"}
    first = listo.send(headers=headers, data={"n": 1})
    again = listo.send(headers=headers, data={"n": 1})
    assert (again.status, again.body) == (202, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    other = listo.send(headers=headers, data={"n": 2})
    assert (other.status, other.body["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    elsewhere = listo.send(headers=headers, data={"n": 1}, serviceOrigin="orders")
    assert elsewhere.body["notificationId"] != first.body["notificationId"]
    listo.until(first.body["notificationId"], "delivered")
    mails = [entry for entry in listo.calls("SendGrid") if first.body["notificationId"] in entry["body"]]
    assert len(mails) == 1


@pytest.mark.req("S2-13")
def test_a_key_lasts_a_day(listo: Listo) -> None:
    listo.sent(headers={"X-Idempotency-Key": "for-a-day"})
    (row,) = listo.rows("SELECT accepted_at, idempotency_expires_at FROM records WHERE idempotency_key = 'for-a-day'")
    lasts = row["idempotency_expires_at"] - row["accepted_at"]
    assert (lasts / 1000 if isinstance(lasts, int) else lasts.total_seconds()) == pytest.approx(86_400, abs=1)


@pytest.mark.req("S2-14")
def test_a_correlation_id_is_echoed_or_made(listo: Listo) -> None:
    given = listo.send(headers={"X-Correlation-Id": "trip-42"})
    assert given.headers["x-correlation-id"] == "trip-42"
    assert listo.story(given.body["notificationId"])["correlationId"] == "trip-42"
    assert len(listo.send().headers["x-correlation-id"]) >= 16


@pytest.mark.req("S2-99", "S2-30")
def test_what_cannot_be_rendered_is_not_queued(listo: Listo) -> None:
    before = listo.client.get("/api/v1/notifications?pageSize=1").body["totalCount"]
    assert listo.send("no_such_template").status == 404
    assert listo.send("newsletter", data={"title": "only"}).body["error"]["code"] == "TEMPLATE_RENDER_ERROR"
    assert listo.client.get("/api/v1/notifications?pageSize=1").body["totalCount"] == before


@pytest.mark.req("S2-50", "S2-51", "S2-52", "S2-53", "S2-54", "S2-55", "S2-56", "S2-30", "S2-66")
@pytest.mark.parametrize(("channel", "provider"), [("sms", "Twilio"), ("email", "SendGrid"), ("push", "FCM")])
def test_each_channel_goes_to_its_primary(listo: Listo, channel: str, provider: str) -> None:
    addresses = {"sms": "+14155550111", "email": "one@example.org", "push": "device-token-for-primary"}
    read = listo.until(listo.sent("order_confirmed", channel, recipient=addresses[channel]), "delivered")
    assert read["providerNames"] == [provider]
    assert read["providerMessageIds"][0]
    assert (read["attemptCount"], len(read["routes"][0]["attempts"])) == (1, 1)
    if channel == "email":
        assert read["id"] in listo.calls("SendGrid", "one@example.org")[0]["body"]


@pytest.mark.req("S2-04", "S2-52")
def test_the_inbox_has_what_the_application_reads(listo: Listo) -> None:
    read = listo.until(listo.sent("order_confirmed", "inApp", userId="user-in-app"), "delivered")
    assert (read["channel"], read["providerNames"]) == ("inApp", ["inbox"])
    found = listo.client.get("/api/v1/notifications?channel=inApp&userId=user-in-app&include=message").body
    assert found["items"][0]["routes"][0]["message"]["text"] == "We are preparing your order."


@pytest.mark.req("S2-137", "S2-101", "S2-102", "S2-103")
def test_scenario_five(listo: Listo) -> None:
    spanish = listo.sent(headers={"Accept-Language": "es-MX, en-US;q=0.9"})
    read = listo.until(spanish, "delivered")
    assert (read["locale"], read["routes"][0]["message"]["subject"]) == ("es-MX", "Tu pedido está confirmado")
    missing = listo.send(headers={"Accept-Language": "fr-FR, en-US;q=0.9"})
    assert (missing.status, missing.body["error"]["code"]) == (404, "TEMPLATE_NOT_FOUND")
    assert missing.body["error"]["message"] == "Template order_confirmed not found for locale fr-FR"
