"""Signing and verifying webhooks: Standard Webhooks 1.0.0, and the older X-Webhook headers."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from carillon.providers.tools import Secret

TOLERANCE_SECONDS = 300
MAX_SECRETS = 10
_MIN_KEY, _MAX_KEY = 24, 64
_BLOCK = 64
_ED25519_KEY = 32
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_HEX_DIGEST = re.compile(r"(?:sha256=)?(?P<digest>[0-9A-Fa-f]{64})")


class Check(StrEnum):
    """The result of a verification; only OK proves the sender."""

    OK = "ok"
    MISSING = "missing"
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    FORGED = "forged"


class SigningKey:
    """One secret that signs: `whsec_` by HMAC-SHA256, `whsk_` by Ed25519."""

    def __init__(self, secret: Secret) -> None:
        kind, raw = _decode(secret)
        self._symmetric: _Hmac | None = None
        self._asymmetric: Ed25519PrivateKey | None = None
        if kind == "whsec_" and _MIN_KEY <= len(raw) <= _MAX_KEY:
            self._symmetric = _Hmac(raw)
        elif kind == "whsk_" and len(raw) == 2 * _ED25519_KEY:
            self._asymmetric = Ed25519PrivateKey.from_private_bytes(raw[:_ED25519_KEY])
            if self._asymmetric.public_key().public_bytes_raw() != raw[_ED25519_KEY:]:
                raise ValueError("a whsk_ secret whose halves do not belong together")
        else:
            raise ValueError(f"a webhook secret is whsec_ with {_MIN_KEY}-{_MAX_KEY} bytes or whsk_ with 64, in base64")

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        content = _signed_content(message_id, str(timestamp), body)
        if self._symmetric is not None:
            return f"v1,{base64.b64encode(self._symmetric.digest(content)).decode()}"
        if self._asymmetric is None:
            raise RuntimeError("this SigningKey holds no key")
        return f"v1a,{base64.b64encode(self._asymmetric.sign(content)).decode()}"


class _Hmac:
    """HMAC-SHA256 with the key already hashed into both halves, which costs more than hashing a message."""

    def __init__(self, key: bytes) -> None:
        # The key is never longer than a block; a longer one would have to be hashed first.
        padded = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(self, content: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return outer.digest()


def sign_standard(keys: Sequence[SigningKey], message_id: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature header: one signature for each key, newest first, so that secrets can be rotated."""
    if len(keys) == 1:
        return keys[0].sign(message_id, timestamp, body)
    return " ".join(key.sign(message_id, timestamp, body) for key in keys)


def verify_standard(
    secrets: Iterable[Secret],
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    now: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> Check:
    """Verify the raw body under any of `whsec_`, `whsk_` or `whpk_` secrets."""
    message_id, timestamp, signatures = (
        _only(headers := list(headers), name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if message_id is None or timestamp is None or signatures is None:
        return Check.MISSING
    fresh = _check_time(timestamp, now, tolerance_seconds)
    if fresh is not Check.OK:
        return fresh
    content = _signed_content(message_id, timestamp, body)
    given = [_split(signature) for signature in signatures.split(" ")]
    matches = 0
    # No early exit: the time taken must not show which secret was nearly right.
    for secret in secrets:
        kind, raw = _decode(secret)
        version = "v1" if kind == "whsec_" else "v1a"
        for found, signature in given:
            matches += found == version and _matches(kind, raw, content, signature)
    return Check.OK if matches else Check.FORGED


def sign_x_webhook(secret: Secret, timestamp: int, body: bytes) -> str:
    """The X-Webhook-Signature header."""
    return f"sha256={_x_digest(secret, str(timestamp), body).hex()}"


def verify_x_webhook(
    secrets: Iterable[Secret],
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    now: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> Check:
    """Verify X-Webhook-Timestamp and X-Webhook-Signature; a bare hex digest is accepted too."""
    timestamp, signature = (
        _only(headers := list(headers), name) for name in ("x-webhook-timestamp", "x-webhook-signature")
    )
    if timestamp is None or signature is None:
        return Check.MISSING
    fresh = _check_time(timestamp, now, tolerance_seconds)
    if fresh is not Check.OK:
        return fresh
    shape = _HEX_DIGEST.fullmatch(signature)
    given = bytes.fromhex(shape["digest"]) if shape else b""
    matches = sum(hmac.compare_digest(_x_digest(secret, timestamp, body), given) for secret in secrets)
    return Check.OK if matches else Check.FORGED


def _only(headers: list[tuple[str, str]], name: str) -> str | None:
    # A proxy may read a repeated header differently from us: treat it as missing.
    found = [value for key, value in headers if key.lower() == name]
    return found[0] if len(found) == 1 and found[0] else None


def _check_time(timestamp: str, now: float, tolerance_seconds: float) -> Check:
    if not _TIMESTAMP.fullmatch(timestamp):
        return Check.BAD_TIMESTAMP
    age = now - int(timestamp)
    if age > tolerance_seconds:
        return Check.TOO_OLD
    return Check.TOO_NEW if age < -tolerance_seconds else Check.OK


def _signed_content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _x_digest(secret: Secret, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(secret.reveal().encode(), f"{timestamp}.".encode() + body, "sha256")


def _split(signature: str) -> tuple[str, bytes]:
    version, _, text = signature.partition(",")
    try:
        return version, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "", b""


def _matches(kind: str, raw: bytes, content: bytes, signature: bytes) -> bool:
    if kind == "whsec_":
        return hmac.compare_digest(hmac.new(raw, content, hashlib.sha256).digest(), signature)
    try:
        Ed25519PublicKey.from_public_bytes(raw[-_ED25519_KEY:]).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _decode(secret: Secret) -> tuple[str, bytes]:
    kind, underscore, text = secret.reveal().partition("_")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    return kind + underscore, raw
