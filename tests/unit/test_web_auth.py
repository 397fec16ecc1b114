"""Which tokens are believed."""

import base64
import json
import time
from typing import Any

import jwt
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.web.auth import Guard, JwtSettings
from carillon.web.problems import Problem
from carillon.web.request import Caller

SECRET = "a-secret-long-enough-for-every-hash-of-the-family-" + "x" * 32
OTHER = "another-secret-that-is-long-enough-for-every-hash-" + "y" * 32


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    full = {"sub": "ada", "role": "user", "tenant_id": "acme", "iat": now, "exp": now + 600, "iss": "us", "aud": "api"}
    full.update(changed)
    return {name: value for name, value in full.items() if value is not None}


def token(secret: str = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), secret, algorithm=algorithm, headers=headers)


def handmade(head: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(head).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def guard() -> Guard:
    return Guard(JwtSettings(secret=SECRET, issuer="us", audience="api"))


def bearer(text: str) -> bytes:
    return f"Bearer {text}".encode()


@pytest.mark.req("S2-15")
def test_a_good_token_names_the_caller() -> None:
    assert guard().caller(bearer(token())) == Caller("ada", "user", "acme")


def test_the_scheme_is_read_whatever_its_case() -> None:
    assert guard().caller(f"bEARER {token()}".encode()).sub == "ada"


@pytest.mark.parametrize(("claim", "role"), [("admin", "admin"), ("user", "user"), ("root", "user"), (None, "user")])
def test_roles_come_from_an_allow_list(claim: str | None, role: str) -> None:
    assert guard().caller(bearer(token(role=claim))).role == role


def test_issuer_and_audience_matter_only_when_configured() -> None:
    lenient = Guard(JwtSettings(secret=SECRET))
    assert lenient.caller(bearer(token(iss=None, aud=None))).sub == "ada"
    assert lenient.caller(bearer(token(iss="them", aud="other"))).sub == "ada"


def broken() -> dict[str, bytes | None]:
    """Tokens whose form or signature is wrong."""
    good = token()
    head, body, signature = good.split(".")
    return {
        "nothing": None,
        "empty": b"",
        "no scheme": good.encode(),
        "basic": b"Basic " + good.encode(),
        "scheme only": b"Bearer ",
        "too long": bearer("a" * 9000),
        "not a token": bearer("abc"),
        "two parts": bearer(f"{head}.{body}"),
        "five parts": bearer(f"{good}.x.y"),
        "no signature": bearer(f"{head}.{body}."),
        "cut signature": bearer(good[:-4]),
        "changed body": bearer(f"{head}.{body[:-2]}AA.{signature}"),
        "not ascii": "Bearer ü.é.ø".encode(),
        "bytes": b"Bearer \xff\xfe.\x80.\x81",
        "wrong secret": bearer(token(OTHER)),
        "none": bearer(handmade({"alg": "none", "typ": "JWT"}, claims())),
        "None": bearer(handmade({"alg": "None", "typ": "JWT"}, claims())),
        "no alg": bearer(handmade({"typ": "JWT"}, claims(), b"x")),
        "hs384": bearer(token(algorithm="HS384")),
        "hs512": bearer(token(algorithm="HS512")),
        "rs256 by name": bearer(handmade({"alg": "RS256", "typ": "JWT"}, claims(), b"x" * 32)),
        "alg is a list": bearer(handmade({"alg": ["HS256"], "typ": "JWT"}, claims(), b"x")),
        "typ": bearer(token(headers={"typ": "at+jwt"})),
        "crit": bearer(token(headers={"crit": ["exp"]})),
        "kid path": bearer(token(headers={"kid": "../../dev/null"})),
        "kid sql": bearer(token(headers={"kid": "' OR 1=1 --"})),
        "kid long": bearer(token(headers={"kid": "k" * 65})),
        "head is a list": bearer(handmade([], claims(), b"x")),  # type: ignore[arg-type]
        "body is a list": bearer(handmade({"alg": "HS256"}, [], b"x")),  # type: ignore[arg-type]
        "exp is infinite": bearer(handmade({"alg": "HS256", "typ": "JWT"}, claims(exp=1e400), b"x")),
        "jku": bearer(token(OTHER, headers={"jku": "https://evil.example/keys"})),
        "jwk": bearer(token(OTHER, headers={"jwk": {"kty": "oct", "k": "AAAA"}})),
    }


def lying() -> dict[str, bytes | None]:
    """Tokens whose signature is right and whose claims are not."""
    now = int(time.time())
    return {
        "expired": bearer(token(iat=now - 900, exp=now - 60)),
        "no exp": bearer(token(exp=None)),
        "exp is text": bearer(token(exp="tomorrow")),
        "exp is huge": bearer(token(exp=10**30)),
        "no iat": bearer(token(iat=None)),
        "iat in the future": bearer(token(iat=now + 300)),
        "iat is text": bearer(token(iat="yesterday")),
        "lives too long": bearer(token(exp=now + 90_000)),
        "not yet": bearer(token(nbf=now + 300)),
        "no sub": bearer(token(sub=None)),
        "sub is empty": bearer(token(sub="")),
        "sub is long": bearer(token(sub="s" * 256)),
        "sub has a line break": bearer(token(sub="a\nb")),
        "no iss": bearer(token(iss=None)),
        "other iss": bearer(token(iss="them")),
        "iss prefix": bearer(token(iss="us.evil")),
        "no aud": bearer(token(aud=None)),
        "other aud": bearer(token(aud="other")),
        "aud list": bearer(token(aud=["api", "other"])),
        "tenant is a number": bearer(token(tenant_id=7)),
        "tenant has a slash": bearer(token(tenant_id="acme/orders")),
        "tenant is empty": bearer(token(tenant_id="")),
    }


@pytest.mark.req("S2-15", "G-16")
def test_no_forged_token_passes_and_all_failures_look_alike() -> None:
    said = set()
    for name, authorization in (broken() | lying()).items():
        with pytest.raises(Problem) as caught:
            guard().caller(authorization)
        said.add((caught.value.status, caught.value.message, tuple(caught.value.headers.items())))
        assert caught.value.status == 401, name
    assert len(said) == 1


def test_a_short_secret_stops_the_start() -> None:
    with pytest.raises(ConfigurationError):
        Guard(JwtSettings(secret="x" * 31))
    Guard(JwtSettings(secret="x" * 32))
