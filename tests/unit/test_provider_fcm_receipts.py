"""The reports of the operator's relay about pushes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import Forged
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptKind
from carillon.providers.fcm.receipts import MAX_BODY, MAX_REPORTS, FcmReceipts, reader
from carillon.providers.fcm.send import Settings
from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import sign_x_webhook
from tests.support.fcm_stub import PROJECT, service_account

NOW = 1_700_000_000
RELAY = Secret("relay-secret")
URL = "https://carillon.example/api/v1/webhooks/fcm/delivery-status"
NAME = f"projects/{PROJECT}/messages/0:1%31"


def relay(secret: Secret | None = RELAY, **settings: Any) -> FcmReceipts:
    return reader("fcm", Settings(webhook_secret=secret, project_id=PROJECT, **settings), lambda: NOW)


def signed(body: bytes, secret: Secret = RELAY, stamp: int = NOW) -> dict[str, str]:
    return {"x-webhook-timestamp": str(stamp), "x-webhook-signature": sign_x_webhook(secret, stamp, body)}


def read(content: object, **settings: Any) -> CallbackReading:
    body = json.dumps(content).encode()
    return relay(**settings).read(URL, signed(body), body)


@pytest.mark.req("S2-95")
def test_a_delivery_is_a_delivery() -> None:
    report = {"messageId": NAME, "status": "delivered", "deviceToken": "tok", "timestamp": "2023-11-14T22:13:20.5Z"}
    assert read(report) == CallbackReading(
        (
            Receipt(
                provider="fcm",
                kind=ReceiptKind.DELIVERED,
                provider_message_id=NAME,
                address="tok",
                occurred_at_ms=1_700_000_000_500,
            ),
        )
    )


@pytest.mark.req("S2-95")
@pytest.mark.parametrize(
    ("error", "classification", "gone"),
    [
        ("UNREGISTERED", "unregistered", True),
        ("NotRegistered", "unregistered", True),
        ("UNAVAILABLE", "vendor_unavailable", False),
        ("no network at tok", "failed", False),
        (None, "failed", False),
    ],
)
def test_a_failure_says_why(error: str | None, classification: str, *, gone: bool) -> None:
    report = {"messageId": NAME, "status": "failed", "deviceToken": "tok", "error": error, "timestamp": 1_700_000_000}
    [receipt] = read(report).receipts
    assert (receipt.kind, receipt.classification, receipt.recipient_gone) == (ReceiptKind.FAILED, classification, gone)
    assert receipt.reason == (error.replace("tok", "***") if error else None)


def test_an_app_knows_only_the_end_of_the_id(tmp_path: Path) -> None:
    report = {"messageId": "0:1%31", "status": "delivered", "timestamp": 1}
    assert read(report).receipts[0].provider_message_id == NAME
    path = tmp_path / "key.json"
    path.write_text(json.dumps(service_account("https://oauth2.googleapis.com/token")))
    body = json.dumps(report).encode()
    for settings, name in (
        (Settings(webhook_secret=RELAY, credentials_file=str(path)), NAME),
        (Settings(webhook_secret=RELAY, server_key=Secret("k")), "0:1%31"),
        (Settings(webhook_secret=RELAY, api="legacy", server_key=Secret("k"), project_id=PROJECT), "0:1%31"),
    ):
        reading = reader("fcm", settings, lambda: NOW).read(URL, signed(body), body)
        assert reading.receipts[0].provider_message_id == name


def test_only_the_relay_is_believed_and_without_a_secret_nobody() -> None:
    body = json.dumps({"messageId": NAME, "status": "delivered", "timestamp": NOW}).encode()
    open_to_all, guarded = relay(None), relay(RELAY)
    for headers in ({}, signed(body)):
        with pytest.raises(Forged, match="no webhook_secret"):
            open_to_all.read(URL, headers, body)
    assert guarded.read(URL, signed(body), body).receipts
    for headers, content in (
        ({}, body),
        (signed(body, Secret("another")), body),
        (signed(body), body.replace(b"delivered", b"failed")),
        (signed(body, stamp=NOW - 301), body),
        (signed(body, stamp=NOW + 301), body),
        (signed(body) | {"x-webhook-timestamp": str(NOW - 1)}, body),
        (signed(body) | {"x-webhook-signature": ""}, body),
        # What is not signed is not even parsed.
        ({}, b"not json"),
    ):
        with pytest.raises(Forged):
            guarded.read(URL, headers, content)


def test_the_event_is_recognised_by_the_relays_id() -> None:
    report = {"messageId": NAME, "status": "delivered", "timestamp": NOW}
    headers = {"x-webhook-event-id": "evt_1"}
    body = json.dumps(report).encode()
    [receipt] = relay().read(URL, headers | signed(body), body).receipts
    assert receipt.event_id == "evt_1"
    body = json.dumps([report, report]).encode()
    several = relay().read(URL, headers | signed(body), body).receipts
    assert [receipt.event_id for receipt in several] == [None, None]


def test_one_bad_report_does_not_drop_the_others() -> None:
    good = {"messageId": NAME, "status": "DELIVERED", "timestamp": NOW, "unheard": {"of": 1}}
    bad: list[Any] = [7, {}, {**good, "status": "lost"}, {**good, "messageId": ""}, {**good, "messageId": "x" * 501}]
    reading = read([good, *bad, good])
    assert len(reading.receipts) == 2
    assert [line.split(":")[0] for line in reading.unread] == [f"report {number}" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("stamp", "milliseconds"),
    [
        (NOW, NOW * 1000),
        (NOW + 0.25, NOW * 1000 + 250),
        (NOW * 1000, NOW * 1000),
        ("2023-11-14T22:13:20", NOW * 1000),
        ("2023-11-14T23:13:20+01:00", NOW * 1000),
        ("yesterday", None),
        (-1, None),
        (1e300, None),
        (None, None),
    ],
)
def test_a_time_in_whichever_form(stamp: Any, milliseconds: int | None) -> None:
    [receipt] = read({"messageId": NAME, "status": "delivered", "timestamp": stamp}).receipts
    assert receipt.occurred_at_ms == milliseconds


def test_a_flood_is_bounded() -> None:
    with pytest.raises(Forged):
        relay().read(URL, {}, b" " * (MAX_BODY + 1))
    reading = read([{"messageId": "1", "status": "failed"}] * (MAX_REPORTS + 1))
    assert len(reading.receipts) == MAX_REPORTS
    assert len(reading.unread) == 1


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda it: json.dumps(it).encode()))
def test_whatever_comes_is_read_or_not(body: bytes) -> None:
    reading = relay().read(URL, signed(body), body)
    assert not reading.receipts
    assert all(line.isprintable() for line in reading.unread)
