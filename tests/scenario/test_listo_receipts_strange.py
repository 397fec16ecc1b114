"""Callbacks no vendor would send: signed or not, nothing of them is an error of ours."""

import time
from typing import Any

import pytest

from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import sign_x_webhook
from tests.support import listo_callbacks as vendors
from tests.support import twilio_stub
from tests.support.listo_stand import ACS_WEBHOOK_SECRET, DOWN, FCM_WEBHOOK_SECRET, Listo, shared_fixture

listo = shared_fixture()

BODIES = {
    "empty": b"",
    "nul": b"\x00",
    "no text": b"\xff\xfe\xfd",
    "half": b'[{"event":',
    "null": b"null",
    "number": b"1e999",
    "deep": b"[" * 20_000,
    "a list of lists": b"[[[]]]",
    "wrong types": b'[{"event": {}, "sg_message_id": [], "timestamp": "x"}]',
    "no ids": b'[{"event": "delivered"}, {"status": "delivered"}, {"eventType": "x", "data": {}}]',
    "surrogates": b'[{"event": "delivered", "sg_message_id": "\\ud800", "sg_event_id": "\\u0000"}]',
    "large numbers": b'[{"event": "open", "sg_message_id": "a", "timestamp": 99999999999999999999}]',
    "a form": b"MessageSid=%00&MessageStatus=%ff&MessageSid=x",
}
PATHS = (vendors.TWILIO, vendors.SENDGRID, vendors.FCM, vendors.AZURE)


@pytest.mark.req("S2-73", "S2-85", "S2-96")
@pytest.mark.parametrize("path", PATHS)
def test_without_proof_everything_is_refused_alike(listo: Listo, path: str) -> None:
    for body in BODIES.values():
        for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
            reply = vendors.post(listo, path, body, {"content-type": kind})
            if not body or kind == "application/json" or (path == vendors.TWILIO and kind != "text/plain"):
                assert (reply.status, reply.body["error"]["code"]) == (401, "CALLBACK_REFUSED")
            else:
                # Not even read: no vendor reports in this form.
                assert (reply.status, reply.body["error"]["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.req("S2-83")
@pytest.mark.parametrize("name", BODIES)
def test_with_proof_it_is_taken_for_what_it_is(listo: Listo, name: str) -> None:
    body, now = BODIES[name], int(time.time())
    before = len(listo.rows("SELECT * FROM routes"))
    assert vendors.post(listo, vendors.SENDGRID, body, listo.signer.headers(body, now)).status == 200
    signature = sign_x_webhook(Secret(FCM_WEBHOOK_SECRET), now, body)
    headers = {"x-webhook-timestamp": str(now), "x-webhook-signature": signature}
    assert vendors.post(listo, vendors.FCM, body, headers).status == 200
    assert vendors.post(listo, f"{vendors.AZURE}?secret={ACS_WEBHOOK_SECRET}", body, {}).status == 200
    assert len(listo.rows("SELECT * FROM routes")) == before
    assert not [line for line in listo.programs[-1].lines if line["level"] == "error"]


def test_other_methods_and_paths_are_not_served(listo: Listo) -> None:
    for path in PATHS:
        assert listo.client.get(path).status == 405
    assert listo.client.call("POST", "/api/v1/webhooks/sns/sms-status", {}).status == 404


def test_strange_hosts_and_queries_are_no_errors(listo: Listo) -> None:
    headers, body = twilio_stub.signed(
        f"{listo.address}{vendors.TWILIO}", {"MessageSid": "SM1", "MessageStatus": "sent"}
    )
    for query in ("?", "?bodySHA256=", "?%ff=%00", "?" + "a=b&" * 300, "?message=%2F"):
        assert vendors.post(listo, f"{vendors.TWILIO}{query}", body, headers).status in {200, 401}


SPOILED = {"lone surrogate": "\ud800", "U+0000": "\x00", "both, and long": "\udfff\x00" * 400}


def spoiled_event(vendor: str, field: str, text: str) -> dict[str, Any]:
    """A vendor's event that is whole but for one field."""
    if vendor == "sendgrid":
        return {**vendors.event("bounce", "no-such-mail", type="bounce", reason="gone"), field: text}
    if vendor == "azure":
        event = vendors.azure_report("no-such-mail", "Bounced", deliveryStatusDetails={"statusMessage": "gone"})
        return {**event, field: text} if field in event else {**event, "data": {**event["data"], field: text}}
    report = {"messageId": "no-such-push", "status": "failed", "error": "UNREGISTERED", "deviceToken": "t"}
    return {**report, field: text}


FIELDS = {
    "sendgrid": (
        "useragent sg_message_id sg_event_id email reason response type bounce_classification event"
        " notificationId route url category"
    ),
    "azure": "id eventTime topic messageId recipient status deliveryStatusDetails deliveryAttemptTimeStamp sender",
    "fcm": "messageId deviceToken error status timestamp unknown",
}


@pytest.mark.req("S2-83")
@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("vendor", FIELDS)
def test_the_good_events_beside_a_bad_one_are_stored(listo: Listo, vendor: str, name: str) -> None:
    bad = [spoiled_event(vendor, field, SPOILED[name]) for field in FIELDS[vendor].split()]
    if vendor == "sendgrid":
        one, message = vendors.mailed(listo)
        reply = vendors.sendgrid(listo, *bad, vendors.event("delivered", message))
    elif vendor == "azure":
        # A mail that SendGrid refused, so that Azure carries it.
        listo.sendgrid.answer(*[DOWN] * 20)
        one, message = vendors.mailed(listo)
        listo.sendgrid.forget()
        reply = vendors.azure(listo, *bad, vendors.azure_report(message, "Delivered"))
    else:
        one, message = vendors.pushed(listo)
        reply = vendors.relay(listo, *bad, {"messageId": message, "status": "delivered"})
    assert reply.status == 200, reply
    vendors.until_route(listo, one, receipt="delivered")
    texts = [str(value) for row in listo.rows("SELECT * FROM receipts") for value in dict(row).values()]
    assert not [text for text in texts if "\x00" in text or not text.isprintable()]
    assert not [line for line in listo.programs[-1].lines if line["level"] == "error"]


@pytest.mark.req("S2-73")
@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("field", ["MessageSid", "SmsSid", "MessageStatus", "ErrorCode", "ErrorMessage", "To", "Other"])
def test_a_spoiled_report_of_twilio_is_no_error(listo: Listo, field: str, name: str) -> None:
    told = {"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": "30003", field: SPOILED[name]}
    form = {key: value.replace("\ud800", "").replace("\udfff", "") for key, value in told.items()}
    headers, body = twilio_stub.signed(f"{listo.address}{vendors.TWILIO}", form)
    assert vendors.post(listo, vendors.TWILIO, body, headers).status == 200
    url, headers, body = twilio_stub.signed_json(f"{listo.address}{vendors.TWILIO}", told)
    assert vendors.post(listo, url.removeprefix(listo.address), body, headers).status == 200
    assert not [line for line in listo.programs[-1].lines if line["level"] == "error"]
