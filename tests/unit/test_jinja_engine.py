"""The jinja engine: what templates can say, what they may not, and where an error is."""

import asyncio
import datetime as dt
import random
import time
from typing import Any

import jinja2
import pytest

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Message, Template
from carillon.intake.jinja.budget import TooHeavy
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
from carillon.intake.rendering import rendered

ADA = Person("en-US", "UTC", dt.datetime(2026, 11, 17, 9, 0, tzinfo=dt.UTC).timestamp())
ANNA = Person("de-DE", "Europe/Berlin", ADA.now)
ORDER = {
    "name": "Ada <b>",
    "n": 3,
    "order": {
        "number": "A-1",
        "note": None,
        "items": [{"name": "Tea", "price": 2.5}, {"name": "Mug", "price": 1234.5}],
    },
    "link": "https://example.org/a?b=1&c=2",
}
OTHERS = {
    "base": {
        "html": "<html>{% block title %}Shop{% endblock %}<main>{% block content %}{% endblock %}</main></html>",
        "kind": "layout",
    },
    "deeper": {"html": '{% extends "base" %}{% block title %}Deeper {{ super() }}{% endblock %}', "kind": "layout"},
    "footer": {"html": "<footer>{{ name }}{% set leaked = 1 %}</footer>", "text": "-- {{ name }}", "kind": "partial"},
    "forms": {
        "html": '{% macro button(url, text="Go") %}<a href="{{ url }}">{{ text }}</a>{% endmacro %}',
        "kind": "partial",
    },
    "loop-a": {"html": '{% include "loop-b" %}', "kind": "partial"},
    "loop-b": {"html": '{% include "loop-a" %}', "kind": "partial"},
}


def other(key: str, **fields: Any) -> Template:
    return Template(**{"code": key, "channel": "email", "locale": "en-US", "engine": "jinja", "text": "", **fields})


def ready(
    composer: Composer | None = None, catalogues: dict[str, str] | None = None, tenant: str | None = None, **parts: Any
) -> Template:
    found = {key: {("email", "en-US"): other(key, **fields)} for key, fields in OTHERS.items()}
    found["translations"] = {
        ("email", locale): other("translations", locale=locale, text=text, kind="catalogue")
        for locale, text in (catalogues or {}).items()
    }
    made = other("order", **parts)
    return (composer or Composer()).ready(made, lambda key: found.get(key, {}), tenant)


def html(source: str, data: dict[str, Any] | None = None, person: Person = ADA, **parts: Any) -> str:
    message = render_message(ready(html=source, **parts), ORDER if data is None else data, person=person)
    assert message.html is not None
    return message.html


def text(source: str, data: dict[str, Any] | None = None, person: Person = ADA, **parts: Any) -> str:
    return render_message(ready(text=source, **parts), ORDER if data is None else data, person=person).text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for i in order.items %}{{ loop.index }} {{ i.name }}{{ ', ' if not loop.last }}{% endfor %}",
            "1 Tea, 2 Mug",
        ),
        ("{% if n > 2 and 'A' in order.number %}yes{% elif n %}some{% else %}no{% endif %}", "yes"),
        ("{{ order.note|default('none') }}/{{ nobody|default('x') }}", "none/x"),
        ("{% set total = order.items|sum(attribute='price') %}{{ total }}", "1237"),
        ("{{ order.items|map(attribute='name')|join(' & ') }}", "Tea & Mug"),
        ("{{ order.items|sort(attribute='price', reverse=true)|map(attribute='name')|first }}", "Mug"),
        ("{{ (n + 1) * 2 - 3 ~ '!' if false else (n + 1) * 2 - 3 }}", "5"),
        ("{{ 'a' ~ n ~ 'b' }}", "a3b"),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(n) }}", "33"),
        ("{{ n is divisibleby(3) }} {{ nobody is defined }}", "True False"),
        ("{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% raw %}{{ x }}{% endraw %}{# nothing #}", "{{ x }}"),
        ("{{ [1, 2, 3]|batch(2)|map('length')|join('+') }}", "2+1"),
        ("{{ order.items[0].name }}{{ order.items[-1].name }}{{ order['number'] }}", "TeaMugA-1"),
        ("{{ n\n + 1 }}", "4"),
    ],
)
@pytest.mark.req("P-401")
def test_what_a_template_can_say(source: str, expected: str) -> None:
    assert text(source) == expected


def expression(dice: random.Random, depth: int = 0) -> str:
    if depth > 3 or dice.random() < 0.25:
        return dice.choice(["n", "2", "7", "order.items|length", "(n)", "-3", "m"])
    return f"{expression(dice, depth + 1)} {dice.choice('+-*~+-*')} {expression(dice, depth + 1)}"


@pytest.mark.req("P-401")
def test_operators_bind_as_in_jinja() -> None:
    """The operators are rewritten as calls that count: the order in which they bind must not change."""
    dice, same = random.Random(7), 0
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - plain text
    for _ in range(400):
        source = f"{{{{ {expression(dice)} }}}}"
        try:
            expected = environment.from_string(source).render(n=3, m=4, order={"items": []} | {"items": [1, 2]})
        except Exception:  # noqa: BLE001, S112 - a text minus a number has no value in either
            continue
        try:
            found = text(source, {"n": 3, "m": 4, "order": {"items": [1, 2]}})
        except BadIntent:
            continue
        same += 1
        assert found == expected, source
    assert same > 100


@pytest.mark.req("P-402")
def test_layouts_partials_and_macros() -> None:
    assert html('{% extends "base" %}{% block content %}Hi {{ name }}{% endblock %}') == (
        "<html>Shop<main>Hi Ada &lt;b&gt;</main></html>"
    )
    assert html('{% extends "deeper" %}{% block content %}x{% endblock %}') == "<html>Deeper Shop<main>x</main></html>"
    assert html("<p>{{ n }}</p>", layout="base") == "<html>Shop<main><p>3</p></main></html>"
    assert html('a{% include "footer" %}{{ leaked|default("b") }}') == "a<footer>Ada &lt;b&gt;</footer>b"
    button = '<a href="https://example.org/a?b=1&amp;c=2">Go</a>'
    assert html('{% from "forms" import button %}{{ button(link) }}') == button
    assert html('{% import "forms" as forms %}{{ forms.button(link, text="Go") }}') == button
    assert text('Hi\n{% include "footer" %}') == "Hi\n-- Ada <b>"


@pytest.mark.req("P-403")
def test_html_is_escaped_and_text_is_not() -> None:
    message = render_message(ready(html="<p>{{ name }} {{ link }}</p>", text="{{ name }}", subject="{{ name }}"), ORDER)
    assert message == Message(
        text="Ada <b>", subject="Ada <b>", html="<p>Ada &lt;b&gt; https://example.org/a?b=1&amp;c=2</p>"
    )
    assert html("{{ name|safe }}") == "Ada <b>"


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", " JaVa\tScript:alert(1)", "data:text/html,x", "data:image/png;base64,x"]
)
@pytest.mark.req("P-403")
def test_no_link_runs_a_script(link: str) -> None:
    for source in (
        '<a href="{{ link }}">x</a>',
        "<img src='{{ link }}'>",
        '{{ ("<a href=\\"" ~ link ~ "\\">")|safe }}',
    ):
        with pytest.raises(BadIntent, match="a link would begin with"):
            html(source, {"link": link})
    with pytest.raises(BadTemplate, match="a link begins with"):
        html(f'<a href="{link}">x</a>')


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("{{ order.total }}", "order.total"),
        ("{{ nobody }}", "nobody"),
        ("{{ order.note }}", "order.note"),
        ("{{ nobody|upper }}", "nobody"),
        ("{{ order.total|money('EUR') }}", "order.total"),
        ("{% for i in order.rows %}{% endfor %}", "order.rows"),
        ("{% if nobody %}{% endif %}", "nobody"),
        ("{{ order.keys }}", "order.keys"),
        ("{{ nobody + 1 }}", "nobody"),
        ("{{ t('a b', x=nobody) }}", "nobody"),
    ],
)
@pytest.mark.req("P-404")
def test_a_missing_variable_is_refused_with_its_place(source: str, missing: str) -> None:
    with pytest.raises(BadIntent, match=f"missing template variables: {missing} ") as refused:
        text(f"line one\n  {source}")
    assert refused.value.place == ("order", 2, 3, "text")
    assert refused.value.code == "TEMPLATE_RENDER_ERROR"
    render_message(ready(text=source.replace("t('a b', x=nobody)", "1")), ORDER, "empty")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ name", "is not closed"),
        ("{% for x in y %}", "is not closed with"),
        ("{{ 1 + }}", "nothing on its right"),
        ("{% unknown %}", "no statement"),
        ("{{ x|unknown }}", "no filter"),
        ("{{ unknown() }}", "no function"),
        ("{% autoescape false %}x{% endautoescape %}", "no statement"),
        ("{% include name %}", "names a template as text"),
        ('{% include "nobody" %}', "no partial nobody"),
        ('{% extends "nobody" %}', "no layout nobody"),
        ("{{ _w(1) }}", "does not begin with '_'"),
        ("{% block x %}", "not closed"),
        ("{# x", "not closed"),
    ],
)
@pytest.mark.req("P-405")
def test_what_does_not_compile_is_refused_with_line_and_column(source: str, said: str) -> None:
    with pytest.raises(BadTemplate, match=said) as refused:
        ready(html=f"<p>\n<b>{source}")
    assert refused.value.place == ("order", 2, 4, "html")


def test_an_error_in_a_partial_names_the_partial() -> None:
    with pytest.raises(BadIntent) as refused:
        html('{% include "footer" %}', {"n": 1})
    assert refused.value.place is not None
    assert refused.value.place.template == "footer"


BOMBS = {
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}",
    "long literal": "{% for i in range(9999) %}" + "x" * 9000 + "{% endfor %}",
    "doubling": "{% set a = 'xxxxxxxx' %}" + "{% set a = a ~ a %}" * 40 + "{{ a|length }}",
    "adding": "{% set a = 'xxxxxxxx' %}" + "{% set a = a + a %}" * 40 + "{{ a|length }}",
    "joining": "{{ range(9999)|join('x' ~ range(9999)|join('y')) }}",
    "replacing": "{% set a = range(9999)|join('a') %}{{ a|replace('a', a) }}",
    "capturing": "{% set a %}xxxxxxxx{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40 + "{{ a }}",
    "lists of lists": "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
    "lists of copies": "{% set a = [1, 1] %}" + "{% set a = [a|list, a|list] %}" * 40 + "{{ a }}",
    "recursion": "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('x') }}",
    "a long range": "{{ range(100000000)|join }}",
    "sorting": "{% for i in range(5000) %}{{ range(5000)|sort|first }}{% endfor %}",
    "searching": "{% for i in range(9000) %}{{ 'x' in order.rows }}{% endfor %}",
    "formatting": "{% for i in range(9000) %}{{ 1|money('EUR') }}{{ 5|relative }}{{ '2026-11-17'|date }}{% endfor %}",
    "a long sum": "{{ 1" + " + 1" * 12_000 + " }}",
    "many signs": "{{ " + "-" * 40_000 + "1 }}",
    "many brackets": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "many blocks": "{% if 1 %}" * 4000 + "{% endif %}" * 4000,
    "indent": "{{ 'a'|indent(1000000000) }}",
    "slice": "{{ [1]|slice(1000000000) }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.req("P-406")
def test_a_bomb_is_stopped_in_time_and_names_its_place(bomb: str) -> None:
    data = {"order": {"rows": [f"row {at}" for at in range(20_000)]}}
    began = time.process_time()
    with pytest.raises((BadIntent, BadTemplate)) as refused:
        text(BOMBS[bomb], data)
    assert time.process_time() - began < 1.0
    assert isinstance(refused.value, BadIntent | BadTemplate)
    assert refused.value.place is not None or "exceeds" in str(refused.value)


def test_partials_that_include_each_other_are_refused() -> None:
    with pytest.raises(BadTemplate, match="without end"):
        html('{% include "loop-a" %}')


def test_a_template_cannot_change_the_data_or_see_python() -> None:
    data: dict[str, Any] = {"d": {"a": 1}, "l": [1, 2]}
    for source in (
        "{{ d.clear() }}",
        "{{ d.update({'a': 2}) }}",
        "{{ l.append(3) }}",
        "{{ d.__class__ }}",
        "{{ l.count }}",
        "{{ t.__globals__ }}",
    ):
        with pytest.raises((BadIntent, BadTemplate)):
            text(source, data)
    assert data == {"d": {"a": 1}, "l": [1, 2]}


@pytest.mark.req("P-407")
def test_brands() -> None:
    composer = Composer(
        brands={"default": {"footer": "Acme", "logo": "d.png"}, "red": {"footer": "Red"}, "t-2": {"footer": "Two"}},
        tenant_brands={"t-1": "red"},
    )
    source = "{{ brand.footer }} {{ brand.logo }}"
    for tenant, expected in ((None, "Acme d.png"), ("t-1", "Red d.png"), ("t-2", "Two d.png"), ("t-3", "Acme d.png")):
        assert render_message(ready(composer, text=source, tenant=tenant), {}).text == expected
    assert render_message(ready(composer, text="{{ brand.footer }}"), {"brand": "red"}).text == "Red"
    with pytest.raises(BadIntent, match="no brand blue"):
        render_message(ready(composer, text="x"), {"brand": "blue"})


def test_defaults_are_under_the_data_also_inside() -> None:
    made = ready(text="{{ a.b }}{{ a.c }}", default_variables={"a": {"b": 1, "c": 2}})
    assert render_message(made, {"a": {"b": 5, "c": None}}).text == "52"


def made(source: str, **parts: Any) -> Template:
    written = Template(code="t", channel="email", locale="en", engine="jinja", text=source, **parts)
    return Composer().ready(written, lambda _: {})


@pytest.mark.req("P-404")
@pytest.mark.parametrize("name", ["items", "values", "get", "pop", "count", "append"])
def test_a_missing_field_that_is_called_like_a_method_is_missing(name: str) -> None:
    for text in (f"{{{{ order.{name} }}}}", f'{{{{ order["{name}"] }}}}', f"{{% if order.{name} %}}x{{% endif %}}"):
        with pytest.raises(BadIntent, match=f"missing template variables: order.*{name}"):
            render_message(made(text), {"order": {"number": 1}})
    assert render_message(made(f"{{{{ order.{name}|default('none') }}}}"), {"order": {}}).text == "none"
    assert render_message(made(f"{{{{ order.{name} }}}}"), {"order": {name: "here"}}).text == "here"


@pytest.mark.req("P-403")
@pytest.mark.parametrize(
    "text",
    [
        "<p>{{ a|safe }}</p>",
        "{% if a %}<a href='{% else %}<p>{% endif %}{{ b }}'>x",
        '<a title=">" href="{{ b }}">x</a>',
        "{% set q %}<a href='{{ b }}'>{% endset %}{{ q }}",
        "{% macro m(q) %}<img src={{ q }}>{% endmacro %}{{ m(b) }}",
    ],
)
def test_a_link_that_a_value_writes_is_looked_at_wherever_it_stands(text: str) -> None:
    data = {"a": '<a href="javascript:x">', "b": "javascript:x"}
    with pytest.raises(BadIntent, match="a link would begin with javascript:"):
        render_message(made("t", html=text), data)


@pytest.mark.req("P-406")
async def test_a_long_render_gives_way_and_says_the_same_as_a_quick_one() -> None:
    row = "{% for i in range(3000) %}{{ i|money('EUR') }}{% endfor %}"
    template, ticks = made(row), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    with pytest.raises(TooHeavy):
        render_message(template, {}, quick=True)
    ticking = asyncio.create_task(tick())
    message = await rendered(template, {})
    ticking.cancel()
    assert message == render_message(template, {})
    # A control on the same thread would leave one turn at most.
    assert ticks > 3
    with pytest.raises(BadIntent, match="steps"):
        await rendered(made("{% for a in range(9999) %}{% for b in range(99) %}{{ b }}{% endfor %}{% endfor %}"), {})


@pytest.mark.req("P-406")
@pytest.mark.parametrize(
    "bomb",
    [
        "{% for i in text|default('x') if text|map('upper') %}{{ i }}{% endfor %}",
        "{% for i in [1]|list recursive %}{{ i }}{{ loop(range(9000)|unique) }}{% endfor %}",
        "{% for i in text %}{{ text|reverse|length }}{% endfor %}",
    ],
)
def test_what_looks_at_each_letter_counts_each_letter(bomb: str) -> None:
    """Found by hostile templates: each step was one, however long its text."""
    began = time.process_time()
    with pytest.raises(BadIntent, match=r"too much work|steps|recursion"):
        render_message(made(bomb), {"text": "y" * 2000})
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ('<a href="{{ wrong }}">x</a>', 10),
        ('{% for u in [link, wrong, link] %}<i>{{ n }}</i><a href="{{ u }}">{{ u }}</a>{% endfor %}', 58),
        ('{{ n }}<a href="{{ half }}{{ rest }}">{{ n }}</a>', 17),
        ("{{ n }}{{ trusted|safe }}{{ n }}", 8),
    ],
)
@pytest.mark.req("P-934")
def test_a_link_that_runs_a_script_is_refused_with_the_place_of_its_value(source: str, column: int) -> None:
    data = {**ORDER, "wrong": "javascript:x", "half": "java", "rest": "script:x"}
    data["trusted"] = '<p>a/b</p><a href="data:text/html,x">x</a>'
    with pytest.raises(BadIntent, match="a link would begin with") as refused:
        html(f"<h1>{{{{ name }}}}</h1>\n{source}", data)
    assert refused.value.place == ("order", 2, column, "html")
