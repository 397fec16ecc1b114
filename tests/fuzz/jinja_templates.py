"""Hostile templates of the jinja engine: pieces of the grammar, shuffled, nested, cut and repeated."""

import random

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Template
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message

_NAMES = ("a", "b", "items", "x.y", "loop.index", "brand", "nobody", "text", "n", "deep", "loop", "t", "caller", "self")
_FILTERS = (
    *(
        "upper",
        "join",
        "join(text)",
        "replace('a', text)",
        "sort",
        "list",
        "length",
        "money('EUR')",
        "date",
        "batch(2)",
    ),
    *("default('x')", "safe", "tojson", "map('upper')", "sum", "slice(3)", "indent(9)", "relative", "number", "phone"),
    *("items", "first", "reverse", "unique", "groupby('n')", "selectattr('n')", "split(',')", "truncate(3)", "nosuch"),
)
_OPERATORS = ("+", "-", "*", "~", "/", "//", "%", "**", "==", "<", " in ", " and ", " or ", " is ", " if ", " not in ")
_TAGS = (
    *(
        "{% for i in {} %}",
        "{% endfor %}",
        "{% if {} %}",
        "{% elif {} %}",
        "{% else %}",
        "{% endif %}",
        "{% set q = {} %}",
    ),
    *(
        "{% set q %}",
        "{% endset %}",
        "{% macro m(q) %}",
        "{% endmacro %}",
        "{{ m({}) }}",
        "{% with q = {} %}",
        "{% endwith %}",
    ),
    *("{% filter upper %}", "{% endfilter %}", "{% call m() %}", "{% endcall %}", "{% block c %}", "{% endblock %}"),
    *(
        '{% include "p" %}',
        '{% extends "p" %}',
        '{% import "p" as m %}',
        "{% raw %}",
        "{% endraw %}",
        "{# {} #}",
        "{{ {} }}",
    ),
    *(
        "{{ super() }}",
        "{% break %}",
        "{%- if {} -%}",
        "{{ loop({}) }}",
        "{% for i in {} recursive %}",
        "{{",
        "{%",
        "}}",
        "{#",
    ),
)
DATA = {
    "a": 1,
    "b": "<b>",
    "items": [{"n": one, "s": "t" * one} for one in range(20)],
    "x": {"y": [1, 2, 3]},
    "text": "y" * 2000,
    "n": 9_000,
    "deep": [[[[1]]]],
}
PARTIAL = Template(
    code="p", channel="email", locale="en", engine="jinja", kind="partial", text="{% block c %}{{ a }}{% endblock %}"
)


def _expression(dice: random.Random, depth: int = 0) -> str:
    kind = dice.randrange(9)
    if depth > 4 or kind < 2:
        return dice.choice((*_NAMES, "1", "'s'", "2.5", "99999", "range(n)", "[]", "-1", "none", '"}}"'))
    inner = _expression(dice, depth + 1)
    if kind < 5:
        return f"{inner}{dice.choice(_OPERATORS)}{_expression(dice, depth + 1)}"
    if kind == 5:
        return f"[{inner}, {inner}]"
    if kind == 6:
        return f"({inner})" * dice.choice((1, 1, 1, 2))
    return f"{inner}|{dice.choice(_FILTERS)}"


def hostile(dice: random.Random) -> str:
    """One template."""
    pieces: list[str] = []
    for _ in range(dice.randrange(1, 12)):
        tag = (
            dice.choice(_TAGS).replace("{}", _expression(dice), 1)
            if dice.random() < 0.8
            else "text " * dice.randrange(4)
        )
        pieces.append(tag)
    text = "".join(pieces) * dice.choice((1, 1, 1, 1, 3, 40))
    if dice.random() < 0.2:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(("\x00", "{", "}", "'", "\u202e", "%", "|", "é", "(", "\n")) + text[at:]
    return text


def outcome(text: str) -> str:
    """What becomes of a hostile template: `rendered` or `refused`; everything else is a finding and is raised."""
    template = Template(code="t", channel="email", locale="en", engine="jinja", text=text, html=f"<p>{text}</p>")
    try:
        ready = Composer().ready(template, lambda key: {("email", "en"): PARTIAL} if key == "p" else {})
        render_message(ready, DATA, person=Person("de-DE", "Europe/Berlin", 1.8e9))
    except (BadIntent, BadTemplate):
        return "refused"
    return "rendered"
