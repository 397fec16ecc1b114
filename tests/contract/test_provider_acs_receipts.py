"""Azure's delivery reports through Event Grid: who is believed, and what the reports become."""

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from carillon.domain.errors import Forged
from carillon.domain.ports import ReceiptReader
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptKind
from carillon.providers.acs.receipts import reader
from carillon.providers.acs.send import Settings, operation_id
from carillon.providers.mail import read_each
from carillon.providers.tools import Secret
from tests.support.acs_stub import ACCESS_KEY, delivery_report, handshake

SECRET = "a shared secret/with=odd&letters"
URL = f"https://us.example/receipts/AZURE_ACS?secret={quote(SECRET, safe='')}"
BARE_URL = "https://us.example/receipts/AZURE_ACS"
MESSAGE = operation_id("0191f0a0-0000-7000-8000-000000000001/email:ada@example.com")


def make(secret: str | None = SECRET) -> ReceiptReader:
    given = Settings(
        endpoint="https://r.example",
        access_key=Secret(ACCESS_KEY),
        sender="a@b.example",
        webhook_secret=None if secret is None else Secret(secret),
    )
    return reader("AZURE_ACS", given)


def read(*events: Any) -> CallbackReading:
    return make().read(URL, {"aeg-event-type": "Notification"}, json.dumps(events).encode())


def only(event: Any) -> Receipt:
    reading = read(event)
    assert not reading.unread
    assert reading.answer is None
    [receipt] = reading.receipts
    return receipt


def engagement(kind: str) -> dict[str, Any]:
    event = delivery_report(MESSAGE, "none")
    event["eventType"] = "Microsoft.Communication.EmailEngagementTrackingReportReceived"
    event["data"] = {
        "messageId": MESSAGE,
        "userActionTimeStamp": "2022-09-06T22:34:52.1303595+00:00",
        "engagementContext": "",
        "engagementType": kind,
    }
    return event


def test_a_report_becomes_a_receipt() -> None:
    details = {"statusMessage": "DestinationMailboxFull\r\n", "recipientMailServerHostName": "mx.example"}
    assert only(delivery_report(MESSAGE.upper(), "Failed", deliveryStatusDetails=details)) == Receipt(
        provider="AZURE_ACS",
        kind=ReceiptKind.FAILED,
        provider_message_id=MESSAGE,
        event_id="event-Failed",
        address="ada@example.com",
        occurred_at_ms=1_600_388_540_285,
        classification="failed",
        reason="DestinationMailboxFull",
    )


@pytest.mark.parametrize(
    ("status", "kind", "classification", "gone"),
    [
        ("Delivered", ReceiptKind.DELIVERED, None, False),
        ("Bounced", ReceiptKind.BOUNCED, "bounced", True),
        ("Suppressed", ReceiptKind.FAILED, "suppressed", True),
        ("FilteredSpam", ReceiptKind.FAILED, "filtered_spam", False),
        ("Quarantined", ReceiptKind.FAILED, "quarantined", False),
        ("Failed", ReceiptKind.FAILED, "failed", False),
        ("Expanded", ReceiptKind.SENT, "expanded", False),
        ("Whatever Comes", ReceiptKind.FAILED, "whatever_comes", False),
    ],
)
def test_every_status_has_a_meaning(status: str, kind: ReceiptKind, classification: str | None, *, gone: bool) -> None:
    receipt = only(delivery_report(MESSAGE, status))
    assert (receipt.kind, receipt.classification, receipt.recipient_gone) == (kind, classification, gone)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("view", ReceiptKind.OPENED), ("View", ReceiptKind.OPENED), ("click", ReceiptKind.CLICKED)],
)
def test_engagement(word: str, kind: ReceiptKind) -> None:
    receipt = only(engagement(word))
    assert (receipt.kind, receipt.provider_message_id) == (kind, MESSAGE)
    assert receipt.occurred_at_ms == 1_662_503_692_130


def test_details_may_be_plain_words() -> None:
    assert only(delivery_report(MESSAGE, "Failed", deliveryStatusDetails="no such host")).reason == "no such host"


@pytest.mark.parametrize("time", ["", "yesterday", "2020-13-01", None])
def test_a_time_that_is_none_is_left_out(time: str | None) -> None:
    event = delivery_report(MESSAGE, "Delivered", deliveryAttemptTimeStamp=time)
    event["eventTime"] = time
    assert only(event).occurred_at_ms is None


def test_the_handshake_is_answered() -> None:
    code = "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"
    body = json.dumps([handshake(code)]).encode()
    reading = make().read(URL, {"aeg-event-type": "SubscriptionValidation"}, body)
    assert reading == CallbackReading(answer={"validationResponse": code})


def test_a_stranger_is_not_greeted() -> None:
    body = json.dumps([handshake("code")]).encode()
    with pytest.raises(Forged):
        make().read(BARE_URL, {"aeg-event-type": "SubscriptionValidation"}, body)


@pytest.mark.parametrize("code", [None, "", 7, "x" * 201])
def test_a_handshake_without_a_code_gets_no_answer(code: Any) -> None:
    event = handshake("x")
    event["data"]["validationCode"] = code
    reading = read(event)
    assert reading.answer is None
    assert len(reading.unread) == 1


def test_the_secret_may_be_a_header() -> None:
    body = json.dumps([delivery_report(MESSAGE, "Delivered")]).encode()
    assert make().read(BARE_URL, {"x-webhook-secret": SECRET}, body).receipts


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (BARE_URL, {}),
        (f"{BARE_URL}?secret=", {}),
        (f"{BARE_URL}?secret=wrong", {}),
        (f"{BARE_URL}?Secret={quote(SECRET, safe='')}", {}),
        (f"{BARE_URL}?secret={quote(SECRET[:-1], safe='')}", {}),
        (f"{BARE_URL}?secret={quote(SECRET + 'x', safe='')}", {}),
        (f"{BARE_URL}#?secret={quote(SECRET, safe='')}", {}),
        (f"{BARE_URL}?secret=%ff%fe", {}),
        (f"{BARE_URL}?{'a=1&' * 100}secret={quote(SECRET, safe='')}", {}),
        ("https://[", {}),
        (BARE_URL, {"x-webhook-secret": ""}),
        (BARE_URL, {"x-webhook-secret": "wrong"}),
        (BARE_URL, {"x-webhook-secret": "\ud800é"}),
        (BARE_URL, {"aeg-event-type": SECRET}),
    ],
)
def test_without_the_secret_nothing_is_believed(url: str, headers: dict[str, str]) -> None:
    # Not even looked at: this body would be unread, not an error.
    for body in (b"not json", json.dumps([delivery_report(MESSAGE, "Delivered")]).encode()):
        with pytest.raises(Forged):
            make().read(url, headers, body)


def test_where_no_secret_is_configured_nothing_is_believed() -> None:
    for url in (URL, BARE_URL, f"{BARE_URL}?secret="):
        with pytest.raises(Forged, match="webhook_secret"):
            make(None).read(url, {"x-webhook-secret": ""}, b"[]")
    with pytest.raises(Forged):
        make("").read(f"{BARE_URL}?secret=", {"x-webhook-secret": ""}, b"[]")


def test_one_bad_event_does_not_drop_the_others() -> None:
    bad: list[Any] = [
        7,
        None,
        {},
        {"eventType": "Microsoft.Communication.EmailDeliveryReportReceived"},
        delivery_report(MESSAGE, "") | {"id": 3},
        delivery_report(MESSAGE, ""),
        delivery_report("", "Delivered"),
        delivery_report("x" * 201, "Delivered"),
        delivery_report(MESSAGE, "Delivered", recipient=4),
        delivery_report(MESSAGE, "Delivered") | {"eventType": "Microsoft.Communication.SMSReceived"},
        engagement("stare"),
    ]
    reading = read(delivery_report(MESSAGE, "Bounced"), *bad, delivery_report(MESSAGE, "Delivered"))
    assert [receipt.kind for receipt in reading.receipts] == [ReceiptKind.BOUNCED, ReceiptKind.DELIVERED]
    assert len(reading.unread) == len(bad)


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"\xff", b"null", b"[" * 5000])
def test_what_is_no_list_is_unread(body: bytes) -> None:
    reading = make().read(URL, {}, body)
    assert (reading.receipts, reading.answer, len(reading.unread)) == ((), None, 1)


def test_a_report_nested_too_deeply_for_its_reader_is_unread() -> None:
    def read_one(report: bytes) -> Receipt | None:
        if report == b"2":
            raise RecursionError("too deep")
        return None

    assert read_each(b"[1, 2, 3]", read_one) == ([], ["report 1: too deep"])


def test_a_callback_beyond_every_size_is_not_looked_at() -> None:
    with pytest.raises(Forged, match="larger"):
        make().read(URL, {}, b" " * (4 * 1024 * 1024 + 1))


def test_receipts_go_through_json() -> None:
    receipt = only(delivery_report(MESSAGE, "Bounced"))
    assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt
