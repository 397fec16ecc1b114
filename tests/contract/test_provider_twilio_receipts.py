"""Twilio's reports, signed and checked by Twilio's own code."""

import json
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from carillon.domain.errors import Forged
from carillon.domain.ports import ReceiptReader
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptKind
from carillon.providers.tools import Secret, decode_secret
from carillon.providers.twilio.receipts import MAX_BODY, reader, sign
from carillon.providers.twilio.send import Settings
from tests.support.twilio_stub import ACCOUNT, SENDER, TOKEN, Form, signed, signed_json

URL = "https://notify.example/api/v1/webhooks/twilio/sms-status"
FORM = "application/x-www-form-urlencoded"
CALL = {"CallSid": "CA1234567890ABCDE", "Digits": "1234", "From": "+14158675309", "To": "+18005551212"}
CALL |= {"Caller": "+14158675309"}
FAILED = {"MessageSid": "SM123", "MessageStatus": "failed", "ErrorCode": "30005"}


def receipts(**options: Any) -> ReceiptReader:
    given = {"account_sid": ACCOUNT, "auth_token": TOKEN, "sender": SENDER} | options
    return reader("Twilio", msgspec.convert(given, Settings, dec_hook=decode_secret))


def told(fields: dict[str, Any], url: str = URL, **options: Any) -> CallbackReading:
    headers, body = signed(url, fields)
    return receipts(**options).read(url, headers, body)


@pytest.mark.req("S2-72", "S2-73")
def test_a_report_as_twilio_posts_it() -> None:
    fields = {
        "AccountSid": ACCOUNT,
        "ApiVersion": "2010-04-01",
        "ErrorCode": "30005",
        "ErrorMessage": "Unknown destination handset",
        "From": SENDER,
        "MessageSid": "SM123",
        "MessageStatus": "undelivered",
        "SmsSid": "SM123",
        "SmsStatus": "undelivered",
        "SomethingNew": " not trimmed ",
        "Empty": "",
        "To": "+14155550100",
    }
    assert told(fields) == CallbackReading(
        receipts=(
            Receipt(
                provider="Twilio",
                kind=ReceiptKind.FAILED,
                provider_message_id="SM123",
                event_id="SM123/undelivered",
                address="+14155550100",
                classification="30005",
                reason="Unknown destination handset",
            ),
        )
    )


@pytest.mark.req("S2-73")
@pytest.mark.parametrize(
    ("url", "fields", "signature"),
    [
        ("https://example.com/api/v1/webhooks/twilio/sms-status", FAILED, "LCeuKmQMvswFup4mMoEQ72lxD/g="),
        ("https://mycompany.com/myapp.php?foo=1&bar=2", CALL, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    ],
)
def test_known_signatures(url: str, fields: dict[str, str], signature: str) -> None:
    assert sign(Secret("12345"), url, {name: [value] for name, value in fields.items()}) == signature
    headers = {"content-type": FORM, "x-twilio-signature": signature}
    body = urlencode(fields).encode()
    receipts(auth_token="12345").read(url, headers, body)
    for forged in (
        headers | {"x-twilio-signature": signature.swapcase()},
        headers | {"x-twilio-signature": ""},
        {"content-type": FORM},
    ):
        with pytest.raises(Forged):
            receipts(auth_token="12345").read(url, forged, body)
    with pytest.raises(Forged):
        receipts(auth_token="12346").read(url, headers, body)
    with pytest.raises(Forged):
        receipts(auth_token="12345").read(f"{url}x", headers, body)
    with pytest.raises(Forged):
        receipts(auth_token="12345").read(url, headers, body + b"&Extra=1")


@pytest.mark.req("S2-75")
def test_the_known_signature_of_a_json_body() -> None:
    digest = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
    url = f"https://mycompany.com/myapp.php?foo=1&bar=2&bodySHA256={digest}"
    headers = {"content-type": "application/json", "x-twilio-signature": "a9nBmqA0ju/hNViExpshrM61xv4="}
    body = b'{"property": "value", "boolean": true}'
    assert receipts(auth_token="12345").read(url, headers, body).unread == ("the report names no message",)
    for forged in (body + b" ", b"", b"{}"):
        with pytest.raises(Forged, match="body"):
            receipts(auth_token="12345").read(url, headers, forged)
    with pytest.raises(Forged):
        receipts(auth_token="12345").read(url.replace("foo=1", "foo=2"), headers, body)


@pytest.mark.req("S2-75", "S2-82")
def test_json_with_a_digest_or_with_its_values_signed() -> None:
    url, headers, body = signed_json(URL, FAILED)
    [receipt] = receipts().read(url, headers, body).receipts
    assert (receipt.kind, receipt.classification, receipt.recipient_gone) == (ReceiptKind.FAILED, "30005", False)
    plain = {
        "content-type": "application/json; charset=utf-8",
        "x-twilio-signature": RequestValidator(TOKEN).compute_signature(URL, FAILED),
    }
    for body in (json.dumps(FAILED).encode(), json.dumps(FAILED | {"ErrorCode": 30005}).encode()):
        assert receipts().read(URL, plain, body).receipts == (receipt,)
    for forged in (json.dumps(FAILED | {"MessageSid": "SM124"}).encode(), b"[]", b"{", b"\xff", b"[" * 60_000):
        with pytest.raises(Forged):
            receipts().read(URL, plain, forged)
    # A signature of the bare URL vouches for no body without a digest.
    bare = plain | {"x-twilio-signature": RequestValidator(TOKEN).compute_signature(URL, {})}
    with pytest.raises(Forged):
        receipts().read(URL, bare, json.dumps(FAILED).encode())


def test_json_that_is_signed_and_says_nothing() -> None:
    contents: list[Any] = [[], {}, {"MessageSid": ["SM1"]}]
    for content in contents:
        url, headers, body = signed_json(URL, content)
        assert receipts().read(url, headers, body).receipts == ()


@pytest.mark.req("S2-74")
@pytest.mark.parametrize(
    ("called", "signed_for"),
    [
        ("https://notify.example/in", "https://notify.example:443/in"),
        ("https://notify.example:443/in", "https://notify.example/in"),
        ("http://notify.example/in?a=b", "http://notify.example:80/in?a=b"),
        ("http://notify.example:80/in?a=b", "http://notify.example/in?a=b"),
        ("https://notify.example:8443/in", "https://notify.example/in"),
        ("https://notify.example:8443/in", "https://notify.example:8443/in"),
        ("https://[2001:db8::1]/in", "https://[2001:db8::1]:443/in"),
    ],
)
def test_the_port_may_be_signed_or_not(called: str, signed_for: str) -> None:
    headers, body = signed(signed_for, FAILED)
    assert receipts().read(called, headers, body).receipts
    for other in ("https://other.example/in", "http://notify.example/inn", "https://notify.example/in/"):
        with pytest.raises(Forged):
            receipts().read(other, headers, body)


@pytest.mark.req("S2-74")
@pytest.mark.parametrize(
    ("public", "seen", "signed_for"),
    [
        ("https://notify.example", "http://10.0.0.7:8080/in?a=%20b", "https://notify.example/in?a=%20b"),
        ("https://notify.example/", "http://10.0.0.7:8080/in", "https://notify.example/in"),
        ("https://notify.example/prefix", "http://10.0.0.7:8080/in", "https://notify.example/prefix/in"),
        ("https://notify.example", "http://[/in", "https://notify.example/in"),
    ],
)
def test_behind_a_proxy_the_public_url_is_the_signed_one(public: str, seen: str, signed_for: str) -> None:
    headers, body = signed(signed_for, FAILED)
    assert receipts(public_base_url=public).read(seen, headers, body).receipts
    with pytest.raises(Forged):
        receipts().read(seen, headers, body)


@pytest.mark.req("S2-76")
@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ("queued", ReceiptKind.QUEUED),
        ("sent", ReceiptKind.SENT),
        ("delivered read", ReceiptKind.DELIVERED),
        ("failed undelivered canceled", ReceiptKind.FAILED),
    ],
)
def test_every_status_in_our_words(statuses: str, kind: ReceiptKind) -> None:
    for status in statuses.split():
        for names in (("MessageSid", "MessageStatus"), ("SmsSid", "SmsStatus")):
            [receipt] = told(dict(zip(names, ("SM1", status), strict=True))).receipts
            assert (receipt.kind, receipt.provider_message_id) == (kind, "SM1")
            assert receipt.classification == (status if kind is ReceiptKind.FAILED else None)


@pytest.mark.req("S2-76")
@pytest.mark.parametrize("status", ["accepted", "scheduled", "sending"])
def test_steps_inside_twilio_say_nothing(status: str) -> None:
    said = told({"MessageSid": "SM1", "MessageStatus": status})
    assert (said.receipts, said.unread) == ((), ())


def test_a_replay_is_recognised_whatever_is_unsigned() -> None:
    headers, body = signed(URL, FAILED)
    for token in ("one", "two"):
        [receipt] = receipts().read(URL, headers | {"i-twilio-idempotency-token": token}, body).receipts
        assert receipt.event_id == "SM123/failed"


@pytest.mark.req("S2-82")
@pytest.mark.parametrize("code", ["30001", "30003", "30004", "30005", "30006", "30007", "30008"])
def test_a_failure_that_another_provider_may_undo(code: str) -> None:
    [receipt] = told(FAILED | {"ErrorCode": code}).receipts
    assert (receipt.kind, receipt.classification, receipt.recipient_gone) == (ReceiptKind.FAILED, code, False)


@pytest.mark.parametrize("code", ["21211", "21610", "21614"])
def test_a_number_that_is_dead_everywhere(code: str) -> None:
    [receipt] = told(FAILED | {"ErrorCode": code}).receipts
    assert (receipt.kind, receipt.classification, receipt.recipient_gone) == (ReceiptKind.FAILED, code, True)
    ours = {
        code: {"outcome": "unavailable", "classification": "ours"},
        "30006": {"outcome": "refused", "classification": "ours", "recipient_gone": True},
    }
    [overruled] = told(FAILED | {"ErrorCode": code}, answers=ours).receipts
    assert not overruled.recipient_gone
    [declared] = told(FAILED | {"ErrorCode": "30006"}, answers=ours).receipts
    assert declared.recipient_gone


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"MessageSid": "SM1"},
        {"MessageStatus": "sent"},
        {"MessageSid": "SM1", "MessageStatus": "partially_delivered"},
        {"MessageSid": "SM1", "MessageStatus": "received"},
        {"MessageSid": "SM1", "MessageStatus": "x" * 10_000},
        {"MessageSid": "SM 1", "MessageStatus": "sent"},
        {"MessageSid": "x" * 101, "MessageStatus": "sent"},
        {"MessageSid": "SM1", "MessageStatus": ["failed", "delivered"]},
        {"MessageSid": ["SM1", "SM2"], "MessageStatus": "sent"},
    ],
)
def test_what_is_true_and_says_nothing(fields: dict[str, Any]) -> None:
    reading = told(fields)
    assert reading.receipts == ()
    assert len(reading.unread) == 1
    assert len(reading.unread[0]) <= 300


def test_repeated_names_are_sorted_and_counted_once() -> None:
    fields = FAILED | {"Tag": ["b", "a", "b"], "MessageSid": ["SM123", "SM123"]}
    [receipt] = told(fields).receipts
    assert receipt.provider_message_id == "SM123"
    assert RequestValidator(TOKEN).compute_signature(URL, {"Tag": "ab"}) != sign(
        Secret(TOKEN), URL, {"Tag": ["b", "a", "b"]}
    )
    assert sign(Secret(TOKEN), URL, {"Tag": ["b", "a", "b"]}) == sign(Secret(TOKEN), URL, {"Tag": ["a", "b"]})


def test_the_id_comes_back_in_the_url() -> None:
    key = "0191f0a0/sms:user é&7"
    url = f"{URL}?{urlencode({'message': key})}"
    [receipt] = told(FAILED, url, callback_key="message").receipts
    assert receipt.idempotency_key == key
    [unasked] = told(FAILED, url).receipts
    assert unasked.idempotency_key is None
    for odd in (URL, f"{URL}?message=", f"{URL}?message={'x' * 1001}", f"{URL}?message=%ff"):
        assert told(FAILED, odd, callback_key="message").receipts[0].idempotency_key is None


def test_what_is_too_large_is_not_read() -> None:
    headers, body = signed(URL, FAILED | {"Pad": "x" * MAX_BODY})
    with pytest.raises(Forged):
        receipts().read(URL, headers, body)
    headers, body = signed(URL, FAILED | {f"Pad{number}": "x" for number in range(300)})
    with pytest.raises(Forged):
        receipts().read(URL, headers, body)
    headers, body = signed(URL, FAILED)
    for strange in ("x" * 10_000, "é", "\x00", "\ud800"):
        with pytest.raises(Forged):
            receipts().read(URL, headers | {"x-twilio-signature": strange}, body)


_WORDS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.dictionaries(_WORDS.filter(bool), st.lists(_WORDS, min_size=1, max_size=3), max_size=5),
    st.sampled_from(["", ":443"]),
)
def test_twilios_own_code_agrees(fields: dict[str, list[str]], port: str) -> None:
    url = f"https://notify.example{port}/in?a=b"
    headers, body = signed(url, dict(fields))
    receipts().read(url, headers, body)
    ours = sign(Secret(TOKEN), url, fields)
    assert ours == headers["x-twilio-signature"]
    assert RequestValidator(TOKEN).validate(url, Form(body), ours)
    assert not RequestValidator(TOKEN).validate(f"{url}x", Form(body), ours)


@given(st.binary(max_size=200), st.text(max_size=60), st.sampled_from([FORM, "application/json", "", "text/plain"]))
def test_nothing_but_forged_comes_of_noise(body: bytes, url: str, content_type: str) -> None:
    for called in (url, f"https://{url}", f"{URL}?bodySHA256={url}"):
        with pytest.raises(Forged):
            receipts().read(called, {"content-type": content_type, "x-twilio-signature": "AAAA"}, body)
