"""Tokens that are signed with private keys: which keys are taken, and what no token can talk a key into."""

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from carillon.domain.errors import ConfigurationError
from carillon.web import JwtSettings
from carillon.web.auth import LOOK_SECONDS, Revoked
from carillon.web.tokens import Guard
from tests.unit.test_web_auth import SECRET, claims, refused, token

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}
OTHERS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
WRITERS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def pem(private: Any) -> bytes:
    found: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def signed(algorithm: str, private: Any = None, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), private or PRIVATE[algorithm], algorithm=algorithm, headers=headers)


def jwk(algorithm: str, private: Any, **more: Any) -> dict[str, Any]:
    return {**WRITERS[algorithm].to_jwk(private.public_key(), as_dict=True), **more}


def key_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_public_key_checks_its_own_tokens_only(algorithm: str) -> None:
    strict = Guard(JwtSettings(algorithm=algorithm, public_key=pem(PRIVATE[algorithm]), issuer="us", audience="api"))
    assert strict.caller(signed(algorithm).encode()).sub == "ada"
    assert refused(strict, signed(algorithm, OTHERS[algorithm]))
    assert refused(strict, token())
    for other in set(PRIVATE) - {algorithm}:
        assert refused(strict, signed(other))


@pytest.mark.req("G-16")
@pytest.mark.parametrize("algorithm", PRIVATE)
def test_the_public_key_is_no_shared_secret(algorithm: str) -> None:
    """The classic confusion: HS256, signed with the public key that everybody may have."""
    public = pem(PRIVATE[algorithm])
    strict = Guard(JwtSettings(algorithm=algorithm, public_key=public, issuer="us", audience="api"))
    for secret in (public, public.strip(), public.replace(b"\n", b"\r\n"), b""):
        parts = [json.dumps({"alg": "HS256", "typ": "JWT"}).encode(), json.dumps(claims()).encode()]
        text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        mac = base64.urlsafe_b64encode(hmac.digest(secret, text, hashlib.sha256)).rstrip(b"=")
        assert refused(strict, (text + b"." + mac).decode())
    assert refused(strict, jwt.encode(claims(), "", algorithm="none"))


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_a_key_set_is_chosen_from_by_the_kid(algorithm: str) -> None:
    now, next_one = PRIVATE[algorithm], OTHERS[algorithm]
    keys = key_set(jwk(algorithm, now, kid="now"), jwk(algorithm, next_one, kid="next", use="sig", alg=algorithm))
    strict = Guard(JwtSettings(algorithm=algorithm, jwks=keys, issuer="us", audience="api"))
    assert strict.caller(signed(algorithm, now, {"kid": "now"}).encode()).sub == "ada"
    assert strict.caller(signed(algorithm, next_one, {"kid": "next"}).encode()).sub == "ada"
    assert refused(strict, signed(algorithm, next_one, {"kid": "now"}))
    assert refused(strict, signed(algorithm, now, {"kid": "gone"}))
    assert refused(strict, signed(algorithm, now))
    for kid in ("../now", "now\n", "", "n" * 65, 7, ["now"]):
        head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "typ": "JWT", "kid": kid}).encode())
        _, body, signature = signed(algorithm, now).split(".")
        assert refused(strict, f"{head.rstrip(b'=').decode()}.{body}.{signature}")


@pytest.mark.req("P-1326")
def test_a_kid_may_be_base64() -> None:
    """As identity providers name their keys that take the digest of a key for its name."""
    kid = "rDk+3pVx/9cEXAMPLEkidOf44LettersAndSigns0Ag="
    whole = jwk("RS256", RSA, kid=kid)
    several = Guard(JwtSettings(algorithm="RS256", jwks=key_set(whole), issuer="us", audience="api"))
    alone = Guard(JwtSettings(algorithm="RS256", public_key=pem(RSA), issuer="us", audience="api"))
    for strict in (several, alone):
        assert strict.caller(signed("RS256", RSA, {"kid": kid}).encode()).sub == "ada"
        assert refused(strict, signed("RS256", OTHERS["RS256"], {"kid": kid}))


def test_a_key_that_comes_with_the_token_is_not_looked_at() -> None:
    strict = Guard(JwtSettings(algorithm="RS256", jwks=key_set(jwk("RS256", RSA, kid="now"))))
    own = jwk("RS256", OTHERS["RS256"], kid="now")
    for head in (
        {"jwk": own},
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example"},
        {"x5c": ["MIIB"]},
    ):
        assert refused(strict, signed("RS256", OTHERS["RS256"], {"kid": "now", **head}))
        assert not refused(strict, signed("RS256", RSA, {"kid": "now", **head}))


def private_pem() -> bytes:
    return RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        ("RS256", {"public_key": b"nothing"}),
        ("RS256", {"public_key": private_pem()}),
        ("RS256", {"public_key": pem(rsa.generate_private_key(65537, 1024))}),  # noqa: S505 - refused is what is expected
        ("RS256", {"public_key": pem(EC)}),
        ("ES256", {"public_key": pem(ec.generate_private_key(ec.SECP384R1()))}),
        ("EdDSA", {"public_key": pem(RSA)}),
        ("RS256", {"jwks": b"[]"}),
        ("RS256", {"jwks": b"{"}),
        ("RS256", {"jwks": b'{"keys": [7]}'}),
        ("RS256", {"jwks": key_set()}),
        ("RS256", {"jwks": key_set(jwk("RS256", RSA))}),
        ("RS256", {"jwks": key_set(jwk("RS256", RSA, kid="a"), jwk("RS256", RSA, kid="a"))}),
        ("RS256", {"jwks": key_set(jwk("RS256", RSA, kid="../a"))}),
        ("RS256", {"jwks": key_set(jwk("RS256", RSA, kid="a", use="enc"))}),
        ("RS256", {"jwks": key_set(jwk("RS256", RSA, kid="a", alg="RS512"))}),
        ("RS256", {"jwks": key_set(jwk("ES256", EC, kid="a"))}),
        ("RS256", {"jwks": key_set({**RSAAlgorithm.to_jwk(RSA, as_dict=True), "kid": "a"})}),
        ("RS256", {"jwks": key_set({"kty": "oct", "k": "AAAA", "kid": "a"})}),
        ("HS256", {"public_key": pem(RSA)}),
        ("HS256", {"jwks": key_set({"kty": "oct", "k": "AAAA", "kid": "a"})}),
    ],
)
def test_a_key_that_does_not_fit_stops_the_start(algorithm: str, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="auth"):
        Guard(JwtSettings(algorithm=algorithm, **given))


def test_tokens_can_be_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text("one\ntwo\n")
    now = [0.0]
    strict = Guard(JwtSettings(secret=SECRET, revoked=Revoked(file, lambda: now[0])))
    assert refused(strict, token(jti="one"))
    assert refused(strict, token(jti="two"))
    assert not refused(strict, token(jti="three"))
    assert refused(strict, token())
    assert refused(strict, token(jti=7))
    file.write_text("one\ntwo\nthree\n")
    os.utime(file, ns=(1, 1))
    assert not refused(strict, token(jti="three"))
    now[0] += LOOK_SECONDS
    assert refused(strict, token(jti="three"))
    file.unlink()
    now[0] += LOOK_SECONDS
    assert refused(strict, token(jti="three"))
    assert not refused(strict, token(jti="four"))


def test_a_list_of_revoked_tokens_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="revoked_file"):
        Revoked(tmp_path / "nothing")
