"""Amounts that are written together after a render: the same texts and refusals as from the filter."""

import random
from typing import Any

import pytest
from babel import localedata

from carillon.domain.errors import BadIntent
from carillon.domain.notifications import Template
from carillon.intake.jinja.formats import Person
from carillon.intake.render import render_message
from carillon.intake.render_process import RenderProcess
from tests.unit.test_jinja_engine import ADA, ANNA, ready

TABLE = "{% for i in rows %}<td>{{  i.price|money(i.currency)  }}</td>{% endfor %}{{  total|money('EUR')  }}"
BY_FILTER = TABLE.replace("{{ ", "{{-").replace(" }}", "-}}")
"""The same template: only the filter writes an amount that takes the white space around it away."""
CURRENCIES = ("EUR", "USD", "JPY", "BHD", "CLF", "CHF", "INR", "eur", "XXX", "ZZZ")
STRANGE: tuple[Any, ...] = (
    *("", " ", "x", "5 ", " 5", "1_000", "1__0", "12,5", "1e3", "1E+3", "+7", "-0.00", "NaN", "inf", "٣", "5\nUSD"),
    *("5\nEUR\n6", "\n5", "EUR", "<b>", "&lt;", "1/2", "0x10", "1.", ".5", "00012.50", "12.500", "9" * 40, "\x01\n1"),
    *(True, False, [], {}, [1], {"a": 1}, 0, -0.0, 2.675, 0.005, 1.005, 1e11 + 0.1, 1e22, 1e-7, 5e-324, -3, 10**18),
)
TREE = [{"n": 1, "under": [{"n": 2, "under": []}]}]
WRONG_CURRENCIES: tuple[Any, ...] = ("", "EURO", "E1R", "<b>", "€", 5, True, ["EUR"], "EUR\n", "\nEUR", "E\nR")


def outcome(template: Template, data: dict[str, Any], person: Person) -> tuple[object, ...]:
    try:
        message = render_message(template, data, person=person)
    except BadIntent as refused:
        return (refused.code, str(refused), refused.field, refused.place)
    return (message.html, message.text)


def both(data: dict[str, Any], person: Person) -> tuple[tuple[object, ...], tuple[object, ...]]:
    return outcome(TOGETHER, data, person), outcome(FILTERED, data, person)


TOGETHER, FILTERED = (ready(html=source, text=source) for source in (TABLE, BY_FILTER))


def test_the_two_templates_go_the_two_ways() -> None:
    """What the other tests compare would be nothing if both went the same way."""
    for template, together in ((TOGETHER, True), (FILTERED, False)):
        made = template.composition
        assert made is not None
        assert made.html is not None
        assert (made.html.marked is not None, made.text.marked is not None) == (together, together)


@pytest.mark.req("P-930")
def test_amounts_are_what_the_filter_writes() -> None:
    dice = random.Random(930)
    for _ in range(600):
        digits = dice.randrange(5)
        amounts = [
            round(dice.choice((-1, 1, 1, 1)) * dice.random() * 10 ** dice.randrange(13), digits) for _ in range(9)
        ]
        said: list[Any] = [dice.choice((one, str(one), int(one))) for one in amounts]
        one = dice.choice(CURRENCIES)
        currencies = [one if dice.random() < 0.8 else dice.choice(CURRENCIES) for _ in said]
        rows = [{"price": price, "currency": currency} for price, currency in zip(said, currencies, strict=True)]
        data = {"rows": rows[dice.randrange(9) :], "total": dice.choice(said)}
        together, filtered = both(data, dice.choice((ADA, ANNA)))
        assert together == filtered, data


@pytest.mark.req("P-930")
@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_what_is_no_plain_number_is_the_filters_affair(value: Any) -> None:
    for rows in ([{"price": 1.5, "currency": "EUR"}, {"price": value, "currency": "EUR"}], []):
        together, filtered = both({"rows": rows, "total": 3 if rows else value}, ANNA)
        assert together == filtered
    assert "\x01" not in str(together[0]) or "\x01" in str(value)


@pytest.mark.req("P-930")
@pytest.mark.parametrize("currency", WRONG_CURRENCIES, ids=repr)
def test_a_wrong_currency_is_refused_as_by_the_filter(currency: Any) -> None:
    for rows in ([{"price": 1, "currency": currency}], [{"price": 1, "currency": one} for one in ("EUR", currency)]):
        together, filtered = both({"rows": rows, "total": 1}, ADA)
        assert together == filtered
        assert together[0] == "TEMPLATE_RENDER_ERROR"


@pytest.mark.req("P-930")
@pytest.mark.parametrize("data", [{}, {"rows": [{}], "total": 1}, {"rows": [{"price": 1}], "total": 1}, {"rows": []}])
def test_a_missing_value_is_named_as_by_the_filter(data: dict[str, Any]) -> None:
    together, filtered = both(data, ADA)
    assert together == filtered
    assert "missing template variables" in str(together[1])


@pytest.mark.slow
@pytest.mark.req("P-930")
def test_amounts_are_the_same_in_every_locale() -> None:
    prices = (0, 1, 12.5, 999.99, 1000, 1234567.89)
    rows = [{"price": price, "currency": currency} for currency in ("EUR", "JPY") for price in prices]
    rows += [{"price": 5, "currency": currency} for currency in ("PEN", "PAB")]
    for tag in localedata.locale_identifiers():
        person = Person(tag.replace("_", "-"), "UTC", 0.0)
        for each in (rows[:6], rows):
            together, filtered = both({"rows": each, "total": 7}, person)
            assert together == filtered, tag


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% macro m(x) %}{{ x|money('EUR') }}{% endmacro %}{{ m(n)|upper }}{{ m(n)|length }}", "€3.005"),
        ("{% set s %}{{ n|money('EUR') }}{% endset %}{{ s|replace('3', '4') }}", "€4.00"),
        ("{% filter upper %}{{ n|money('EUR') }}a{% endfilter %}", "€3.00A"),
        ("{% for i in tree recursive %}{{ i.n|money('EUR') }}{{ loop(i.under)|upper }}{% endfor %}", "€1.00€2.00"),
        ("{% block b %}{{ n|money('EUR') }}{% endblock %}", "€3.00"),
        ("{% if n %}{{ n|money('EUR') }}{% else %}{{ n|money('USD') }}{% endif %}", "€3.00"),
        ("a {{- n|money('EUR') -}} b {{ n|money('USD') }} c {{- n }}", "a€3.00b $3.00 c3"),
        ("{{ n|money('EUR')|replace('3', '4') }}{{ n|money('EUR') ~ n }}", "€4.00€3.003"),
        ("{{ n|money(currency='EUR') }}{{ (n)|money('EUR') }}{{ n + 1|money('EUR') if false else n }}", "€3.00€3.003"),
        ("{% if false %}{{ n|money('EUR') }}{% endif %}-", "-"),
        ("{% set n = 4 %}{{ n|money('EUR') }}{% with n = 5 %}{{ n|money('EUR') }}{% endwith %}", "€4.00€5.00"),
        ("{{ loop|default(n)|money('EUR') }}{% for n in [7] %}{{ loop.index|money('EUR') }}{% endfor %}", "€3.00€1.00"),
    ],
)
@pytest.mark.req("P-930")
def test_no_mark_is_left_and_none_is_taken_up(source: str, expected: str) -> None:
    message = render_message(ready(html=f"<p>{source}</p>", text=source), {"n": 3, "tree": TREE}, person=ADA)
    assert (message.text, message.html) == (expected, f"<p>{expected}</p>")


@pytest.mark.req("P-930")
def test_a_part_that_was_made_ready_twice_and_in_another_process_has_its_marks() -> None:
    data = {"rows": [{"price": 1, "currency": "EUR"}], "total": 2}
    again = ready(html=TABLE, text=TABLE)
    assert outcome(again, data, ADA) == outcome(TOGETHER, data, ADA) == outcome(FILTERED, data, ADA)
    process = RenderProcess()

    def beside() -> Any:
        raise AssertionError("it was rendered in this process")

    try:
        assert process.render((again, data, "error", ADA), beside).html == "<td>€1.00</td>€2.00"
    finally:
        process.close()
