"""Hostile templates of the jinja engine: pieces of the grammar, shuffled, nested, cut and repeated.

`python -m tests.fuzz.jinja_templates --seed 19 --number 2000000` feeds so many of them to one process, each with a
number of its own, so that `--first N --number 1` repeats one of them.
"""

import argparse
import mmap
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


_STATEMENTS = (
    *(
        "{% for i in [] %}<>{% endfor %}",
        "{% for i, j in []|items %}<>{% else %}<>{% endfor %}",
        "{% if [] %}<>{% endif %}",
    ),
    *("{% if [] %}<>{% elif [] %}<>{% else %}<>{% endif %}", "{% set q = [] %}<>", "{% set q %}<>{% endset %}{{ q }}"),
    *("{% with q = [] %}<>{% endwith %}", "{% filter upper %}<>{% endfilter %}", "{% block c %}<>{% endblock %}"),
    *(
        "{% macro m(q) %}<>{% endmacro %}{{ m([]) }}",
        "{% for i in [] if [] %}{% if [] %}{% break %}{% endif %}<>{% endfor %}",
    ),
    *("{% macro k(q) %}{{ caller() }}<>{% endmacro %}{% call k([]) %}<>{% endcall %}", '{% include "p" %}<>'),
    *(
        "{% for i in [] recursive %}{{ i }}{{ loop([]) }}{% endfor %}",
        "{% macro r(q) %}<>{{ r([]) }}{% endmacro %}{{ r(1) }}",
    ),
    *(
        "{{ [] }}<>",
        "{{ [] }}",
        '<a href="{{ [] }}">{{ [] }}</a>',
        "<td class='c {{ [] }}'>é</td>",
        "{% raw %}{{ }}{% endraw %}",
    ),
)


def _well_formed(dice: random.Random, depth: int = 0) -> str:
    """A template whose statements are closed, so that it is often rendered."""
    out: list[str] = []
    for _ in range(dice.randrange(1, 4)):
        said = dice.choice(_STATEMENTS if depth < 5 else _STATEMENTS[-4:])
        while "[]" in said:
            said = said.replace("[]", _simple(dice) if dice.random() < 0.6 else _expression(dice, 2), 1)
        while "<>" in said:
            said = said.replace("<>", _well_formed(dice, depth + 1) if dice.random() < 0.5 else " x ", 1)
        out.append(said)
    return "".join(out)


def _simple(dice: random.Random) -> str:
    found = dice.choice(
        ("a", "b", "items", "x.y", "text", "n", "deep", "q|default(7)", "i|default(a)", "range(3)", "'s'")
    )
    return f"{found}|{dice.choice(_FILTERS[:-1])}" if dice.random() < 0.4 else found


def hostile(dice: random.Random) -> str:
    """One template."""
    if dice.random() < 0.5:
        return _well_formed(dice)
    pieces: list[str] = []
    for _ in range(dice.randrange(1, 12)):
        tag = (
            dice.choice(_TAGS).replace("{}", _expression(dice), 1)
            if dice.random() < 0.8
            else "text " * dice.randrange(4)
        )
        pieces.append(tag)
    text = "".join(pieces) * dice.choices((1, 3, 40), (40, 4, 1))[0]
    if dice.random() < 0.2:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(("\x00", "{", "}", "'", "\u202e", "%", "|", "é", "(", "\n")) + text[at:]
    return text


_FORMS: dict[str, Callable[[str], dict[str, Any]]] = {
    "text": lambda text: {"text": text},
    "html": lambda text: {"html": f"<p>{text}</p>", "text": ""},
    "styled": lambda text: {"html": f"<style>p, td {{ color: red }}</style><p>{text}</p>", "text": ""},
    "mjml": lambda text: {
        "mjml": "<mjml><mj-body><mj-section><mj-column><mj-text>"
        f"{text}</mj-text></mj-column></mj-section></mj-body></mjml>",
        "text": "",
    },
}


def outcome(text: str, form: str = "both") -> str:
    """What becomes of a hostile template: `rendered` or `refused`; everything else is a finding and is raised."""
    said: dict[str, Any] = {"text": text, "html": f"<p>{text}</p>"} if form == "both" else _FORMS[form](text)
    template = Template(code="t", channel="email", locale="en", engine="jinja", **said)
    try:
        ready = Composer().ready(template, lambda key: {("email", "en"): PARTIAL} if key == "p" else {})
        render_message(ready, DATA, person=Person("de-DE", "Europe/Berlin", 1.8e9))
    except (BadIntent, BadTemplate):
        return "refused"
    return "rendered"


def numbered(seed: int, number: int) -> tuple[str, str]:
    """The template of a number, and the part in which it stands."""
    dice = random.Random(seed * 1_000_003 + number)
    form = dice.choices(("text", "html", "styled", "mjml"), (5, 3, 1, 1))[0]
    return hostile(dice), form


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.jinja_templates")
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--kept", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    options.kept.mkdir(parents=True, exist_ok=True)
    # A crash ends the process: the number of its template is in this file.
    at_file = options.kept / f"template-at-{options.seed}-{options.first}"
    at_file.write_bytes(b" " * 16)
    seen: Counter[str] = Counter()
    slowest, slowest_at = 0.0, -1
    with at_file.open("r+b") as file, mmap.mmap(file.fileno(), 16) as at:
        for number in range(options.first, options.first + options.number):
            at[:] = b"%16d" % number
            text, form = numbered(options.seed, number)
            began = time.process_time()
            try:
                seen[f"{form} {outcome(text, form)}"] += 1
            except Exception as error:  # noqa: BLE001 - everything that is no refusal is what we look for
                seen["FOUND"] += 1
                sys.stdout.write(f"FOUND {number}: {type(error).__name__}: {str(error)[:200]}\n")
            took = time.process_time() - began
            if took > slowest:
                slowest, slowest_at = took, number
            if took > 1.0:
                seen["FOUND"] += 1
                sys.stdout.write(f"FOUND {number}: {took:.2f} s\n")
            if (number + 1) % 20_000 == 0:
                sys.stdout.write(f"{number + 1:,} {dict(seen)} slowest {slowest * 1000:.0f} ms at {slowest_at}\n")
                sys.stdout.flush()
    sys.stdout.write(
        f"seed {options.seed}: {sum(seen.values()):,} {dict(seen)} slowest {slowest:.3f} s at {slowest_at}\n"
    )
    return 1 if seen["FOUND"] else 0


if __name__ == "__main__":
    sys.exit(main())
