"""Webhook signatures against published vectors, the reference library, and forgers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Reference

from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import (
    Check,
    SigningKey,
    sign_standard,
    sign_x_webhook,
    verify_standard,
    verify_x_webhook,
)

HMAC = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OTHER = Secret("whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=")
ED25519 = Secret("whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
PUBLIC = Secret("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")
ID, STAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
X_SECRET, X_STAMP = Secret("webhook-signing-secret"), 1_640_995_200
X_BODY = b'{"event_id":"payment_1","status":"success"}'
X_SIGNATURE = "sha256=182bcf21c46b3ea6d5a3445bd4f67d630b95c869bed6cab04886cc669fa9aaa7"


def standard(signature: str, stamp: str = str(STAMP), name: str = ID) -> list[tuple[str, str]]:
    return [("Webhook-Id", name), ("webhook-timestamp", stamp), ("WEBHOOK-SIGNATURE", signature)]


def x_webhook(signature: str, stamp: str = str(X_STAMP)) -> list[tuple[str, str]]:
    return [("X-Webhook-Timestamp", stamp), ("X-Webhook-Signature", signature)]


def test_standard_vectors() -> None:
    assert SigningKey(HMAC).sign(ID, STAMP, BODY) == V1
    assert SigningKey(ED25519).sign(ID, STAMP, BODY) == V1A
    assert sign_standard([SigningKey(HMAC), SigningKey(ED25519)], ID, STAMP, BODY) == f"{V1} {V1A}"


@pytest.mark.req("S3-68")
def test_x_webhook_vector() -> None:
    assert sign_x_webhook(X_SECRET, X_STAMP, X_BODY) == X_SIGNATURE
    for signature in (X_SIGNATURE, X_SIGNATURE.removeprefix("sha256=")):
        assert verify_x_webhook([X_SECRET], x_webhook(signature), X_BODY, now=X_STAMP) is Check.OK


@pytest.mark.parametrize("secret", [HMAC, ED25519, PUBLIC])
@pytest.mark.parametrize("signature", [f"{V1} {V1A}", f"v2,xxxx v1,AAAA {V1A} {V1}"])
def test_either_signature_convinces_the_holder_of_its_key(secret: Secret, signature: str) -> None:
    assert verify_standard([secret], standard(signature), BODY, now=STAMP) is Check.OK
    assert verify_standard([OTHER, secret], standard(signature), BODY, now=STAMP) is Check.OK
    assert verify_standard([OTHER], standard(signature), BODY, now=STAMP) is Check.FORGED
    assert verify_standard([], standard(signature), BODY, now=STAMP) is Check.FORGED


@given(st.text(min_size=1, max_size=40).filter(lambda text: "." not in text), st.integers(0, 2**33), st.text())
def test_the_reference_library_signs_the_same(name: str, stamp: int, text: str) -> None:
    expected = Reference(HMAC.reveal()).sign(name, datetime.fromtimestamp(stamp, UTC), text)
    assert SigningKey(HMAC).sign(name, stamp, text.encode()) == expected


def test_the_reference_library_verifies_what_we_sign() -> None:
    stamp = int(datetime.now(UTC).timestamp())
    headers = dict(standard(sign_standard([SigningKey(OTHER), SigningKey(HMAC)], ID, stamp, BODY), str(stamp)))
    assert Reference(HMAC.reveal()).verify(BODY, headers) == {"test": 2432232314}


@pytest.mark.parametrize(
    ("signature", "body", "name"),
    [
        (V1, BODY + b" ", ID),
        (V1, BODY, ID + "x"),
        (V1.replace("v1,", "v1a,"), BODY, ID),
        (V1A.replace("v1a,", "v1,"), BODY, ID),
        (V1.replace("=", ""), BODY, ID),
        (V1 + "!", BODY, ID),
        (V1.replace("/", "\n/"), BODY, ID),
        (V1.replace("v1,", "v1 "), BODY, ID),
        ("v1,", BODY, ID),
        (",", BODY, ID),
        ("v1,\u00e9", BODY, ID),
        ("v1a," + V1[3:], BODY, ID),
    ],
)
def test_a_forgery_is_a_forgery(signature: str, body: bytes, name: str) -> None:
    assert verify_standard([HMAC, ED25519], standard(signature, name=name), body, now=STAMP) is Check.FORGED


@pytest.mark.parametrize(
    ("age", "found"),
    [
        (0, Check.OK),
        (299, Check.OK),
        (300, Check.OK),
        (301, Check.TOO_OLD),
        (-299, Check.OK),
        (-300, Check.OK),
        (-301, Check.TOO_NEW),
    ],
)
def test_time_is_tolerated_in_both_directions(age: int, found: Check) -> None:
    assert verify_standard([HMAC], standard(V1), BODY, now=STAMP + age) is found
    assert verify_x_webhook([X_SECRET], x_webhook(X_SIGNATURE), X_BODY, now=X_STAMP + age) is found


@pytest.mark.parametrize("stamp", ["soon", "1.5", "-1", "+1614265330", " 1614265330", "1_6", "١٦", "9" * 20])
def test_a_timestamp_is_a_whole_number(stamp: str) -> None:
    assert verify_standard([HMAC], standard(V1, stamp), BODY, now=STAMP) is Check.BAD_TIMESTAMP
    assert verify_x_webhook([X_SECRET], x_webhook(X_SIGNATURE, stamp), X_BODY, now=X_STAMP) is Check.BAD_TIMESTAMP


def test_a_missing_or_repeated_header_is_missing() -> None:
    for number in range(3):
        rest = [pair for index, pair in enumerate(standard(V1)) if index != number]
        assert verify_standard([HMAC], rest, BODY, now=STAMP) is Check.MISSING
        assert verify_standard([HMAC], [*standard(V1), standard(V1)[number]], BODY, now=STAMP) is Check.MISSING
    for pair in x_webhook(X_SIGNATURE):
        assert verify_x_webhook([X_SECRET], [pair], X_BODY, now=X_STAMP) is Check.MISSING
        twice = [*x_webhook(X_SIGNATURE), pair]
        assert verify_x_webhook([X_SECRET], twice, X_BODY, now=X_STAMP) is Check.MISSING


@pytest.mark.parametrize("signature", ["sha256=", "sha256=zz", X_SIGNATURE[:-1], X_SIGNATURE + "0", "sha1=" + "0" * 64])
def test_an_x_webhook_forgery(signature: str) -> None:
    assert verify_x_webhook([X_SECRET], x_webhook(signature), X_BODY, now=X_STAMP) is Check.FORGED
    assert verify_x_webhook([Secret("other")], x_webhook(X_SIGNATURE), X_BODY, now=X_STAMP) is Check.FORGED
    assert verify_x_webhook([Secret("other"), X_SECRET], x_webhook(X_SIGNATURE), X_BODY, now=X_STAMP) is Check.OK
    assert verify_x_webhook([X_SECRET], x_webhook(X_SIGNATURE.upper()), X_BODY, now=X_STAMP) is Check.FORGED


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_AAAA",
        HMAC.reveal().removeprefix("whsec_"),
        "whsec_!!!!" + "A" * 40,
        PUBLIC.reveal(),
        "whsec_" + "A" * 100,
        "whsk_" + "A" * 44,
        ED25519.reveal().replace("Kvg==", "Kvw=="),
        "whsec_é",
    ],
)
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ValueError) as refused:
        SigningKey(Secret(secret))
    assert len(secret) < 8 or secret[6:] not in str(refused.value)
