"""Templates of the jinja engine over HTTP, on both ledgers: saved, previewed, sent, and refused with a place."""

import itertools
import time
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import SECRET, Listo, shared_fixture
from tests.support.listo_templates import ACME, ADMIN, PATH, call, post, text

listo = shared_fixture(JWT_SECRET_KEY=SECRET)
_numbers = itertools.count()
ITEMS = [{"name": "Tea", "price": 2.5}, {"name": "Mug <b>", "price": 1234.5}]


@pytest.fixture
def key() -> str:
    return f"jinja_{next(_numbers)}"


def render(listo: Listo, **body: Any) -> Reply:
    return call(listo, "POST", f"{PATH}/render", body)


@pytest.mark.req("P-401", "P-402")
def test_an_order_with_a_layout_is_saved_shown_previewed_and_sent(listo: Listo, key: str) -> None:
    layout = post(
        listo,
        f"{key}_base",
        kind="layout",
        bodyTemplate="{% block content %}{% endblock %}\n--\n{{ brand.footer|default('Listo') }}",
        htmlTemplate="<html><head><style>td { padding: 4px }</style></head>"
        "<body>{% block content %}{% endblock %}</body></html>",
    )
    assert (layout.status, layout.body["kind"], layout.body["engine"]) == (201, "layout", "jinja")
    rows = "{% for item in items %}<tr><td>{{ item.name }}</td><td>{{ item.price|money('EUR') }}</td></tr>{% endfor %}"
    made = post(
        listo,
        key,
        layout=f"{key}_base",
        subjectTemplate="Order {{ number }}",
        bodyTemplate="{{ items|length }} items",
        htmlTemplate=f"<table>{rows}</table>",
        sample={"number": "S-1", "items": ITEMS},
    )
    assert (made.status, made.body["engine"], made.body["layout"]) == (201, "jinja", f"{key}_base")
    assert {"items", "number"} <= set(made.body["variables"])
    shown = render(listo, templateKey=key)
    assert shown.status == 200
    assert (shown.body["subject"], shown.body["text"]) == ("Order S-1", "2 items\n--\nListo")
    assert shown.body["text"] == shown.body["body"]
    assert '<td style="padding: 4px;">Mug &lt;b&gt;</td><td style="padding: 4px;">€1,234.50</td>' in shown.body["html"]
    assert shown.body["html"].count("<tbody>") == 1
    assert shown.body["warnings"] == []
    assert text(listo, key, data={"number": "A-2", "items": ITEMS[:1]}) == "1 items\n--\nListo"
    # A layout is no message, and changes reach the templates that use it.
    assert listo.send(f"{key}_base", "email", headers=ADMIN).status == 404
    call(listo, "PUT", f"{PATH}/{layout.body['id']}", {"bodyTemplate": "{% block content %}{% endblock %}!"})
    assert text(listo, key, data={"number": "A-2", "items": ITEMS[:1]}) == "1 items!"


@pytest.mark.req("P-404", "P-405")
def test_errors_name_template_line_and_column(listo: Listo, key: str) -> None:
    wrong = post(listo, key, bodyTemplate="Hi\n {% for x in %}")
    assert (wrong.status, wrong.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert (wrong.body["template"], wrong.body["line"], wrong.body["column"]) == (key, 2, 2)
    (said,) = wrong.body["error"]["details"]
    assert (said["field"], said["template"], said["line"], said["column"]) == ("bodyTemplate", key, 2, 2)
    post(listo, key, bodyTemplate="Hi\n\n  {{ order.total|money('EUR') }}")
    refused = listo.send(key, "email", data={"order": {}}, headers=ADMIN)
    assert (refused.status, refused.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
    assert (refused.body["template"], refused.body["line"], refused.body["column"]) == (key, 3, 3)
    assert "order.total" in refused.body["error"]["message"]


@pytest.mark.req("P-842", "P-843")
def test_errors_of_mjml_and_of_layouts_name_their_place(listo: Listo, key: str) -> None:
    broken = "<mjml>\n<mj-body>\n  <mj-section>\n</mj-body></mjml>"
    for wrong in (
        post(listo, key, bodyTemplate=None, mjml=broken),
        render(listo, templateKey=key, channel="email", mjml=broken, data={}),
    ):
        assert (wrong.status, wrong.body["error"]["code"]) == (400, "VALIDATION_ERROR")
        assert (wrong.body["template"], wrong.body["line"], wrong.body["column"]) == (key, 3, 3)
        (said,) = wrong.body["error"]["details"]
        assert (said["field"], said["part"], said["line"]) == ("mjml", "mjml", 3)
    refused = post(listo, key, htmlTemplate='<p>\n<a onclick="{{ x }}">y</a></p>')
    assert (refused.status, refused.body["line"], refused.body["column"]) == (400, 2, 13)
    # A layout that is broken, or gone, after its template was saved: the send names the place, as the save does.
    base = post(listo, f"{key}_base", kind="layout", htmlTemplate="<main>{% block content %}{% endblock %}</main>")
    assert post(listo, key, htmlTemplate=f'\n{{% extends "{key}_base" %}}').status == 201
    changed = "<main>\n {% block content %}{% endblock %}{% include 'nobody' %}</main>"
    assert call(listo, "PUT", f"{PATH}/{base.body['id']}", {"htmlTemplate": changed}).status == 400
    assert call(listo, "DELETE", f"{PATH}/{base.body['id']}").status == 204
    for answer in (listo.send(key, "email", data={}, headers=ADMIN), render(listo, templateKey=key, data={})):
        assert (answer.status, answer.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
        assert f"there is no layout {key}_base" in answer.body["error"]["message"]
        assert (answer.body["template"], answer.body["line"], answer.body["column"]) == (key, 2, 1)


def test_what_exists_keeps_its_engine_and_what_is_new_is_jinja(listo: Listo, key: str) -> None:
    old = post(listo, key, engine="simple", bodyTemplate="Hi {{name}}")
    assert old.body["engine"] == "simple"
    assert post(listo, key, bodyTemplate="Hello {{name}}").body["engine"] == "simple"
    put = call(listo, "PUT", f"{PATH}/{old.body['id']}", {"bodyTemplate": "Hey {{name}}"})
    assert put.body["engine"] == "simple"
    assert call(listo, "PUT", f"{PATH}/{old.body['id']}", {"bodyTemplate": "{% if x %}{% endif %}"}).status == 400
    moved = call(
        listo,
        "PUT",
        f"{PATH}/{old.body['id']}",
        {"bodyTemplate": "{% if name %}Yo {{name}}{% endif %}", "engine": "jinja"},
    )
    assert (moved.status, moved.body["engine"]) == (200, "jinja")
    assert text(listo, key) == "Yo Ada"
    # A tenant's first own template is new, whatever everybody's is.
    assert post(listo, key, ACME).body["engine"] == "jinja"


@pytest.mark.req("P-410")
def test_mjml_and_text_from_html(listo: Listo, key: str) -> None:
    mjml = (
        "<mjml><mj-body>{% if items %}<mj-section><mj-column><mj-text>Hi {{ name }}</mj-text>"
        "<mj-table>{% for i in items %}"
        '<tr><td>{{ i.name }}</td></tr>{% endfor %}</mj-table><mj-button href="{{ link }}">Pay</mj-button></mj-column>'
        "</mj-section>{% endif %}</mj-body></mjml>"
    )
    made = post(listo, key, bodyTemplate=None, mjml=mjml, subjectTemplate="x")
    assert (made.status, made.body["mjml"], made.body["htmlTemplate"]) == (201, mjml, None)
    shown = render(listo, templateKey=key, data={"items": ITEMS, "name": "Ada", "link": "https://example.org/pay"})
    assert "<mj-" not in shown.body["html"]
    assert shown.body["html"].count("<tr><td>") == 2
    assert 'href="https://example.org/pay"' in shown.body["html"]
    assert "Hi Ada" in shown.body["text"]
    assert "Mug <b>" in shown.body["text"]
    assert "Pay (https://example.org/pay)" in shown.body["text"]
    assert "<" not in shown.body["text"].replace("Mug <b>", "")


@pytest.mark.req("P-1131")
def test_a_tenants_translations_hide_none_of_everybodys(listo: Listo, key: str) -> None:
    def catalogue(tenant: str | None, **said: str) -> None:
        entries = "".join(f'msgid "{key}.{name}"\nmsgstr "{word}"\n\n' for name, word in said.items())
        head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        made = post(
            listo, "translations", tenantId=tenant, kind="catalogue", locale="es-MX", bodyTemplate=head + entries
        )
        assert made.status == 201

    catalogue(None, hi="Hola", bye="Hasta luego")
    catalogue("acme", hi="Buenas")
    post(listo, key, locale="es-MX", bodyTemplate=f"{{{{ t('{key}.hi') }}}}, {{{{ t('{key}.bye') }}}}")
    for tenant, expected in (
        (None, "Hola, Hasta luego"),
        ("acme", "Buenas, Hasta luego"),
        ("globex", "Hola, Hasta luego"),
    ):
        shown = render(listo, templateKey=key, locale="es-MX", tenantId=tenant, data={})
        assert shown.body["text"] == expected
        sent = listo.sent(key, "email", locale="es-MX", tenantId=tenant, data={}, headers=ADMIN)
        assert listo.story(sent, ADMIN)["routes"][0]["message"]["text"] == expected


@pytest.mark.req("P-1128")
def test_trusted_html_is_text_in_a_text_that_is_made_from_html(listo: Listo, key: str) -> None:
    article = (
        "<style>p { color: red }</style><!-- <p>x</p> --><h1>Caf&eacute;</h1><p>One &lt; two, <b>see</b> "
        '<a class="x" href="https://example.org/?a=1&amp;b=2">the page</a></p><ul><li>Tea</li><li>Mug</li></ul>'
    )
    html = '<p>Hi {{ name }}</p><div>{{ article|safe }}</div><p>{{ count|default("none"|safe) }}</p>'
    post(listo, key, bodyTemplate=None, htmlTemplate=html, subjectTemplate="x")
    shown = render(listo, templateKey=key, data={"name": "Ada <b>", "article": article}).body
    assert article in shown["html"]
    lines = [line for line in shown["text"].splitlines() if line]
    page = "One < two, see the page (https://example.org/?a=1&b=2)"
    assert lines == ["Hi Ada <b>", "Café", page, "- Tea", "- Mug", "none"]
    missing = render(listo, templateKey=key, data={"name": "Ada"})
    assert "missing template variables: article" in missing.body["error"]["message"]
    began = time.monotonic()
    hostile = "<a>x" * 20_000 + "</a>" * 20_000 + "<!--" * 10_000 + "<a href='" * 5_000
    assert render(listo, templateKey=key, data={"name": "Ada", "article": hostile}).status in {200, 400}
    assert time.monotonic() - began < 10


@pytest.mark.req("P-1260")
@pytest.mark.parametrize("address", ["https://example.org/?a=1&copy=2&section=3&reg=4", "https://example.org/?q=it's"])
def test_a_link_is_the_same_in_the_text_that_is_made_from_html(listo: Listo, key: str, address: str) -> None:
    """`&copy=` is no sign in a link: browsers read it so, in a value that is trusted and in the template itself."""
    third = f'<a data-href="x" href="{address}">Three</a> &copy; R&D'
    html = '<a href="{{ url|safe }}">One</a> {{ rich|safe }} ' + third
    post(listo, key, bodyTemplate=None, htmlTemplate=html, subjectTemplate="x")
    data = {"url": address, "rich": f'<a href="{address}" data-href="x">Two</a> &copy 2026'}
    shown = render(listo, templateKey=key, data=data).body["text"]
    assert shown == f"One ({address}) Two ({address}) © 2026 Three ({address}) © R&D"
    story = listo.until(listo.sent(key, "email", data=data, headers=ADMIN), "delivered", headers=ADMIN)
    assert story["routes"][0]["message"]["text"] == shown


@pytest.mark.req("P-1269")
def test_what_a_macro_writes_is_text_already_in_the_text_that_is_made_from_html(listo: Listo, key: str) -> None:
    """`safe` behind it says nothing new: a value in it is no HTML."""
    html = (
        "{% macro box(x) %}<b>{{ x }}</b>{% endmacro %}"
        "{% macro raw(y) %}<i>{{ y|safe }}</i>{{ caller()|safe }}{% endmacro %}"
        "{% set one %}<u>{{ name }}</u>{% endset %}"
        "<p>{{ box(name)|safe }}, {{ one|safe }}, {{ box(box(name))|safe }}</p>"
        "<p>{% call raw(rich) %}{{ name }}{% endcall %} {% for who in [rich] %}{{ who|safe }}{% endfor %}</p>"
    )
    post(listo, key, bodyTemplate=None, htmlTemplate=html, subjectTemplate="x")
    data = {"name": "Ada <ada@example.org> R&amp;D", "rich": "<b>B</b> &amp; C"}
    shown = render(listo, templateKey=key, data=data).body
    name = data["name"]
    assert shown["text"] == f"{name}, {name}, {name}\n\nB & C{name} B & C"
    assert shown["html"].count("Ada &lt;ada@example.org&gt; R&amp;amp;D") == 4


def test_the_template_service_says_which_engine_a_template_needs(listo: Listo, key: str) -> None:
    post(listo, key, channel="push", subjectTemplate="Hi", bodyTemplate="{{ name }}")
    assert "engine" not in call(listo, "GET", f"{PATH}/{key}").body
    post(listo, key, channel="push", subjectTemplate="Hi", bodyTemplate="{% if name %}{{ name }}{% endif %}")
    assert call(listo, "GET", f"{PATH}/{key}").body["engine"] == "jinja"


@pytest.mark.req("P-409")
def test_catalogues_are_stored_and_used(listo: Listo, key: str) -> None:
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    for locale, said in (("en-US", "Hello {name}"), ("es-MX", "Hola {name}")):
        catalogue = f'{head}msgid "{key}.hi"\nmsgstr "{said}"\n'
        assert post(listo, "translations", kind="catalogue", locale=locale, bodyTemplate=catalogue).status == 201
        post(listo, key, locale=locale, bodyTemplate=f"{{{{ t('{key}.hi', name=name) }}}}")
    assert post(listo, "translations", kind="catalogue", bodyTemplate="nonsense").status == 400
    assert render(listo, templateKey=key, locale="es-MX", data={"name": "Ana"}).body["text"] == "Hola Ana"
    assert text(listo, key) == "Hello Ada"
