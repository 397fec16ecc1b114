"""Which language the listo blueprint speaks, and its templates as push workers read them."""

import itertools
from typing import Any

import pytest

from tests.support.listo_stand import SECRET, Listo, shared_fixture, token
from tests.support.listo_templates import ACME, ADMIN, PATH, USER, call, count, post, text

listo = shared_fixture(
    '[tenant."mexico"]\ndefault_locale = "es-MX"\n[templates]\nopen_mount = true\n', JWT_SECRET_KEY=SECRET
)

_numbers = itertools.count()


@pytest.fixture
def key() -> str:
    return f"key_{next(_numbers)}"


@pytest.fixture
def bilingual(listo: Listo, key: str) -> str:
    post(listo, key, bodyTemplate="Hello")
    post(listo, key, locale="es-MX", bodyTemplate="Hola")
    return key


@pytest.mark.req("S2-101", "S2-103")
@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("es-MX, en-US;q=0.9", "Hola"),
        ("en-US;q=0.4, es-MX;q=0.8", "Hola"),
        ("en-US, es-MX", "Hello"),
        ("*, es-MX;q=0.1", "Hola"),
        ("*", "Hello"),
        ("!!!, ;;q=x", "Hello"),
        ("es-MX;q=0, en-US;q=0.1", "Hello"),
        ("es-MX;q=2, en-US", "Hello"),
    ],
)
def test_accept_language(listo: Listo, bilingual: str, header: str, said: str) -> None:
    assert text(listo, bilingual, {**ADMIN, "Accept-Language": header}) == said


@pytest.mark.req("S2-100", "S2-115")
def test_the_order_of_languages(listo: Listo, bilingual: str) -> None:
    post(listo, bilingual, locale="fr", bodyTemplate="Salut")
    post(listo, bilingual, locale="de", bodyTemplate="Hallo")
    mexican = token("ana", role="admin", tenant="mexico")
    assert text(listo, bilingual, mexican) == "Hola"
    assert text(listo, bilingual, token("ana", role="admin", tenant="else")) == "Hello"
    assert text(listo, bilingual, {**mexican, "Accept-Language": "fr"}) == "Salut"
    wish = call(listo, "PATCH", "/api/v1/preferences", {"preferredLocale": "de"}, mexican)
    assert wish.body["preferredLocale"] == "de"
    assert text(listo, bilingual, {**mexican, "Accept-Language": "fr"}) == "Hallo"
    assert text(listo, bilingual, {**mexican, "Accept-Language": "fr"}, locale="en-US") == "Hello"


@pytest.mark.req("S2-102", "S2-99", "S2-107")
def test_a_language_that_is_missing_is_an_error_without_fallback(listo: Listo, key: str) -> None:
    post(listo, key)
    before = count(listo)
    reply = listo.send(key, "email", data={"name": "Ada"}, headers={**ADMIN, "Accept-Language": "es-MX, en-US;q=0.9"})
    assert (reply.status, reply.body["error"]["code"]) == (404, "TEMPLATE_NOT_FOUND")
    assert reply.body["error"]["message"] == f"Template {key} not found for locale es-MX"
    assert count(listo) == before


@pytest.mark.req("S2-111", "S0-23")
@pytest.mark.parametrize("base", ["", "/template-service"])
def test_push_workers_read_the_same_store_in_their_shape(listo: Listo, key: str, base: str) -> None:
    push: dict[str, Any] = {
        "channel": "push",
        "subjectTemplate": "Welcome {{name}}!",
        "bodyTemplate": "Hi {{name}}, click {{link}}.",
    }
    post(listo, key, **push)
    made = post(listo, key, **push)
    post(listo, key, **push, locale="es-MX")
    post(listo, key, bodyTemplate="an email")
    path = f"{base}{PATH}/{key}"
    reply = call(listo, "GET", path, headers={**ADMIN, "Accept-Language": "en"})
    assert reply.status == 200
    assert reply.body == {
        "id": made.body["id"],
        "code": key,
        "type": "push",
        "language": "en-US",
        "version": 2,
        "content": {"title": "Welcome {{name}}!", "body": "Hi {{name}}, click {{link}}."},
        "variables": ["name", "link"],
    }
    assert call(listo, "GET", path, headers={**ADMIN, "Accept-Language": "es-MX"}).body["language"] == "es-MX"
    assert call(listo, "GET", path).body["language"] == "en-US"
    unknown = call(listo, "GET", f"{base}{PATH}/nowhere")
    assert (unknown.status, unknown.body["error"]["code"]) == (404, "TEMPLATE_NOT_FOUND")
    assert call(listo, "GET", path, headers={**ADMIN, "Accept-Language": "ja"}).status == 404


@pytest.mark.req("S2-111")
def test_the_mount_may_be_open_and_shows_nobodys_own(listo: Listo, key: str) -> None:
    post(listo, key, ACME, channel="push", bodyTemplate="own")
    shipped = call(listo, "GET", "/template-service/api/v1/templates/order_confirmed", headers={})
    assert (shipped.status, shipped.body["type"]) == (200, "push")
    assert call(listo, "GET", f"/template-service/api/v1/templates/{key}", headers={}).status == 404
    assert call(listo, "GET", f"{PATH}/order_confirmed", headers={}).status == 401
    assert call(listo, "GET", f"{PATH}/{key}", headers=USER).body["content"]["body"] == "own"
