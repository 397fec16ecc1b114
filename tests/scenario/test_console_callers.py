"""What the console is told depends on who asks: its pages, and the catalogue behind its templates."""

import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from tests.support.http_client import Client, serving

SECRET = "a secret of the catalogue's tests, which is long enough"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("catalogue")
    settings = {"JWT_SECRET_KEY": SECRET, "JWT_ISSUER": "tests", "JWT_AUDIENCE": "carillon"}
    with serving(folder, **settings, CARILLON_LOCALE__SUPPORTED="en-US,pt-BR") as (_, opened):
        yield opened


def bearer(tenant: str | None = None, role: str = "admin") -> dict[str, str]:
    now = int(time.time())
    claims: dict[str, Any] = {"sub": "root", "role": role, "iat": now, "exp": now + 600}
    claims |= {"iss": "tests", "aud": "carillon"} | ({} if tenant is None else {"tenant_id": tenant})
    return {"authorization": f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"}


def catalogue(client: Client, **who: str) -> dict[tuple[str, str, str | None], Any]:
    answer = client.get("/api/v1/console/templates", **who)
    assert answer.status == 200, answer.body
    return {(one["templateKey"], one["channel"], one["tenantId"]): one for one in answer.json["items"]}


def posted(client: Client, who: dict[str, str], **fields: Any) -> Any:
    body = {"channel": "sms", "locale": "en-US", "bodyTemplate": "Hi {{name}}", **fields}
    answer = client.post("/api/v1/templates", body, **who)
    assert answer.status == 201, answer.body
    return answer.json


def test_folders_and_gaps(client: Client) -> None:
    found = catalogue(client, **bearer())
    entry = found["welcome", "push", None]
    assert [variant["locale"] for variant in entry["variants"]] == ["en-US"]
    assert entry["variants"][0]["id"] is None
    assert entry["variants"][0]["variables"] == ["name", "link"]
    assert entry["gaps"] == ["pt-BR"]


def test_what_is_stored_goes_before_the_folder_until_it_is_switched_off(client: Client) -> None:
    made = posted(client, bearer(), templateKey="welcome", channel="email")
    (variant,) = catalogue(client, **bearer())["welcome", "email", None]["variants"]
    assert (variant["id"], variant["version"], variant["bodyTemplate"]) == (made["id"], 1, "Hi {{name}}")
    change = client.call(
        "PUT", f"/api/v1/templates/{made['id']}", '{"isActive":false}', content_type="application/json", **bearer()
    )
    assert change.status == 200, change.body
    (variant,) = catalogue(client, **bearer())["welcome", "email", None]["variants"]
    assert variant["id"] is None


def test_a_tenant_sees_its_own_and_everybodys(client: Client) -> None:
    posted(client, bearer("acme"), templateKey="secret-of-acme")
    assert ("secret-of-acme", "sms", "acme") in catalogue(client, **bearer("acme"))
    theirs = catalogue(client, **bearer("globex"))
    assert ("welcome", "push", None) in theirs
    assert not [key for key in theirs if key[0] == "secret-of-acme"]
    assert ("secret-of-acme", "sms", "acme") in catalogue(client, **bearer())


def test_nobody_is_shown_a_page_that_is_closed_to_them(client: Client) -> None:
    def pages(**who: str) -> list[str]:
        return list(client.get("/api/v1/console/surface", **who).json["pages"])

    every = ["overview", "notifications", "dead-letters", "templates", "outbox", "drills", "rehearsal"]
    every += ["audit", "categories", "digests", "people", "providers", "suppressions"]
    assert pages(**bearer()) == every
    closed = {"overview", "outbox", "drills", "rehearsal", "providers"}
    assert pages(**bearer("acme")) == [page for page in every if page not in closed]
    assert pages(**bearer("acme", role="user")) == ["notifications"]


def test_editors_only(client: Client) -> None:
    assert client.get("/api/v1/console/templates").status == 401
    assert client.get("/api/v1/console/templates", **bearer(role="user")).status == 403
