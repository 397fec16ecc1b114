"""A preview shows what a send would make: of a tenant, with the operator's parts, and with what would be refused."""

import json
from typing import Any

import pytest

from carillon.domain.notifications import Template
from carillon.intake.render import render_message
from carillon.outbound.prepare import read_template
from tests.support.listo_stand import PHONE, Listo, shared_fixture
from tests.support.listo_templates import PATH

SETTINGS = """
[locale]
on_missing = "chain"
[tenant.acme]
default_locale = "es-MX"
time_zone = "Asia/Tokyo"
[tenant.brit]
default_locale = "en-GB"
[brand.default]
sign = "All"
[brand.acme]
sign = "Acme"
[message.brief]
max_segments = 1
[message.shown.push]
image = "https://example.org/{{number}}.png"
[message.shown.in_app]
icon = "/{{number}}.png"
"""
listo = shared_fixture(SETTINGS)


def make(listo: Listo, key: str, channel: str, text: str, **fields: Any) -> None:
    body = {"templateKey": key, "channel": channel, "bodyTemplate": text, **fields}
    assert listo.client.call("POST", PATH, body).status == 201


def preview(listo: Listo, **body: Any) -> Any:
    return listo.client.call("POST", f"{PATH}/render", body).body


def sent_text(listo: Listo, key: str, tenant: str | None) -> str:
    given = {} if tenant is None else {"tenantId": tenant}
    reply = listo.send(key, "email", recipient="ada@example.org", data={}, **given)
    assert reply.status == 202, reply
    found = listo.client.call("GET", f"/api/v1/notifications/{reply.body['notificationId']}?include=message").body
    return str(found["routes"][0]["message"]["text"])


@pytest.mark.req("P-744")
@pytest.mark.parametrize("tenant", [None, "acme", "globex"])
def test_a_preview_of_a_tenant_has_its_language_its_partials_and_its_brand(listo: Listo, tenant: str | None) -> None:
    if not listo.client.call("GET", f"{PATH}?templateKey=letter").body["items"]:
        make(listo, "sign", "email", "shared", kind="partial")
        make(listo, "sign", "email", "their own", kind="partial", tenantId="acme")
        for locale, word in (("en-US", "Hello"), ("es-MX", "Hola")):
            text = word + " {% include 'sign' %} {{ brand.sign }}"
            make(listo, "letter", "email", text, locale=locale, subjectTemplate="s")
    expected = "Hola their own Acme" if tenant == "acme" else "Hello shared All"
    given = {} if tenant is None else {"tenantId": tenant}
    assert preview(listo, templateKey="letter", data={}, **given)["text"] == expected
    inline = preview(listo, bodyTemplate="{% include 'sign' %} {{ brand.sign }}", data={}, **given)
    assert inline["text"] == expected.partition(" ")[2]
    assert sent_text(listo, "letter", tenant) == expected


@pytest.mark.req("P-744")
def test_a_preview_warns_of_a_text_message_that_would_be_refused(listo: Listo) -> None:
    make(listo, "brief", "sms", "{{ text }}", locale="en-US")
    short = preview(listo, templateKey="brief", data={"text": "x" * 160})
    assert short["warnings"] == []
    long = preview(listo, templateKey="brief", data={"text": "x" * 161})
    assert long["segments"]["segments"] == 2
    refused = listo.send("brief", "sms", recipient=PHONE, data={"text": "x" * 161})
    assert long["warnings"] == [f"it would be refused: {refused.body['error']['message']}"]
    asked = {"templateKey": "brief", "channel": "sms", "recipient": PHONE, "data": {"text": "x" * 161}}
    explained = listo.client.call("POST", "/api/v1/notifications/explain", asked).body
    stopped = [one["step"] for one in explained["steps"] if one["verdict"] == "stop"]
    assert (explained["outcome"], stopped) == ("rejected", ["render"])
    draft = preview(listo, templateKey="brief", channel="sms", bodyTemplate="{{ text }}!", data={"text": "x" * 160})
    assert (draft["text"][-1], draft["warnings"]) == ("!", long["warnings"])
    assert draft["version"] is None


@pytest.mark.req("P-744")
def test_a_preview_has_the_parts_that_the_operator_adds(listo: Listo) -> None:
    make(listo, "shown", "push", "Hi", subjectTemplate="Title", locale="en-US")
    make(listo, "shown", "inApp", "Hi", subjectTemplate="Title", locale="en-US")
    pushed = preview(listo, templateKey="shown", channel="push", data={"number": 7})
    assert pushed["push"] == {"image": "https://example.org/7.png"}
    assert preview(listo, templateKey="shown", channel="inApp", data={"number": 7})["inApp"] == {"icon": "/7.png"}
    lacking = preview(listo, templateKey="shown", channel="push", data={})
    assert lacking["error"]["code"] == "TEMPLATE_RENDER_ERROR"


@pytest.mark.req("P-745")
@pytest.mark.parametrize("path", [PATH, f"{PATH}/render", f"{PATH}/test-send"])
def test_only_an_email_has_html_wherever_a_template_is_given(listo: Listo, path: str) -> None:
    key = {} if path.endswith("render") else {"templateKey": "plain"}
    to = {"recipient": PHONE} if path.endswith("test-send") else {}
    body = {"channel": "sms", "bodyTemplate": "x", "htmlTemplate": "<p>x</p>", **key, **to}
    reply = listo.client.call("POST", path, body)
    assert (reply.status, reply.body["error"]["details"][0]["field"]) == (400, "htmlTemplate"), reply


@pytest.mark.req("P-744")
def test_a_preview_refuses_a_time_zone_that_does_not_exist(listo: Listo) -> None:
    reply = listo.client.call("POST", f"{PATH}/render", {"bodyTemplate": "x", "timeZone": "Nowhere/Land"})
    assert (reply.status, reply.body["error"]["details"][0]["field"]) == (400, "timeZone"), reply
    assert preview(listo, bodyTemplate="{{ 0|time('HH') }}", timeZone="Asia/Tokyo", data={})["text"] == "09"


@pytest.mark.req("P-748")
def test_a_push_worker_gets_the_default_variables_of_a_template(listo: Listo) -> None:
    make(listo, "defaulted", "push", "Hi {{name}}", subjectTemplate="T", defaultVariables={"name": "there"})
    answer = listo.client.call("GET", f"{PATH}/defaulted").body
    template = read_template("defaulted", 200, json.dumps(answer).encode(), None)
    assert isinstance(template, Template)
    assert render_message(template, {}).text == "Hi there"
    assert render_message(template, {"name": "Ada"}).text == "Hi Ada"


@pytest.mark.req("P-749")
def test_an_item_of_a_batch_is_refused_with_template_line_and_column(listo: Listo) -> None:
    make(listo, "wanting", "email", "Hi\n  {{ nobody }}", locale="en-US", subjectTemplate="s")
    item = {"templateKey": "wanting", "channel": "email", "recipient": "ada@example.org", "data": {}}
    refused = listo.client.call("POST", "/api/v1/notifications/batch", {"notifications": [item]}).body
    error = refused["results"][0]["error"]
    assert [error[name] for name in ("template", "part", "line", "column")] == ["wanting", "text", 2, 3]


@pytest.mark.req("P-1123")
def test_a_push_worker_learns_that_fields_need_the_engine(listo: Listo) -> None:
    picture = "{% if picture is defined %}https://example.org/{{ picture }}{% endif %}"
    make(listo, "pictured", "push", "Hi {{ name }}", subjectTemplate="T", push={"image": picture})
    make(listo, "unpictured", "push", "Hi {{ name }}", subjectTemplate="T", push={"image": "{{ picture }}"})
    assert listo.client.call("GET", f"{PATH}/pictured").body["engine"] == "jinja"
    assert "engine" not in listo.client.call("GET", f"{PATH}/unpictured").body


@pytest.mark.req("P-1126")
@pytest.mark.parametrize(("tenant", "locale"), [(None, "en-GB"), ("acme", "es-ES"), ("acme", None), (None, None)])
def test_a_preview_writes_times_and_amounts_as_a_send_does(
    listo: Listo, tenant: str | None, locale: str | None
) -> None:
    if not listo.client.call("GET", f"{PATH}?templateKey=timed").body["items"]:
        for spoken in ("en", "es"):
            text = "{{ at|datetime('short') }} {{ 1234.5|money('EUR') }}"
            make(listo, "timed", "email", text, locale=spoken, subjectTemplate="s")
    data = {"at": "2026-11-17T20:30:00Z"}
    wished = {name: value for name, value in (("tenantId", tenant), ("locale", locale)) if value is not None}
    shown = preview(listo, templateKey="timed", data=data, **wished)
    reply = listo.send("timed", "email", recipient="ada@example.org", data=data, **wished)
    assert reply.status == 202, reply
    found = listo.client.call("GET", f"/api/v1/notifications/{reply.body['notificationId']}?include=message").body
    assert shown["text"] == found["routes"][0]["message"]["text"]


@pytest.mark.req("P-1266")
@pytest.mark.parametrize(
    ("asked", "header", "expected"),
    [
        ({}, {}, "11/17/26 €1.50"),
        ({"tenantId": "brit"}, {}, "17/11/2026 €1.50"),
        ({}, {"Accept-Language": "en-AU"}, "17/11/26 EUR1.50"),
        ({"tenantId": "brit", "locale": "en-US"}, {}, "11/17/26 €1.50"),
        ({"tenantId": "acme"}, {}, "11/17/26 €1.50"),
    ],
)
def test_a_test_of_what_is_written_is_the_preview_of_it(
    listo: Listo, asked: dict[str, str], header: dict[str, str], expected: str
) -> None:
    text = "{{ at|date('short') }} {{ 1.5|money('EUR') }}"
    what = {"templateKey": "drafted", "channel": "email", "subjectTemplate": "s", "bodyTemplate": text}
    body = {**what, "data": {"at": "2026-11-17T02:30:00Z"}, **asked}
    shown = listo.client.call("POST", f"{PATH}/render", body, header).body["text"]
    to = {"recipient": "me@example.org"}
    sent = listo.client.call("POST", f"{PATH}/test-send", {**body, **to}, header).body["notificationId"]
    assert shown == expected
    assert listo.story(sent)["routes"][0]["message"]["text"] == shown
