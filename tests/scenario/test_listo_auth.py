"""Listo's door: open on loopback and loud about it, or closed to everybody without a token or a key."""

import http.client
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.client import Client, Reply
from tests.support.listo_stand import SECRET, Listo, stand_fixture, token
from tests.support.process import run_carillon
from tests.support.waiting import wait_until
from tests.unit.test_web_auth import claims

listo = stand_fixture(start=False)
SEND = "/api/v1/notifications/send"
MAIL = {"templateKey": "order_confirmed", "channel": "email", "recipient": "ada@example.com"}
READY = {"orderId": "A-1", "name": "Ada", "total": "12", "code": "1", "link": "https://example.org"}


def send(client: Client, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    return client.call("POST", SEND, {**MAIL, "data": READY, **fields}, headers)


def key(listo: Listo, *arguments: str) -> dict[str, Any]:
    """What `carillon keys create --json` says."""
    return json.loads(keys(listo, "create", *arguments, "--json").stdout)  # type: ignore[no-any-return]


def keys(listo: Listo, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = command(listo, "keys", *arguments)
    assert done.returncode == 0, done.stderr
    return done


def command(listo: Listo, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_carillon(
        [*arguments, "--blueprint", "listo"],
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", **listo.environment()},
        cwd=listo.folder,
        timeout=60,
    )


@pytest.mark.req("S2-15")
def test_without_a_secret_the_door_is_open_and_says_so(listo: Listo) -> None:
    program = listo.start()
    (line,) = program.events("open_door")
    assert line["level"] == "warning"
    assert "JWT_SECRET_KEY" in line["setting"]
    assert send(listo.client).status == 202
    assert send(listo.client, {"Host": "evil.example"}).status == 421
    # The line to paste is whole, the address of its recipient too.
    pasted = subprocess.run(shlex.split(program.wait_ready()["send"]), capture_output=True, check=True, text=True)
    assert "ada@example.org" in program.wait_ready()["send"]
    assert "MISSING_VARIABLES" in pasted.stdout or "notificationId" in pasted.stdout, pasted.stdout


@pytest.mark.req("S2-15", "S2-126")
def test_with_a_secret_a_token_is_needed(listo: Listo) -> None:
    program = listo.start(JWT_SECRET_KEY=SECRET)
    assert not program.events("open_door")
    assert send(listo.client).status == 401
    assert send(listo.client, {"Authorization": "Bearer nonsense"}).status == 401
    assert send(listo.client, token()).status == 202
    assert listo.client.get("/api/v1/dead-letters").status == 401
    assert listo.client.get("/api/v1/dead-letters", token()).status == 403
    assert listo.client.get("/api/v1/dead-letters", token(role="admin")).status == 200
    for path in ("/health", "/healthz", "/readyz"):
        assert listo.client.get(path).status == 200


@pytest.mark.req("S2-15")
def test_strangers_learn_from_health_only_what_a_load_balancer_needs(listo: Listo) -> None:
    listo.start(JWT_SECRET_KEY=SECRET)
    for caller in (None, token()):
        told = listo.client.get("/health", caller).body
        assert set(told) == {"status", "timestamp", "checks"}
        assert "ledger" in told["checks"]
        assert all(set(facts) == {"status"} for facts in told["checks"].values()), told
        assert "breakers" not in told["checks"]
    whole = listo.client.get("/health", token(role="admin")).body["checks"]
    assert whole["ledger"]["version"]
    assert "states" in whole["breakers"]
    assert listo.client.get("/health", {"Authorization": "Bearer nonsense"}).status == 401
    # Whether a process lives and takes requests is nobody's token's business.
    for path in ("/healthz", "/readyz"):
        assert listo.client.get(path, {"Authorization": "Bearer nonsense"}).status == 200


@pytest.mark.req("S2-15")
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"CARILLON_HTTP__HOST": "0.0.0.0"}, "JWT_SECRET_KEY"),  # noqa: S104 - refused is what is expected
        ({"JWT_SECRET_KEY": "secret"}, "JWT_SECRET_KEY"),
        ({"JWT_SECRET_KEY": "changeme"}, "JWT_SECRET_KEY"),
        ({"JWT_SECRET_KEY": "changeme-changeme-changeme-changeme-1"}, "JWT_SECRET_KEY"),
        ({"JWT_SECRET_KEY": "a-string-secret-at-least-256-bits-long"}, "JWT_SECRET_KEY"),
        ({"JWT_SECRET_KEY": SECRET, "CARILLON_AUTH__ALGORITHM": "RS256"}, "auth.algorithm"),
        ({"CARILLON_AUTH__ALGORITHM": "none", "JWT_SECRET_KEY": SECRET}, "auth.algorithm"),
        ({"JWT_SECRET_KEY": SECRET, "CARILLON_AUTH__LEEWAY_SECONDS": "60"}, "auth.leeway_seconds"),
        ({"CARILLON_AUTH__JWKS_FILE": "nowhere.json", "CARILLON_AUTH__ALGORITHM": "RS256"}, "auth.jwks_file"),
        ({"JWT_SECRET_KEY": SECRET, "CARILLON_AUTH__REVOKED_FILE": "nowhere"}, "auth.revoked_file"),
        ({"CARILLON_HTTP__AUTH_FAILURES_PER_MINUTE": "-1"}, "http.auth_failures_per_minute"),
        ({"CARILLON_HTTP__KEY_REQUESTS_PER_SECOND": "nan"}, "http.key_requests_per_second"),
    ],
)
def test_the_start_is_refused(laptop: Listo, changed: dict[str, str], named: str) -> None:
    program = laptop.launch(**changed)
    assert program.wait() == 2
    assert named in program.tail()
    assert "Traceback" not in program.tail()
    for secret in changed.values():
        assert secret in {"secret", "changeme", "none", "60"} or len(secret) < 20 or secret not in program.tail()


@pytest.mark.req("S2-15")
def test_every_interface_is_served_once_callers_are_asked(laptop: Listo) -> None:
    laptop.start(JWT_SECRET_KEY=SECRET, CARILLON_HTTP__HOST="0.0.0.0")  # noqa: S104 - that is the test
    port = laptop.address.rpartition(":")[2]
    assert send(Client(f"http://127.0.0.1:{port}")).status == 401
    assert send(Client(f"http://127.0.0.1:{port}"), token()).status == 202


def test_tokens_signed_with_a_private_key(laptop: Listo, tmp_path: Path) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "issuer.pem").write_bytes(public)
    laptop.start(
        CARILLON_AUTH__ALGORITHM="EdDSA",
        CARILLON_AUTH__PUBLIC_KEY_FILE=str(tmp_path / "issuer.pem"),
        JWT_AUDIENCE="api",
    )
    signed = jwt.encode(claims(), private, algorithm="EdDSA")
    assert send(laptop.client, {"Authorization": f"Bearer {signed}"}).status == 202
    assert send(laptop.client, token(aud="api")).status == 401
    assert send(laptop.client).status == 401


def test_a_key_is_shown_once_used_and_taken_back(listo: Listo) -> None:
    listo.start(JWT_SECRET_KEY=SECRET)
    made = key(listo, "orders-backend", "--tenant", "acme", "--expires", "90d")
    text = made["key"]
    assert send(listo.client, {"Authorization": f"Bearer {text}"}).status == 202
    sent = send(listo.client, {"X-API-Key": text})
    assert sent.status == 202
    shown = listo.client.get(f"/api/v1/notifications/{sent.body['notificationId']}", {"X-API-Key": text})
    assert shown.body["tenantId"] == "acme"
    assert "userId" not in shown.body or shown.body["userId"] is None
    assert send(listo.client, {"X-API-Key": text}, tenantId="globex").status == 403
    assert listo.client.get("/api/v1/dead-letters", {"X-API-Key": text}).status == 403
    listed = keys(listo, "list", "--json").stdout
    assert text not in listed
    (row,) = json.loads(listed)
    assert (row["id"], row["name"], row["tenantId"], row["state"]) == (made["id"], "orders-backend", "acme", "active")
    wait_until(lambda: json.loads(keys(listo, "list", "--json").stdout)[0]["lastUsedAt"], timeout=60, what="a note")
    assert made["id"] in keys(listo, "list").stdout
    keys(listo, "revoke", made["id"])
    wait_until(lambda: send(listo.client, {"X-API-Key": text}).status == 401, timeout=40, what="the key to end")
    assert json.loads(keys(listo, "list", "--json").stdout)[0]["state"] == "revoked"


def test_keys_alone_close_the_door(listo: Listo) -> None:
    program = listo.start(CARILLON_AUTH__REQUIRED="true")
    assert not program.events("open_door")
    assert send(listo.client).status == 401
    assert send(listo.client, token()).status == 401
    user, admin = key(listo, "bell")["key"], key(listo, "desk", "--role", "admin")["key"]
    assert send(listo.client, {"X-API-Key": user}).status == 202
    assert listo.client.get("/api/v1/dead-letters", {"X-API-Key": user}).status == 403
    assert listo.client.get("/api/v1/dead-letters", {"X-API-Key": admin}).status == 200


def test_what_is_wrong_with_a_key_is_said(laptop: Listo) -> None:
    first = keys(laptop, "create", "bell", "--tenant", "acme")
    assert first.stdout.startswith("ck_")
    assert "auth.required" in first.stderr
    keys(laptop, "create", "bell", "--tenant", "acme")
    for arguments, words in (
        (("create", "bell", "--tenant", "acme"), "2 active keys"),
        (("create", "bell", "--tenant", "a/b"), "--tenant"),
        (("create", " "), "a name is"),
        (("create", "bell", "--expires", "soon"), "--expires"),
        (("revoke", "nobody00"), "there is no key"),
    ):
        done = command(laptop, "keys", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Listo]:
    """Where the engine makes no difference."""
    with Listo(tmp_path / "laptop", f"sqlite:///{tmp_path}/laptop.db") as stand:
        yield stand


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Listo]:
    """One with small limits."""
    limits = "[http]\nkey_requests_per_second = 0.01\nrequests_burst = 3\nauth_failures_per_minute = 2\n"
    limits += 'anonymous_requests_per_second = 2\nallowed_hosts = ["bells.example"]\n'
    with Listo(tmp_path / "limited", f"sqlite:///{tmp_path}/limited.db", limits, JWT_SECRET_KEY=SECRET) as stand:
        stand.start()
        yield stand


@pytest.mark.req("S2-15")
def test_limits_hold_back_those_who_guess_and_never_a_valid_token(limited: Listo) -> None:
    client = limited.client
    wrong = [client.get("/api/v1/notifications/x", {"Authorization": "Bearer wrong"}) for _ in range(4)]
    assert [reply.status for reply in wrong] == [401, 401, 429, 429]
    assert int(wrong[3].headers["retry-after"]) >= 1
    nothing = [client.get("/api/v1/notifications/x").status for _ in range(6)]
    assert nothing[:4] == [401] * 4
    assert nothing[-1] == 429
    assert [send(client, token()).status for _ in range(8)] == [202] * 8
    made = key(limited, "bell")["key"]
    assert [send(client, {"X-API-Key": made}).status for _ in range(4)] == [202, 202, 202, 429]
    other = key(limited, "other")["key"]
    assert send(client, {"X-API-Key": other}).status == 202
    assert [client.get("/healthz").status for _ in range(8)] == [200] * 8


def test_only_named_hosts_are_served(limited: Listo) -> None:
    for host, status in (("bells.example", 202), ("BELLS.example:80", 202), ("localhost", 202), ("evil.example", 421)):
        assert send(limited.client, {"Host": host, **token()}).status == status


@pytest.mark.req("G-16")
def test_every_answer_carries_the_safe_headers(laptop: Listo) -> None:
    laptop.start(JWT_SECRET_KEY=SECRET)
    admin = token(role="admin")
    document = laptop.client.get("/openapi.json", admin).body
    calls = [(method.upper(), path) for path, operations in document["paths"].items() for method in operations]
    calls += [("GET", path) for path in ("/docs", "/docs/docs.js", "/docs/style.css", "/openapi.json", "/nowhere")]
    assert len(calls) > 15
    for method, path in calls:
        for headers in ({}, admin, {"Origin": "https://evil.example", **admin}):
            reply = laptop.client.call(method, path.replace("{", "").replace("}", ""), None, headers)
            assert_safe(reply, f"{method} {path}")
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = laptop.client.call("OPTIONS", SEND, None, preflight)
    assert reply.status == 405
    assert_safe(reply, "OPTIONS")


def assert_safe(reply: Reply, call: str) -> None:
    headers = reply.headers
    assert headers["x-content-type-options"] == "nosniff", call
    assert headers["referrer-policy"] == "no-referrer", call
    assert "frame-ancestors 'none'" in headers["content-security-policy"], call
    assert "default-src 'none'" in headers["content-security-policy"], call
    assert headers["cache-control"] in {"no-store", "no-cache"}, call
    assert not [name for name in headers if name.startswith("access-control-")], call


def test_two_authorization_headers_are_refused(laptop: Listo) -> None:
    laptop.start(JWT_SECRET_KEY=SECRET)
    host, _, port = laptop.address.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=40)
    try:
        connection.putrequest("GET", "/api/v1/notifications/x")
        for _ in range(2):
            connection.putheader("Authorization", token()["Authorization"])
        connection.endheaders()
        assert connection.getresponse().status == 400
    finally:
        connection.close()


def test_the_documents_can_be_switched_off(laptop: Listo) -> None:
    laptop.start(CARILLON_HTTP__DOCS="false")
    for path in ("/docs", "/docs/docs.js", "/openapi.json"):
        assert laptop.client.get(path).status == 404
