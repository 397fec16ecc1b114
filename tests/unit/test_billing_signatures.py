"""The billing blueprint's signature: its vector, its bounds to the second, and how it is compared."""

import hmac

import pytest

from carillon.providers.tools import Secret
from carillon.providers.webhook import signing as webhook_signing
from tests.support.billing_stand import SECRET, signature

TOLERANCE = 300
V3_BODY = b'{"event_id":"payment_1","status":"success"}'
V3_SIGNATURE = "sha256=182bcf21c46b3ea6d5a3445bd4f67d630b95c869bed6cab04886cc669fa9aaa7"


@pytest.mark.req("S3-68", "S3-102")
def test_the_vector() -> None:
    assert signature(V3_BODY, 1640995200, "webhook-signing-secret") == V3_SIGNATURE
    assert webhook_signing.sign_x_webhook(Secret("webhook-signing-secret"), 1640995200, V3_BODY) == V3_SIGNATURE


@pytest.mark.req("S3-71", "S3-72", "S3-102")
@pytest.mark.parametrize(
    ("late", "found"),
    [
        (0, "ok"),
        (TOLERANCE - 1, "ok"),
        (TOLERANCE, "ok"),
        (TOLERANCE + 1, "too_old"),
        (1 - TOLERANCE, "ok"),
        (-TOLERANCE, "ok"),
        (-TOLERANCE - 1, "too_new"),
    ],
)
def test_the_bounds_to_the_second(late: int, found: str) -> None:
    now = 1_767_225_600
    headers = [
        ("X-Webhook-Timestamp", str(now - late)),
        ("X-Webhook-Signature", signature(V3_BODY, now - late)),
    ]
    check = webhook_signing.verify_x_webhook([Secret(SECRET)], headers, V3_BODY, now=now, tolerance_seconds=TOLERANCE)
    assert check == found


@pytest.mark.req("S3-73")
def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", spy)
    headers = [("X-Webhook-Timestamp", "1"), ("X-Webhook-Signature", signature(V3_BODY, 1))]
    check = webhook_signing.verify_x_webhook([Secret(SECRET)], headers, V3_BODY, now=1)
    assert (check, len(compared)) == (webhook_signing.Check.FORGED, 1)
