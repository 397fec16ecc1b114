"""A test of a template that is not published goes to its author, on both ledgers."""

import itertools
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import SECRET, Listo, shared_fixture
from tests.support.listo_templates import ACME, ADMIN, PATH, USER, call, post

listo = shared_fixture(JWT_SECRET_KEY=SECRET)
_numbers = itertools.count()


def tried(listo: Listo, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    body = {"channel": "email", "recipient": "author@example.org", "subjectTemplate": "S", "data": {"name": "Ada"}}
    return call(listo, "POST", f"{PATH}/test-send", body | fields, headers)


@pytest.fixture
def key() -> str:
    return f"tried_{next(_numbers)}"


@pytest.mark.req("P-421")
def test_what_is_written_is_sent_and_what_is_published_stays(listo: Listo, key: str) -> None:
    layout = post(listo, f"{key}_base", kind="layout", bodyTemplate="{% block content %}{% endblock %} --Listo")
    assert layout.status == 201
    assert post(listo, key, bodyTemplate="As published, {{ name }}").status == 201
    sent = tried(listo, templateKey=key, layout=f"{key}_base", bodyTemplate="Unpublished, {{ name }}")
    assert (sent.status, sent.body["status"]) == (202, "queued")
    story = listo.story(sent.body["notificationId"], ADMIN)
    assert story["routes"][0]["message"]["text"] == "Unpublished, Ada --Listo"
    assert story["serviceOrigin"] == "template-test"
    versions = call(listo, "GET", f"{PATH}?templateKey={key}")
    assert [one["bodyTemplate"] for one in versions.body["items"]] == ["As published, {{ name }}"]


@pytest.mark.req("P-421")
def test_refused_with_the_place_and_the_field(listo: Listo, key: str) -> None:
    wrong = tried(listo, templateKey=key, bodyTemplate="Hi\n {% if %}")
    assert (wrong.status, wrong.body["line"]) == (400, 2)
    missing = tried(listo, templateKey=key, bodyTemplate="Hi {{ unknown }}")
    assert (missing.status, missing.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
    unfit = tried(listo, templateKey=key, bodyTemplate="Hi", recipient="nobody")
    assert (unfit.status, unfit.body["error"]["details"][0]["field"]) == (400, "recipient")
    assert tried(listo, templateKey=key).status == 400


@pytest.mark.req("P-421")
def test_only_administrators_and_only_for_their_tenant(listo: Listo, key: str) -> None:
    assert tried(listo, USER, templateKey=key, bodyTemplate="Hi").status == 403
    assert tried(listo, ACME, templateKey=key, bodyTemplate="Hi", tenantId="other").status == 403
    sent = tried(listo, ACME, templateKey=key, bodyTemplate="Hi")
    assert sent.status == 202
    assert listo.story(sent.body["notificationId"], ACME)["tenantId"] == "acme"


@pytest.mark.req("P-421")
def test_a_suppressed_address_gets_nothing(listo: Listo, key: str) -> None:
    address = f"{key}@example.org"
    body = {"channel": "email", "address": address, "reason": "asked"}
    assert call(listo, "POST", "/api/v1/suppressions", body).status < 300
    sent = tried(listo, templateKey=key, bodyTemplate="Hi", recipient=address)
    assert (sent.status, sent.body["status"]) == (202, "skipped")
