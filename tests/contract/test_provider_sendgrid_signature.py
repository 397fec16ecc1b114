"""SendGrid's event webhook: what is believed, beside what the vendor's own client believes."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from sendgrid.helpers.eventwebhook import EventWebhook

from carillon.domain.errors import Forged
from carillon.domain.ports import ReceiptReader
from carillon.domain.receipts import CallbackReading
from carillon.providers.sendgrid.receipts import reader
from carillon.providers.sendgrid.send import Settings
from carillon.providers.tools import Secret
from tests.support.clocks import ManualClock
from tests.support.sendgrid_stub import API_KEY, EventSigner

SIGNATURE, TIMESTAMP = (f"x-twilio-email-event-webhook-{word}" for word in ("signature", "timestamp"))
NOW = 1_700_000_000
# The vendor's published example.
V5_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcw"
    "HBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA=="
)
V5_HEADERS = {
    SIGNATURE: "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH2j/0=",
    TIMESTAMP: "1588788367",
}
V5_BODY = b'{"category":"example_payload","event":"test_event","message_id":"message_id"}'
SIGNER = EventSigner()


def make(**options: Any) -> ReceiptReader:
    known: dict[str, Any] = {
        "api_key": Secret(API_KEY),
        "sender": "a@b.example",
        "webhook_public_key": SIGNER.public_key,
    }
    return reader("SendGrid", Settings(**known | options), ManualClock(NOW))


@pytest.mark.req("S2-84")
def test_the_vendors_example_is_believed_and_nothing_else() -> None:
    v5 = make(webhook_public_key=V5_KEY, webhook_tolerance_seconds=None)
    # Signed, and yet not a list of events: believed, not understood.
    assert v5.read("https://us.example/", V5_HEADERS, V5_BODY).receipts == ()
    assert v5.read("https://us.example/", V5_HEADERS, V5_BODY).unread
    assert EventWebhook(V5_KEY).verify_signature(V5_BODY.decode(), V5_HEADERS[SIGNATURE], V5_HEADERS[TIMESTAMP])
    for body in (V5_BODY + b"\r\n", V5_BODY.replace(b"example", b"Example"), b""):
        with pytest.raises(Forged):
            v5.read("https://us.example/", V5_HEADERS, body)


def _utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.req("S2-84")
@given(body=st.binary(max_size=300).filter(_utf8), timestamp=st.integers(0, 10**11))
def test_we_believe_what_the_vendors_own_client_believes(body: bytes, timestamp: int) -> None:
    headers = SIGNER.headers(body, timestamp)
    theirs = EventWebhook(SIGNER.public_key)
    assert theirs.verify_signature(body.decode(), headers[SIGNATURE], headers[TIMESTAMP])
    make(webhook_tolerance_seconds=None).read("https://us.example/", headers, body)
    assert not theirs.verify_signature(body.decode() + " ", headers[SIGNATURE], headers[TIMESTAMP])
    with pytest.raises(Forged):
        make(webhook_tolerance_seconds=None).read("https://us.example/", headers, body + b" ")


@pytest.mark.req("S2-85")
def test_one_byte_changed_anywhere_is_forged() -> None:
    body = json.dumps([{"event": "delivered", "sg_message_id": "abc.0"}]).encode()
    headers = SIGNER.headers(body, NOW)
    assert make().read("https://us.example/", headers, body).receipts
    for place in range(len(body)):
        with pytest.raises(Forged):
            make().read("https://us.example/", headers, body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
    with pytest.raises(Forged):
        make().read("https://us.example/", headers | {TIMESTAMP: str(NOW + 1)}, body)


def _p1363(signature: str) -> str:
    r, s = decode_dss_signature(base64.b64decode(signature))
    return base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode()


@pytest.mark.req("S2-84", "S2-85")
def test_missing_or_strange_signatures_are_forged() -> None:
    body = b"[]"
    headers = SIGNER.headers(body, NOW)
    good, stamp = headers[SIGNATURE], headers[TIMESTAMP]
    for signature in ("", "AAAA", "!", "é", good[:-4], good + "AAAA", f" {good}", _p1363(good), "A" * 100_000):
        with pytest.raises(Forged):
            make().read("https://us.example/", headers | {SIGNATURE: signature}, body)
    for timestamp in ("", "-1", "\u0661\u0667", f"{stamp}\n", f"+{stamp}", f"{stamp}.0", "9" * 5000):
        with pytest.raises(Forged):
            make().read("https://us.example/", headers | {TIMESTAMP: timestamp}, body)
    for missing in (SIGNATURE, TIMESTAMP):
        with pytest.raises(Forged):
            make().read("https://us.example/", {name: headers[name] for name in headers if name != missing}, body)
    with pytest.raises(Forged):
        make(webhook_public_key=EventSigner().public_key).read("https://us.example/", headers, body)


@pytest.mark.req("S2-85")
def test_without_a_key_nothing_is_believed() -> None:
    body = b"[]"
    with pytest.raises(Forged, match="webhook_public_key"):
        make(webhook_public_key=None).read("https://us.example/", SIGNER.headers(body, NOW), body)


def test_a_key_of_another_curve_is_no_key() -> None:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    text = base64.b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
    with pytest.raises(ValueError, match="P-256"):
        make(webhook_public_key=text)


@pytest.mark.req("S2-86")
@pytest.mark.parametrize(("age", "tolerance", "believed"), [
    (0, 600.0, True),
    (600, 600.0, True),
    (-600, 600.0, True),
    (601, 600.0, False),
    (-601, 600.0, False),
    (86_400, 600.0, False),
    (86_400, None, True),
    (20, 10.0, False),
])  # fmt: skip
def test_a_callback_belongs_to_its_time(age: int, tolerance: float | None, *, believed: bool) -> None:
    body = b"[]"
    headers = SIGNER.headers(body, NOW - age)
    if believed:
        assert make(webhook_tolerance_seconds=tolerance).read("https://us.example/", headers, body) == CallbackReading()
    else:
        with pytest.raises(Forged, match="timestamp"):
            make(webhook_tolerance_seconds=tolerance).read("https://us.example/", headers, body)


def test_the_window_is_ten_minutes_unless_told_otherwise() -> None:
    assert Settings(api_key=Secret("x"), sender="a@b.example").webhook_tolerance_seconds == 600.0
