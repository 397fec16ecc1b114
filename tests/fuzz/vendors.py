"""The readers of vendors' callbacks, with a valid proof each, and of signatures and tokens that prove nothing."""

import base64
import time
from collections.abc import Callable

from carillon.domain.errors import Forged
from carillon.domain.receipts import CallbackReading
from carillon.providers.acs import receipts as acs
from carillon.providers.acs import send as acs_send
from carillon.providers.fcm import receipts as fcm
from carillon.providers.fcm import send as fcm_send
from carillon.providers.sendgrid import receipts as sendgrid
from carillon.providers.sendgrid import send as sendgrid_send
from carillon.providers.tools import Secret
from carillon.providers.twilio import receipts as twilio
from carillon.providers.twilio import send as twilio_send
from carillon.providers.webhook.signing import (
    SigningKey,
    sign_standard,
    sign_x_webhook,
    verify_standard,
    verify_x_webhook,
)
from carillon.receipts.callbacks import clean_reading
from carillon.system import SystemClock
from carillon.web.auth import JwtSettings
from carillon.web.problems import Problem
from carillon.web.tokens import Guard
from tests.fuzz import honest
from tests.fuzz.running import READ, REFUSED, Target
from tests.fuzz.stores import storable
from tests.support.sendgrid_stub import EventSigner
from tests.support.twilio_stub import signed as signed_form
from tests.unit.test_web_auth import SECRET, token

SHARED, KEY = Secret("relay-secret-of-some-length"), Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
URL = "https://carillon.example/api/v1/webhooks"
TOKENS = (token().encode(), token(role="admin", tenant_id="a").encode())
GUARD = Guard(JwtSettings(secret=SECRET))
Read = Callable[[bytes], CallbackReading]


def _received(read: Read) -> Callable[[bytes], object]:
    def call(body: bytes) -> str:
        reading = clean_reading(read(body))
        for receipt in reading.receipts:
            for value in (receipt.provider_message_id, receipt.address, receipt.reason, receipt.event_id):
                storable(value or "")
        storable(" ".join(reading.unread))
        return READ if reading.receipts else REFUSED

    return call


def _sendgrid() -> Read:
    signer = EventSigner()
    settings = sendgrid_send.Settings(
        api_key=Secret("SG.key"), sender="a@b.example", webhook_public_key=signer.public_key
    )
    reader = sendgrid.reader("g", settings, SystemClock())
    return lambda body: reader.read(URL, signer.headers(body, int(time.time())), body)


def _acs() -> Read:
    key = Secret(base64.b64encode(b"k" * 32).decode())
    settings = acs_send.Settings(
        endpoint="https://a.example", access_key=key, sender="a@b.example", webhook_secret=SHARED
    )
    reader = acs.reader("a", settings)
    return lambda body: reader.read(URL, {"x-webhook-secret": SHARED.reveal()}, body)


def _fcm() -> Read:
    reader = fcm.reader("f", fcm_send.Settings(webhook_secret=SHARED, project_id="p"))

    def read(body: bytes) -> CallbackReading:
        now = int(time.time())
        head = {"x-webhook-timestamp": str(now), "x-webhook-signature": sign_x_webhook(SHARED, now, body)}
        return reader.read(URL, head, body)

    return read


def _twilio() -> Read:
    settings = twilio_send.Settings(account_sid="AC1", auth_token=Secret("tok"), sender="+15005550006")
    reader = twilio.reader("t", settings)

    def read(body: bytes) -> CallbackReading:
        if body[:1] == b"!":
            return reader.read(URL, {"content-type": "application/json", "x-twilio-signature": "x"}, body)
        pairs = dict(part.partition("=")[::2] for part in body.decode("utf-8", "replace").split("&")[:20])
        head, form = signed_form(URL, pairs, "tok")
        return reader.read(URL, head, form)

    return read


def _signature(body: bytes) -> str:
    """Every scheme with the hostile text for a signature, and for a moment; none is believed."""
    head, _, rest = body.partition(b"\n")
    now = int(time.time())
    # As servers decode heads.
    said = head.decode("latin-1")
    standard = sign_standard([SigningKey(KEY)], "1", now, rest)
    believed = [
        verify_standard([KEY], found.items(), rest, now=now).value == "ok"
        for found in (
            {"webhook-id": said, "webhook-timestamp": str(now), "webhook-signature": said},
            {"webhook-id": "1", "webhook-timestamp": said, "webhook-signature": standard},
        )
    ] + [
        verify_x_webhook([SHARED], found.items(), rest, now=now).value == "ok"
        for found in (
            {"x-webhook-timestamp": said, "x-webhook-signature": said},
            {"x-webhook-timestamp": str(now), "x-webhook-signature": said},
        )
    ]
    if any(believed) and said.strip() != str(now):
        raise AssertionError("a forged signature was believed")
    return REFUSED


def _token(body: bytes) -> str:
    """A token is believed if it says what an honest one says; base64 spells the same bytes in several ways."""
    GUARD.caller(body)
    if _parts(body) not in map(_parts, TOKENS):
        raise AssertionError("a changed token was believed")
    return READ


def _parts(body: bytes) -> list[bytes]:
    return [base64.urlsafe_b64decode(part + b"==") for part in body.split(b".")]


def targets() -> dict[str, Target]:
    """All of them by name."""
    return {
        "receipts.sendgrid": Target(_received(_sendgrid()), (honest.SENDGRID,), (Forged,)),
        "receipts.acs": Target(_received(_acs()), (honest.ACS,), (Forged,)),
        "receipts.fcm": Target(_received(_fcm()), honest.FCM, (Forged,)),
        "receipts.twilio": Target(_received(_twilio()), (honest.TWILIO,), (Forged,)),
        "signature": Target(
            _signature,
            (
                b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\n{}",
                b"sha256=" + b"a" * 64 + b"\n{}",
                b"1700000000\n{}",
            ),
        ),
        "token": Target(_token, TOKENS, (Problem,)),
    }
