"""Which tokens are believed."""

import base64
import json
import time
from typing import Any

import jwt
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.web import JwtSettings, WebSettings, app
from carillon.web.problems import Problem
from carillon.web.request import Caller
from carillon.web.tokens import Guard
from tests.unit.web_parts import endpoint, nothing_to_receive

SECRET = "a-secret-long-enough-for-every-hash-of-the-family-" + "x" * 32
OTHER = "another-secret-that-is-long-enough-for-every-hash-" + "y" * 32


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    full = {"sub": "ada", "role": "user", "tenant_id": "acme", "iat": now, "exp": now + 3500, "iss": "us", "aud": "api"}
    full.update(changed)
    return {name: value for name, value in full.items() if value is not None}


def token(secret: str = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), secret, algorithm=algorithm, headers=headers)


def handmade(head: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(head).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def guard(**changed: Any) -> Guard:
    return Guard(JwtSettings(**{"secret": SECRET, "issuer": "us", "audience": "api", **changed}))


async def asked(*headers: tuple[bytes, bytes]) -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
    """What an endpoint behind tokens answers: the status, the body and the headers."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    settings = WebSettings(jwt=JwtSettings(secret=SECRET, issuer="us", audience="api"))
    served = app([endpoint("GET", "/me")], settings)
    scope = {"type": "http", "method": "GET", "path": "/me", "raw_path": b"/me", "query_string": b""}
    await served({**scope, "headers": list(headers), "client": ("192.0.2.1", 1)}, nothing_to_receive, send)
    return said[0]["status"], json.loads(said[1]["body"]), dict(said[0]["headers"])


def bearer(text: str) -> bytes:
    return f"Bearer {text}".encode()


@pytest.mark.req("S2-15")
def test_a_good_token_names_the_caller() -> None:
    assert guard().caller(token().encode()) == Caller("ada", "user", "acme")


async def test_the_scheme_is_read_whatever_its_case() -> None:
    assert (await asked((b"authorization", f"bEARER {token()}".encode())))[0] == 200


@pytest.mark.parametrize(("claim", "role"), [("admin", "admin"), ("user", "user"), ("root", "user"), (None, "user")])
def test_roles_come_from_an_allow_list(claim: str | None, role: str) -> None:
    assert guard().caller(token(role=claim).encode()).role == role


def test_issuer_and_audience_matter_only_when_configured() -> None:
    lenient = guard(issuer=None, audience=None)
    assert lenient.caller(token(iss=None, aud=None).encode()).sub == "ada"
    assert lenient.caller(token(iss="them", aud="other").encode()).sub == "ada"


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
        "too long and right": bearer(token(note="n" * 9000)),
        "not a token": bearer("abc"),
        "two parts": bearer(f"{head}.{body}"),
        "five parts": bearer(f"{good}.x.y"),
        "no signature": bearer(f"{head}.{body}."),
        "cut signature": bearer(good[:-4]),
        "changed body": bearer(f"{head}.{body[:-2]}AA.{signature}"),
        "not ascii": "Bearer ü.é.ø".encode(),
        "bytes": b"Bearer \xff\xfe.\x80.\x81",
        "wrong secret": bearer(token(OTHER)),
    }


def talking() -> dict[str, bytes | None]:
    """Tokens whose head would have us believe them in another way."""
    return {
        "none": bearer(handmade({"alg": "none", "typ": "JWT"}, claims())),
        "None": bearer(handmade({"alg": "None", "typ": "JWT"}, claims())),
        "no alg": bearer(handmade({"typ": "JWT"}, claims(), b"x")),
        "hs384": bearer(token(algorithm="HS384")),
        "hs512": bearer(token(algorithm="HS512")),
        "rs256 by name": bearer(handmade({"alg": "RS256", "typ": "JWT"}, claims(), b"x" * 32)),
        "alg is a list": bearer(handmade({"alg": ["HS256"], "typ": "JWT"}, claims(), b"x")),
        "typ": bearer(token(headers={"typ": "at+jwt"})),
        "typ is a number": bearer(token(headers={"typ": 7})),
        "crit": bearer(token(headers={"crit": ["exp"]})),
        "kid path": bearer(token(headers={"kid": "../../dev/null"})),
        "kid sql": bearer(token(headers={"kid": "' OR 1=1 --"})),
        "kid long": bearer(token(headers={"kid": "k" * 65})),
        "head is a list": bearer(handmade([], claims(), b"x")),  # type: ignore[arg-type]
        "body is a list": bearer(handmade({"alg": "HS256"}, [], b"x")),  # type: ignore[arg-type]
        "exp is infinite": bearer(handmade({"alg": "HS256", "typ": "JWT"}, claims(exp=1e400), b"x")),
        "jku": bearer(token(OTHER, headers={"jku": "https://evil.example/keys"})),
        "x5u": bearer(token(OTHER, headers={"x5u": "https://evil.example/chain"})),
        "jwk": bearer(token(OTHER, headers={"jwk": {"kty": "oct", "k": "AAAA"}})),
        "a key of nobody": bearer(f"ck_{'a' * 8}_{'b' * 43}"),
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
async def test_no_forged_token_passes_and_all_failures_look_alike() -> None:
    said = set()
    given = broken() | talking() | lying()
    # Its owner alone can have made it: the answer says how long a token may live, and gives nothing else away.
    for name in ("lives too long", "exp is huge"):
        status, body, _ = await asked((b"authorization", given.pop(name) or b""))
        assert (status, "exp may be at most" in body["error"]["message"]) == (401, True), name
    for name, authorization in given.items():
        headers = [] if authorization is None else [(b"authorization", authorization)]
        status, body, answered = await asked(*headers)
        assert status == 401, name
        body["error"] = {field: body["error"][field] for field in ("code", "message", "details")}
        said.add((json.dumps(body, sort_keys=True), answered[b"www-authenticate"]))
    assert len(said) == 1


async def test_the_table_of_attacks_meets_a_door_that_opens() -> None:
    assert (await asked((b"authorization", bearer(token()))))[0] == 200


async def test_two_tokens_or_a_token_and_a_key_are_refused() -> None:
    good = (b"authorization", bearer(token()))
    assert (await asked(good, good))[0] == 400
    assert (await asked(good, (b"x-api-key", token().encode())))[0] == 401
    assert (await asked((b"x-api-key", token().encode())))[0] == 401
    assert (await asked((b"x-api-key", b"ck_x"), (b"x-api-key", b"ck_x")))[0] == 400


@pytest.mark.parametrize("secret", ["x" * 31, "", "secret", "changeme"])
def test_a_short_secret_stops_the_start(secret: str) -> None:
    with pytest.raises(ConfigurationError):
        Guard(JwtSettings(secret=secret))


@pytest.mark.parametrize(
    "secret",
    [
        "x" * 64,
        "secret" * 8,
        "0123456789" * 4,
        "change-me-change-me-change-me-please",
        "your-256-bit-secret-goes-here-0123456789",
        "a-string-secret-at-least-256-bits-long",
        "My-Super-Secret-Key-For-The-Whole-Wide-World",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI\n-----END PUBLIC KEY-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB7xgW2qv9Zz",
    ],
)
def test_a_secret_that_can_be_guessed_stops_the_start(secret: str) -> None:
    assert len(secret) >= 32
    with pytest.raises(ConfigurationError, match="JWT_SECRET_KEY"):
        Guard(JwtSettings(secret=secret))


def test_a_random_secret_does_not() -> None:
    Guard(JwtSettings(secret="q3Yt7-Zk0mVw2Rb9Lx5Nd8Hs1Gf4Jc6P"))


def test_what_else_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="leeway"):
        guard(leeway_seconds=31)
    with pytest.raises(ConfigurationError, match="one of"):
        guard(public_key=b"x")
    with pytest.raises(ConfigurationError, match="one of"):
        Guard(JwtSettings())
    with pytest.raises(ConfigurationError, match="HS256 takes"):
        guard(algorithm="RS256")


def refused(strict: Guard, text: str) -> bool:
    try:
        strict.caller(text.encode())
    except Problem as problem:
        return problem.status == 401
    return False


def test_administrators_can_be_given_less_time() -> None:
    strict = guard(admin_max_lifetime_seconds=300.0)
    now = int(time.time())
    assert refused(strict, token(role="admin", iat=now, exp=now + 600))
    assert not refused(strict, token(role="admin", iat=now, exp=now + 300))
    assert not refused(strict, token(role="user", iat=now, exp=now + 600))


def test_the_type_is_pinned() -> None:
    assert not refused(guard(), token(headers={"typ": "application/jwt"}))
    assert not refused(guard(), token(headers={"typ": None}))
    pinned = guard(typ="at+jwt")
    assert not refused(pinned, token(headers={"typ": "at+jwt"}))
    assert refused(pinned, token())
    assert refused(pinned, token(headers={"typ": None}))
