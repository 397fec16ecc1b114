"""Brands and layouts: what lies under another one, and what a child hands to the blocks of its layout."""

from typing import Any

import pytest

from carillon.domain.errors import BadTemplate
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
from tests.unit.test_jinja_engine import ORDER, ready

STYLE = "<style>i { color: red }</style>"


@pytest.mark.req("P-1122")
@pytest.mark.parametrize(("tenant", "named"), [("t-1", {}), (None, {"brand": "red"}), ("t-1", {"brand": None})])
def test_the_default_brand_is_under_every_other_also_inside(tenant: str | None, named: dict[str, Any]) -> None:
    colours = {"primary": "green", "text": "black"}
    default = {"logo": "d.png", "colours": colours}
    composer = Composer(
        brands={"default": default, "red": {"colours": {"primary": "red"}}}, tenant_brands={"t-1": "red"}
    )
    source = "{{ brand.logo }} {{ brand.colours.primary }} {{ brand.colours.text }}"
    assert render_message(ready(composer, text=source, tenant=tenant), named).text == "d.png red black"


@pytest.mark.req("P-1133")
def test_a_child_sets_beside_its_blocks_what_its_blocks_use() -> None:
    beside = (
        "{% set title %}<i>{{ name }}</i> & you{% endset %}"
        "{% if n > 2 %}many{% set word = 'many' %}{% elif n %}{% set word = 'few' %}"
        "{% else %}{% set word = '' %}{% endif %}"
        "{% if lacking is defined %}{% set word = 'lacking' %}{% endif %}"
        "{% for one in order['items'] %}{% set last = one.name %}{% endfor %}"
        "{% set kept = 'kept' %}{% include 'footer' %}"
        "{% macro mark(x) %}{% set y %}*{{ x }}*{% endset %}{{ y }}{% endmacro %}"
    )
    inside = "{{ title }} {{ word }} {{ last|default('-') }} {{ leaked|default('-') }} {{ kept }} {{ mark(n) }}"
    source = "{% extends 'base' %}" + beside + "{% block content %}" + inside + "{% endblock %}"
    expected = "<main><i>Ada &lt;b&gt;</i> & you {} - - kept *{}*</main>"
    for number, word in ((3, "many"), (1, "few"), (0, "")):
        rich = render_message(ready(text="x", html=source), {**ORDER, "n": number}).html or ""
        assert expected.format(word, number) in rich


@pytest.mark.req("P-1133")
@pytest.mark.parametrize(
    "beside", ["{% set title %}Hi <i>{{ name }}</i>{% endset %}", "{% if n %}{% set title = 'Hi' %}{% endif %}"]
)
def test_what_is_set_before_a_document_with_styles_is_no_part_of_it(beside: str) -> None:
    document = f"<!DOCTYPE html><html><head>{STYLE}</head><body><p>{{{{ title }}}}</p></body></html>"
    message = render_message(ready(text="", html=f"{{# a note #}}\n{beside}\n{document}"), ORDER)
    rich = (message.html or "").strip()
    assert rich.startswith("<!DOCTYPE html>")
    assert rich.count("Hi") == 1
    assert message.text.startswith("Hi")
    assert ('<i style="color: red;">Ada &lt;b&gt;</i></p>' in rich) is ("<i>" in beside)


@pytest.mark.req("P-1133")
def test_what_is_set_before_mjml_is_no_part_of_it() -> None:
    source = (
        "{% set title %}Hi {{ name }}{% endset %}<mjml><mj-body><mj-section><mj-column>"
        "<mj-text>{{ title }}</mj-text></mj-column></mj-section></mj-body></mjml>"
    )
    message = render_message(ready(text="", mjml=source), ORDER)
    assert (message.html or "").count("Hi Ada &lt;b&gt;") == 1
    assert message.text == "Hi Ada <b>"


@pytest.mark.req("P-1261")
@pytest.mark.parametrize(
    "before", ["", "{% set title %}Hi {{ name }}{% endset %}", "{% if n %}{% set a = 1 %}{% endif %}"]
)
def test_a_condition_may_stand_around_a_whole_document(before: str) -> None:
    column = "<mj-section><mj-column><mj-text>Hi {{ name }}</mj-text></mj-column></mj-section>"
    documents = {
        "mjml": f"<mjml><mj-body>{column}</mj-body></mjml>",
        "html": f"<!DOCTYPE html><html><head>{STYLE}</head><body><i>Hi {{{{ name }}}}</i></body></html>",
    }
    for part, document in documents.items():
        source: dict[str, Any] = {part: f"{before}{{% if n %}}{document}{{% endif %}}"}
        template = ready(text="", **source)
        rich = (render_message(template, ORDER).html or "").strip().lower()
        assert rich.startswith("<!doctype html>"), rich
        assert rich.endswith("</html>")
        assert rich.count("hi ada &lt;b&gt;") == 1


@pytest.mark.req("P-1272")
def test_a_mail_with_styles_is_one_document() -> None:
    """Otherwise it would have what both say, under the first condition alone."""
    for one, two in ((f"<html><head>{STYLE}</head><body>", "</body></html>"), (f"{STYLE}<body>", "</body>")):
        source = f"{{% if n > 2 %}}\n{one}<i>A</i>{two}\n{{% else %}}\n<body><i>B</i>{two}{{% endif %}}"
        with pytest.raises(BadTemplate, match="is there twice: a mail with styles is one document") as refused:
            ready(text="x", html=source)
        assert refused.value.place is not None
        assert (refused.value.place.part, refused.value.place.line) == ("html", 4)
        plain = ready(text="x", html=source.replace(STYLE, ""))
        assert "A" not in (render_message(plain, {**ORDER, "n": 1}).html or "")
    # A careless end too many is none.
    twice = f"{STYLE}<body>{{% if n %}}<i>A</i>{{% endif %}}</body></html></body></html>"
    assert "<i style" in (render_message(ready(text="x", html=twice), ORDER).html or "")
    outlook = f"<html>{STYLE}<body><!--[if mso]></body><![endif]--><i>A</i></body></html>"
    assert "</i></body></html>" in (render_message(ready(text="x", html=outlook), ORDER).html or "")
