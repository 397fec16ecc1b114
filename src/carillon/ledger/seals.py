"""Seals on what names a person: AES-256-GCM under the first of the keys, opened with any of them."""

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from carillon.domain.errors import ConfigurationError

_MARK = "sealed"
_KEY_BYTES, _NONCE_BYTES = 32, 12


class _Key:
    """One key and what is derived from it: nothing is done twice with the same bytes."""

    def __init__(self, secret: bytes) -> None:
        self.key_id = _derived(secret, "id")[:4].hex()
        self.prefix = f"{_MARK}:{self.key_id}:"
        self._cipher = AESGCM(_derived(secret, "encryption"))
        self._nonces = _derived(secret, "nonces")

    def seal(self, text: str, nonce: bytes) -> str:
        box = nonce + self._cipher.encrypt(nonce, text.encode("utf-8", "surrogatepass"), None)
        return self.prefix + base64.urlsafe_b64encode(box).decode()

    def nonce_of(self, text: str) -> bytes:
        """The same for the same text, and to whoever has no key as good as random."""
        return hmac.digest(self._nonces, text.encode("utf-8", "surrogatepass"), "sha256")[:_NONCE_BYTES]

    def open(self, sealed: str) -> str:
        box = base64.b64decode(sealed.removeprefix(self.prefix), altchars=b"-_", validate=True)
        return self._cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], None).decode("utf-8", "surrogatepass")


class Seals:
    """A ring of keys; text without a seal opens as it is, because it may be older than the ring."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [_Key(secret) for secret in secrets]
        self._first = keys[0]
        self._keys = {key.key_id: key for key in keys}
        self._blind = _derived(secrets[0], "names")

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        return self._first.key_id

    @property
    def key_ids(self) -> frozenset[str]:
        return frozenset(self._keys)

    @property
    def pattern(self) -> str:
        """What SQL's LIKE finds the first key's seals by."""
        return f"{self._first.prefix}%"

    def address(self, text: str | None) -> str | None:
        """Equal addresses have equal seals: they are compared, and their uniqueness wins races."""
        return None if text is None else self._first.seal(text, self._first.nonce_of(text))

    def content(self, text: str | None) -> str | None:
        """What is only carried gets a fresh nonce: equal contents do not look alike."""
        return None if text is None else self._first.seal(text, os.urandom(_NONCE_BYTES))

    def name(self, address: str) -> str:
        """A name in place of an address, where one is needed that nobody has to read back."""
        return hmac.digest(self._blind, address.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()

    def open(self, text: str | None) -> str | None:
        """What cannot be opened stays as it is: no provider takes it for an address, and its route ends visibly."""
        if text is None or not text.startswith(f"{_MARK}:"):
            return text
        key = self._keys.get(text[len(_MARK) + 1 :].partition(":")[0])
        try:
            return text if key is None else key.open(text)
        except (InvalidTag, ValueError):
            return text


def read_keys(texts: Sequence[str]) -> Seals | None:
    """The ring of keys written as base64; None where there are none."""
    secrets = [_decoded(number, text) for number, text in enumerate(texts, 1)]
    if len(set(secrets)) != len(secrets):
        raise ConfigurationError("ledger.seal_keys: a key is there twice")
    return Seals(secrets) if secrets else None


def _decoded(number: int, text: str) -> bytes:
    try:
        secret = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ConfigurationError(
            f"ledger.seal_keys: key {number} is not {_KEY_BYTES} bytes in base64; `openssl rand -base64 32` makes one"
        )
    return secret


def _derived(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, f"carillon seal {purpose}".encode(), hashlib.sha256)
