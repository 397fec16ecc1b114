"""The template engine: names are looked up, and nothing a template or a value says is ever carried out."""

import html
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Message, Template
from carillon.intake.render import MAX_RENDERED, compile_template, render_message, variables_of
from tests.support.examples import examples

PROPERTY = examples(300)

# What opens other engines, one a line: Jinja2, Twig, Handlebars, Mustache, Liquid and their kin.
REFUSED = r"""
{{7*7}}
{{7*'7'}}
{{ 7 * 7 }}
{{1+1}}
{{"x"}}
{{'x'.upper()}}
{{config.items()}}
{{x|safe}}
{{x|attr("__class__")}}
{{''.__class__.__mro__[1].__subclasses__()}}
{{request.application.__globals__['os']}}
{{cycler.__init__.__globals__.os.popen('id').read()}}
{{lipsum.__globals__["os"]}}
{{["id"]|map("system")}}
{{x[0]}}
{{x()}}
{{#each this}}{{/each}}
{{#with "s" as |string|}}{{/with}}
{{>partial}}
{{&x}}
{{^x}}
{{!x}}
{{{x}}}
{{{{x}}}}
{{ {{x}} }}
{{ }}
{{}}
{{x.}}
{{.x}}
{{x..y}}
{{x-y}}
{{x y}}
{{x;y}}
{{0x}}
{{naïve}}
{% import os %}
{% for x in y %}{% endfor %}
{%7*7%}
{# x #}
${{<%[%'"}}%\
""".strip().splitlines()
INERT = [
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "@(7*7)",
    "*{7*7}",
    "{7*7}",
    "{0.__class__}",
    "%(x)s",
    "$x",
    "#set($x=7*7)$x",
    "{{7*7",
    "7*7}}",
    "{php}echo 7*7;{/php}",
    "[[7*7]]",
    "~{7*7}",
]
DUNDERS = [
    "__class__",
    "__globals__",
    "x.__class__",
    "x.__class__.__mro__",
    "self",
    "config",
    "x.upper",
    "items",
    "x.0",
]


def template(text: str, subject: str | None = None, rich: str | None = None) -> Template:
    return Template(code="t", channel="email", locale="en", text=text, subject=subject, html=rich)


def rendered(text: str, **data: Any) -> str:
    return render_message(template(text), data).text


def refusal(made: Template, data: dict[str, Any]) -> str:
    with pytest.raises(BadIntent) as caught:
        render_message(made, data)
    assert (caught.value.code, caught.value.field) == ("TEMPLATE_RENDER_ERROR", "data")
    return str(caught.value)


def test_the_corpus_is_worth_its_name() -> None:
    assert len(REFUSED) + len(INERT) + len(DUNDERS) >= 60


@pytest.mark.req("G-09")
@pytest.mark.parametrize("text", REFUSED)
def test_a_clever_template_is_refused_before_it_is_used(text: str) -> None:
    with pytest.raises(BadTemplate):
        compile_template(text)


@pytest.mark.req("G-09")
@pytest.mark.parametrize("text", INERT)
def test_the_tags_of_other_engines_are_plain_text(text: str) -> None:
    assert rendered(text, x="seen") == text


@pytest.mark.req("G-09")
@pytest.mark.parametrize("name", DUNDERS)
def test_no_name_reaches_into_python(name: str) -> None:
    assert refusal(template("{{" + name + "}}"), {"x": "a string"}) == f"missing template variables: {name}"


@pytest.mark.req("G-09")
@pytest.mark.parametrize("text", [*REFUSED, *INERT, "{{x}}", "{{other}}"])
def test_a_value_is_never_rendered_twice(text: str) -> None:
    message = render_message(template("<{{x}}>", rich="<{{x}}>"), {"x": text, "other": "SECRET"})
    assert message.text == f"<{text}>"
    assert message.html == f"<{html.escape(text)}>"


@PROPERTY
@given(st.text(max_size=200))
def test_any_template_renders_or_is_refused_and_never_computes(text: str) -> None:
    try:
        names = variables_of(text)
    except BadTemplate:
        return
    marked = {name: f"<{name}>" for name in names if "." not in name}
    message = render_message(template(text), marked, "keep")
    for name in marked:
        assert f"<{name}>" in message.text


@PROPERTY
@given(st.text(max_size=50), st.text(max_size=50))
def test_values_arrive_as_they_are_and_escaped_only_in_html(one: str, other: str) -> None:
    message = render_message(template("{{a}}/{{b}}", rich="<p>{{a}}</p>{{b}}"), {"a": one, "b": other})
    assert message.text == f"{one}/{other}"
    assert message.html == f"<p>{html.escape(one)}</p>{html.escape(other)}"


def test_html_is_escaped_in_the_html_part_alone() -> None:
    made = template("Hi {{n}}", subject="For {{n}}", rich='<a title="{{n}}">{{n}}</a>')
    name = '<b>"O\'Neil" & Co</b>'
    safe = "&lt;b&gt;&quot;O&#x27;Neil&quot; &amp; Co&lt;/b&gt;"
    assert render_message(made, {"n": name}) == Message(
        text=f"Hi {name}", subject=f"For {name}", html=f'<a title="{safe}">{safe}</a>'
    )


def test_dotted_names_walk_objects_only() -> None:
    data = {"user": {"firstName": "Ada", "tags": ["x"], "0": "zero"}}
    assert rendered("Hi {{user.firstName}} {{ user.firstName }} {{user.0}}", **data) == "Hi Ada Ada zero"
    assert "user.tags.0" in refusal(template("{{user.tags.0}}"), data)
    assert "user.firstName.x" in refusal(template("{{user.firstName.x}}"), data)


def test_a_dotted_key_is_no_path() -> None:
    assert "a.b" in refusal(template("{{a.b}}"), {"a.b": "flat"})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (54, "54"), (54.0, "54.0"), (False, "false"), (True, "true"), ("", ""), ([1, "é"], '[1,"é"]')],
)
def test_values_that_are_no_text_are_written_as_json(value: Any, text: str) -> None:
    assert rendered("{{v}}", v=value) == text


def test_every_missing_variable_is_named_once_and_in_order() -> None:
    made = template("{{b}} {{a.c}} {{b}}", subject="{{z}}", rich="{{here}}")
    assert refusal(made, {"here": "x", "a": {}}) == "missing template variables: a.c, b, z"
    assert "b" in refusal(template("{{b}}"), {"b": None})


def test_a_blueprint_may_leave_missing_variables_empty_or_standing() -> None:
    made = template("<{{ user.name }}>", rich="{{x}}")
    assert render_message(made, {}, "empty") == Message(text="<>", html="")
    assert render_message(made, {}, "keep") == Message(text="<{{user.name}}>", html="{{x}}")


@pytest.mark.parametrize("breaker", list("\r\n\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))
def test_a_subject_is_one_line(breaker: str) -> None:
    data = {"x": f"a{breaker}Bcc: everybody@example.com"}
    assert refusal(template("ok", subject="{{x}}"), data) == "the subject must be one line of text"
    assert rendered("{{x}}", **data) == data["x"]


@PROPERTY
@given(st.text(max_size=80))
def test_no_subject_ever_holds_a_line_break(value: str) -> None:
    try:
        message = render_message(template("ok", subject="Hello {{x}}"), {"x": value})
    except BadIntent:
        return
    assert len(f"{message.subject}".splitlines()) == 1


def test_the_size_is_capped_over_all_parts_together() -> None:
    half = "x" * (MAX_RENDERED // 2)
    assert len(rendered("{{a}}{{a}}", a=half)) == MAX_RENDERED
    assert "exceeds" in refusal(template("{{a}}", subject="s", rich="{{a}}"), {"a": half})
    assert "exceeds" in refusal(template("{{a}}"), {"a": "x" * (MAX_RENDERED + 1)})


def test_a_long_value_in_many_places_is_stopped_while_rendering() -> None:
    value = "x" * 1_000_000
    tracemalloc.start()
    try:
        assert "exceeds" in refusal(template("{{a}}" * 200), {"a": value})
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "200 MB were built first and refused later"
    finally:
        tracemalloc.stop()


def test_escaping_cannot_outgrow_the_cap() -> None:
    assert "exceeds" in refusal(template("ok", rich="{{a}}"), {"a": "'" * (MAX_RENDERED - 10)})


def test_the_variables_of_a_template() -> None:
    assert variables_of("Hi {{a}} {{ b.c }} {{a}}, no { {d}}") == {"a", "b.c"}


HOSTILE_LINKS = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "  javascript:alert(1)",
    "\x00javascript:alert(1)",
    "\x01\x1fjavascript:alert(1)",
    "java\tscript:alert(1)",
    "java\r\nscript\n:alert(1)",
    "\u200bjavascript:alert(1)",
    "vbscript:msgbox(1)",
    "livescript:x",
    "data:text/html,<script>alert(1)</script>",
    "data:image/svg+xml,<svg onload=alert(1)>",
    "DATA:text/html;base64,PHNjcmlwdD4=",
    "javascript://example.org/%0aalert(1)",
    " " * 5000 + "javascript:alert(1)",
    "j" + "\n" * 5000 + "avascript:alert(1)",
]
LINKS = [
    '<a href="{{link}}">',
    "<a href='{{link}}'>",
    "<a href={{link}}>",
    '<a class="x" HREF = "{{ link }}">',
    '<a href=" {{link}}">',
    '<a href="\n\t{{link}}#there">',
    '<img src="{{link}}">',
    '<form action="{{link}}">',
    '<button formaction="{{link}}">',
    '<svg><a xlink:href="{{link}}">',
    '<td background="{{link}}">',
    "<p style=\"background: url('{{link}}')\">",
    "<p style='background: url({{link}})'>",
    "<a title={{link}}>",
]


@pytest.mark.parametrize("link", HOSTILE_LINKS)
@pytest.mark.parametrize("rich", LINKS[:-1])
def test_no_variable_makes_a_link_that_runs_a_script(rich: str, link: str) -> None:
    with pytest.raises(BadIntent, match="link would make a link that runs a script") as refused:
        render_message(template("plain {{link}}", rich=rich), {"link": link})
    assert refused.value.code == "TEMPLATE_RENDER_ERROR"


@pytest.mark.parametrize(
    ("rich", "data"),
    [
        ('<a href="{{a}}{{b}}">', {"a": "java", "b": "script:x"}),
        ('<a href="java{{a}}">', {"a": "script:x"}),
        ('<a href="{{a}}:x">', {"a": "javascript"}),
        ("<a title={{a}}>", {"a": "x href=javascript:x"}),
        ('<a href="https://example.org">{{b}}</a><a href="{{a}}">', {"a": "javascript:x", "b": "javascript:"}),
    ],
)
def test_a_scheme_in_parts_is_seen(rich: str, data: dict[str, str]) -> None:
    with pytest.raises(BadIntent, match=r"a would make a link|a, b would make a link"):
        render_message(template("plain", rich=rich), data)


@pytest.mark.parametrize(
    "value", [*HOSTILE_LINKS, "https://example.org/?a=b&c=javascript:x", "myapp://open", "mailto:a@b"]
)
@pytest.mark.parametrize(
    "rich",
    [
        "<p>{{link}}</p>",
        '<a title="{{link}}">',
        '<a href="https://example.org/{{link}}">',
        '<a href="/go?to={{link}}">',
        '<a href="#{{link}}">',
        '<img alt="{{link}}">',
        "<a href=\"javascript:go('{{link}}')\">",
        '<p data-src="{{link}}">',
    ],
)
def test_everything_else_stays_as_it_was(rich: str, value: str) -> None:
    expected = rich.replace("{{link}}", html.escape(value))
    assert render_message(template("x", rich=rich), {"link": value}).html == expected


@pytest.mark.parametrize(
    "link",
    [
        "https://example.org",
        "HTTP://x",
        "mailto:a@b.c",
        "tel:+1",
        "myapp://x",
        "/a:b",
        "",
        "data:image/png;base64,AA==",
    ],
)
@pytest.mark.parametrize("rich", LINKS)
def test_honest_links_stay(rich: str, link: str) -> None:
    message = render_message(template("x", rich=rich), {"link": link})
    assert message.html == rich.replace("{{link}}", html.escape(link)).replace("{{ link }}", html.escape(link))
