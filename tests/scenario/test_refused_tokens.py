"""Refused tokens: the log tells the operator who and why, and the caller learns neither."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.scenario.test_listo_auth import key, keys
from tests.support.listo_stand import SECRET, Listo
from tests.support.process import Program
from tests.support.waiting import wait_until

OTHER = "another-secret-of-forty-characters-or-even-more"
ASKED = "/api/v1/notifications/0193aaaa"
GUESSED = "too many wrong tokens or keys came from this address"
MOST_LINES = 10
"""Of one kind within ten seconds."""


@pytest.fixture
def listo(tmp_path: Path) -> Iterator[Listo]:
    (tmp_path / "revoked").write_text("t-7\n")
    settings = f'[http]\nauth_failures_per_minute = 1000\n[auth]\nrevoked_file = "{tmp_path / "revoked"}"\n'
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Listo(tmp_path / "listo", url, settings, JWT_SECRET_KEY=SECRET, JWT_ISSUER="us", JWT_AUDIENCE="api") as stand:
        yield stand


def bearer(secret: str = SECRET, headers: dict[str, Any] | None = None, **changed: Any) -> dict[str, str]:
    now = int(time.time())
    claims = {"sub": "ada", "role": "user", "iat": now, "exp": now + 600, "iss": "us", "aud": "api", "jti": "t-1"}
    said = {name: value for name, value in (claims | changed).items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode(said, secret, algorithm='HS256', headers=headers)}"}


def refused() -> dict[str, list[dict[str, str]]]:
    """What a caller may show, by what the operator is told about it."""
    now = int(time.time())
    return {
        "missing": [{}, {"Authorization": "Bearer "}],
        "malformed": [
            {"Authorization": "Bearer nonsense"},
            {"Authorization": "Basic YWRhOmFkYQ=="},
            {"X-API-Key": "ck_short"},
            bearer(note="n" * 9000),
            bearer(headers={"kid": "../../dev/null"}),
            bearer(tenant_id="a/b"),
            bearer(sub=7),
        ],
        "unknown": [{"X-API-Key": f"ck_{'a' * 8}_{'b' * 43}"}],
        "forged": [bearer(OTHER), bearer(OTHER, iat=now - 900, exp=now - 60)],
        "expired": [bearer(iat=now - 900, exp=now - 60)],
        "premature": [bearer(nbf=now + 300), bearer(iat=now + 300)],
        "overlong": [bearer(exp=now + 90_000)],
        "foreign": [bearer(iss="them"), bearer(aud="them")],
        "incomplete": [bearer(sub=None), bearer(iss=None), bearer(jti=None)],
        "revoked": [bearer(jti="t-7")],
        "misplaced": [bearer() | {"X-API-Key": "ck_short"}, {"X-API-Key": bearer()["Authorization"].split()[1]}],
    }


def told(program: Program) -> str:
    return "\n".join([*map(json.dumps, program.lines), *program.noise])


@pytest.mark.req("X2-9")
def test_a_limit_of_administrators_is_told_to_administrators_alone(listo: Listo) -> None:
    listo.start(CARILLON_AUTH__ADMIN_MAX_LIFETIME_SECONDS="300")
    assert "at most 300 s after iat" in listo.client.get(ASKED, bearer(role="admin")).body["detail"]
    assert listo.client.get(ASKED, bearer()).status == 404
    forged = listo.client.get(ASKED, bearer(OTHER, exp=int(time.time()) + 90_000))
    assert (forged.status, forged.body["detail"]) == (401, "a valid bearer token is required")


@pytest.mark.req("X2-9")
def test_why_a_token_was_refused_is_told_to_the_operator_alone(listo: Listo) -> None:
    program = listo.start()
    answers = set()
    for reason, shown in refused().items():
        for headers in shown:
            mark = program.mark()
            reply = listo.client.get(f"{ASKED}?note=hush", headers)
            line = program.wait_for("token_refused", since=mark)
            assert (reply.status, line["reason"], line["level"]) == (401, reason, "warning"), headers
            assert (line["method"], line["path"]) == ("GET", "/api/v1/notifications/{id}")
            assert line["address"] == "127.0.0.1"
            assert reason in line["message"]
            assert "[redacted]" not in line["message"]
            if reason == "overlong":
                # Only the maker of a token can mend this, and only a holder of our signature is told.
                assert reply.body["detail"] == "the token lives too long: exp may be at most 3600 s after iat"
                continue
            same = {name: reply.body["error"][name] for name in ("code", "message", "details")}
            answers.add(json.dumps([reply.body["detail"], reply.headers["www-authenticate"], same]))
    assert len(answers) == 1, "the caller is told nothing"
    secrets = [value for each in refused().values() for headers in each for value in headers.values()]
    for secret in [*secrets, "nonsense", "YWRhOmFkYQ==", "ck_short", "0193aaaa", "hush", "t-7"]:
        assert not secret or secret not in told(program)


def test_a_key_is_forged_expired_or_taken_back(listo: Listo) -> None:
    program = listo.start()
    good, brief, gone = key(listo, "good"), key(listo, "brief", "--expires", "1s"), key(listo, "gone")
    keys(listo, "revoke", gone["id"])

    def reason(text: str) -> str:
        mark = program.mark()
        assert listo.client.get(ASKED, {"X-API-Key": text}).status == 401
        return str(program.wait_for("token_refused", since=mark)["reason"])

    assert reason(good["key"][:-1] + ("a" if good["key"][-1] != "a" else "b")) == "forged"
    assert reason(gone["key"]) == "revoked"
    wait_until(lambda: listo.client.get(ASKED, {"X-API-Key": brief["key"]}).status == 401, timeout=40, what="its end")
    assert reason(brief["key"]) == "expired"
    assert not [one for one in (good, brief, gone) if one["key"].split("_")[2] in told(program)]


def test_what_is_believed_or_forbidden_is_no_refused_token(listo: Listo) -> None:
    program = listo.start()
    assert listo.client.get(ASKED, bearer()).status == 404
    assert listo.client.get("/api/v1/dead-letters", bearer()).status == 403
    assert listo.client.get("/nowhere").status == 404
    assert listo.client.get("/healthz").status == 200
    assert listo.client.get(ASKED, bearer(OTHER)).status == 401
    program.wait_for("token_refused")
    assert len(program.events("token_refused")) == 1


def test_a_flood_of_one_kind_is_thinned_and_hides_no_other(listo: Listo) -> None:
    program = listo.start()
    for _ in range(3 * MOST_LINES):
        assert listo.client.get(ASKED, {"Authorization": "Bearer nonsense"}).status == 401
    assert listo.client.get(ASKED, bearer(OTHER)).status == 401
    program.wait_for("token_refused", lambda line: line["reason"] == "forged")
    written = [line for line in program.events("token_refused") if line["reason"] == "malformed"]
    assert 1 <= len(written) <= 2 * MOST_LINES, "a second window may have begun"


def test_those_who_guess_are_told_that_they_guess_and_when_to_come_back(listo: Listo) -> None:
    program = listo.start(
        CARILLON_HTTP__AUTH_FAILURES_PER_MINUTE="2", CARILLON_HTTP__ANONYMOUS_REQUESTS_PER_SECOND="0.01"
    )
    wrong = [listo.client.get(ASKED, bearer(OTHER)) for _ in range(3)]
    assert [reply.status for reply in wrong] == [401, 401, 429]
    seconds = wrong[2].headers["retry-after"]
    assert wrong[2].body["detail"] == f"{GUESSED}: try again in {seconds} s"
    assert wrong[2].body["error"]["code"] == "TOO_MANY_REQUESTS"
    program.wait_for("token_refused", lambda _: len(program.events("token_refused")) == len(wrong))
    nothing = [listo.client.get(ASKED) for _ in range(2)]
    assert [reply.status for reply in nothing] == [401, 429]
    assert "without a valid token or key" in nothing[1].body["detail"]
    assert listo.client.get(ASKED, bearer()).status == 404
