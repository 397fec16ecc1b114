"""SendGrid's event webhook: what its events become."""

import json
from typing import Any

import msgspec
import pytest

from carillon.domain.errors import Forged
from carillon.domain.ports import ReceiptReader
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptKind
from carillon.providers.sendgrid.receipts import reader
from carillon.providers.sendgrid.send import RouteSeal, Settings
from carillon.providers.tools import Secret
from tests.support.clocks import ManualClock
from tests.support.sendgrid_stub import API_KEY, EventSigner

NOW = 1_700_000_000
ID = "0191f0a0-0000-7000-8000-000000000001"
KEY = f"{ID}/email:ada@example.com"
SIGNER = EventSigner()


def make(**options: Any) -> ReceiptReader:
    given = {"api_key": Secret(API_KEY), "sender": "a@b.example", "webhook_public_key": SIGNER.public_key, **options}
    return reader("SendGrid", Settings(**given), ManualClock(NOW))


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "email": "ada@example.com",
        "timestamp": NOW - 5,
        "smtp-id": "<14c5d75ce93.dfd.64b469@ismtpd-555>",
        "event": name,
        "category": ["cat facts"],
        "sg_event_id": f"ev-{name}",
        "sg_message_id": "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0",
        **fields,
    }


def read(*events: Any, **options: Any) -> CallbackReading:
    body = json.dumps(events).encode()
    return make(**options).read("https://us.example/callback", SIGNER.headers(body, NOW), body)


def only(*events: Any) -> Receipt:
    reading = read(*events)
    assert not reading.unread
    [receipt] = reading.receipts
    return receipt


@pytest.mark.req("S2-87")
@pytest.mark.parametrize(("name", "kind"), [
    ("delivered", ReceiptKind.DELIVERED),
    ("open", ReceiptKind.OPENED),
    ("opened", ReceiptKind.OPENED),
    ("click", ReceiptKind.CLICKED),
    ("clicked", ReceiptKind.CLICKED),
    ("bounce", ReceiptKind.BOUNCED),
    ("dropped", ReceiptKind.FAILED),
    ("spamreport", ReceiptKind.COMPLAINED),
    ("spam_report", ReceiptKind.COMPLAINED),
    ("unsubscribe", ReceiptKind.UNSUBSCRIBED),
    ("group_unsubscribe", ReceiptKind.UNSUBSCRIBED),
])  # fmt: skip
def test_every_event_has_a_meaning(name: str, kind: ReceiptKind) -> None:
    receipt = only(event(name))
    assert (receipt.provider, receipt.kind, receipt.event_id) == ("SendGrid", kind, f"ev-{name}")
    assert (receipt.address, receipt.occurred_at_ms) == ("ada@example.com", (NOW - 5) * 1000)


@pytest.mark.req("S2-87")
@pytest.mark.parametrize("name", ["processed", "deferred", "group_resubscribe"])
def test_what_is_only_on_its_way_says_nothing(name: str) -> None:
    assert read(event(name, response="400 try again later", attempt="5")) == CallbackReading()


@pytest.mark.parametrize(("fields", "classification", "gone"), [
    ({"type": "bounce", "reason": "550 5.1.1 unknown", "status": "5.1.1"}, "bounce", True),
    ({"type": "bounce", "bounce_classification": "Invalid Address"}, "invalid_address", True),
    ({"type": "blocked", "reason": "550 5.7.1 spam"}, "blocked", False),
    ({"type": "blocked", "bounce_classification": "Reputation"}, "reputation", False),
    ({"type": "expired"}, "expired", False),
    ({}, "bounce", False),
])  # fmt: skip
def test_only_a_hard_bounce_ends_an_address(fields: dict[str, Any], classification: str, *, gone: bool) -> None:
    receipt = only(event("bounce", **fields))
    assert (receipt.kind, receipt.classification) == (ReceiptKind.BOUNCED, classification)
    assert receipt.recipient_gone is gone
    assert receipt.reason == fields.get("reason")


@pytest.mark.parametrize(("reason", "classification", "gone"), [
    ("Bounced Address", "bounced_address", True),
    ("Unsubscribed Address", "unsubscribed_address", True),
    ("Spam Reporting Address", "spam_reporting_address", True),
    ("Invalid", "invalid", True),
    ("Spam Content (if Spam Checker app is enabled)", "dropped", False),
    ("Recipient List over Package Quota", "dropped", False),
    ("Invalid SMTPAPI header", "dropped", False),
    (None, "dropped", False),
])  # fmt: skip
def test_a_drop_ends_an_address_when_its_reason_does(reason: str | None, classification: str, *, gone: bool) -> None:
    receipt = only(event("dropped", reason=reason))
    assert (receipt.kind, receipt.classification) == (ReceiptKind.FAILED, classification)
    assert receipt.recipient_gone is gone


@pytest.mark.req("S2-93")
def test_our_own_arguments_name_the_message() -> None:
    sealed = RouteSeal(Secret(API_KEY)).close(KEY)
    receipt = only(event("delivered", notificationId=ID, carillonRoute=sealed))
    assert receipt.idempotency_key == KEY
    assert receipt.provider_message_id == "14c5d75ce93"


@pytest.mark.req("S2-93")
@pytest.mark.parametrize("sealed", [None, "", "AAAA", "é", RouteSeal(Secret("an older key")).close(KEY)])
def test_a_notification_without_a_route_is_named_as_such(sealed: str | None) -> None:
    receipt = only(event("delivered", notificationId=ID, carillonRoute=sealed))
    assert receipt.idempotency_key == f"{ID}/"
    assert receipt.provider_message_id == "14c5d75ce93"


@pytest.mark.req("S2-93")
@pytest.mark.parametrize(("given", "found"), [("abc.filter.1", "abc"), ("abc", "abc"), (".x", None), ("", None)])
def test_otherwise_the_vendors_id_up_to_the_first_dot(given: str, found: str | None) -> None:
    if found is None:
        reading = read(event("delivered", sg_message_id=given))
        assert reading.unread == ("report 0: the event names no message",)
    else:
        receipt = only(event("delivered", sg_message_id=given))
        assert (receipt.idempotency_key, receipt.provider_message_id) == (None, found)


@pytest.mark.req("S2-93")
def test_a_repeated_event_carries_the_same_id() -> None:
    first, second = read(event("open"), event("open")).receipts
    assert first.event_id == second.event_id == "ev-open"


@pytest.mark.req("S2-83")
def test_one_bad_event_does_not_drop_the_others() -> None:
    bad: list[Any] = [
        7,
        None,
        [],
        {},
        {"event": 3},
        event("unheard_of"),
        event("open", timestamp="yesterday"),
        event("open", timestamp=-1),
        event("open", sg_event_id=["x"]),
        event("open", sg_event_id="x" * 201),
        event("open", sg_message_id="x" * 201),
    ]
    for place in (0, len(bad) // 2, len(bad)):
        mixed = [*bad[:place], event("delivered"), *bad[place:], event("click")]
        reading = read(*mixed)
        assert [receipt.kind for receipt in reading.receipts] == [ReceiptKind.DELIVERED, ReceiptKind.CLICKED]
        assert len(reading.unread) == len(bad)


@pytest.mark.req("S2-83")
@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"[1,]", b"\xff", b"null", b"[" * 5000])
def test_what_is_no_list_is_unread(body: bytes) -> None:
    reading = make().read("https://us.example/", SIGNER.headers(body, NOW), body)
    assert reading.receipts == ()
    assert len(reading.unread) == 1


def test_a_flood_of_nonsense_is_noted_in_short() -> None:
    reading = read(*[7] * 5000)
    assert len(reading.unread) == 101
    assert reading.unread[-1] == "and 4900 more"


def test_a_callback_beyond_every_size_is_not_looked_at() -> None:
    body = b" " * (4 * 1024 * 1024 + 1)
    with pytest.raises(Forged, match="larger"):
        make().read("https://us.example/", SIGNER.headers(body, NOW), body)


def test_long_words_are_cut() -> None:
    receipt = only(event("bounce", reason="no\r\n" * 5000, email="x" * 5000))
    assert receipt.reason is not None
    assert len(receipt.reason) <= 300
    assert "\n" not in receipt.reason
    assert len(receipt.address or "") == 320


def test_receipts_go_through_json() -> None:
    receipt = only(event("bounce"))
    assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt
