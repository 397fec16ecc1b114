"""The keys that tokens are checked with: typed for one algorithm, and refused where anybody could guess them."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from carillon.domain.errors import ConfigurationError

TokenKey: TypeAlias = bytes | rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MIN_SECRET_BYTES = 32
_MIN_DISTINCT = 8
_MIN_RSA_BITS = 2048
_PERIODS = re.compile(rb"(.{1,16}?)\1+", re.DOTALL)
# Out of manuals, READMEs and jwt.io; compared without signs between the letters.
_EXAMPLES = (
    "changeme",
    "changethis",
    "replaceme",
    "replacethis",
    "yoursecret",
    "your256bitsecret",
    "yourjwtsecret",
    "supersecret",
    "mysecretkey",
    "secretkeyhere",
    "astringsecretatleast256bitslong",
    "thisisasecret",
    "donotuseinproduction",
    "insecure",
    "example",
)
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})


def secret_key(secret: str) -> bytes:
    """A shared secret as it is used; ConfigurationError for one that can be guessed."""
    key = secret.encode()
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigurationError(f"auth.secret (JWT_SECRET_KEY): must have at least {_MIN_SECRET_BYTES} bytes")
    plain = re.sub(r"[^a-z0-9]", "", secret.lower())
    if any(example in plain for example in _EXAMPLES):
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): is an example out of a manual; make one of your own")
    if len(set(key)) < _MIN_DISTINCT or _PERIODS.fullmatch(key):
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): repeats itself and can be guessed; make a random one")
    if secret.lstrip().startswith(("-----BEGIN", "ssh-", "ecdsa-")):
        # A public key as a shared secret is one that everybody has.
        raise ConfigurationError("auth.secret (JWT_SECRET_KEY): is a key file; name it as auth.public_key_file")
    return key


def public_key(pem: bytes, algorithm: str) -> TokenKey:
    """The public key in a PEM file."""
    try:
        found = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("auth.public_key_file: holds no public key in PEM") from None
    return _fitting(found, algorithm, "auth.public_key_file")


def key_set(text: bytes, algorithm: str) -> dict[str, TokenKey]:
    """The keys of a JSON Web Key Set by their `kid`; those for other algorithms or for encryption are passed over."""
    found: dict[str, TokenKey] = {}
    for entry in _entries(text):
        kid = entry.get("kid")
        if not isinstance(kid, str) or not KID.fullmatch(kid) or kid in found:
            raise ConfigurationError("auth.jwks_file: every key needs a kid of its own, of letters, digits, _ and -")
        if _PRIVATE_PARTS & entry.keys():
            raise ConfigurationError(f"auth.jwks_file: {kid} is a private or shared key; only public ones belong here")
        if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
            continue
        try:
            key = jwt.PyJWK(entry, algorithm).key
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            raise ConfigurationError(f"auth.jwks_file: {kid} is no key for {algorithm}") from None
        found[kid] = _fitting(key, algorithm, f"auth.jwks_file: {kid}")
    if not found:
        raise ConfigurationError(f"auth.jwks_file: holds no key for {algorithm}")
    return found


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError("auth.jwks_file: is no JSON Web Key Set") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigurationError("auth.jwks_file: is no JSON Web Key Set")
    return entries


def _fitting(key: Any, algorithm: str, where: str) -> TokenKey:  # noqa: ANN401 - what a library made of a file
    wanted, fits = _KINDS[algorithm]
    if not fits(key):
        raise ConfigurationError(f"{where}: {algorithm} takes {wanted}")
    checked: TokenKey = key
    return checked


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "RS256": (
        f"an RSA public key of at least {_MIN_RSA_BITS} bits",
        lambda key: isinstance(key, rsa.RSAPublicKey) and key.key_size >= _MIN_RSA_BITS,
    ),
    "ES256": (
        "a public key on the curve P-256",
        lambda key: isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1",
    ),
    "EdDSA": ("an Ed25519 public key", lambda key: isinstance(key, ed25519.Ed25519PublicKey)),
}
