"""What is missing is refused wherever a template uses it, and what cannot be shown is not shown."""

import jinja2
import pytest

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.notifications import Template
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
from tests.unit.test_jinja_engine import ADA, other, ready, text

DATA = {"n": 3, "word": "banana", "rows": [{"k": 1}, {"k": 2}], "day": "2026-11-17"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ n == nobody }}",
        "{% if n > nobody %}{% endif %}",
        "{% if n != word.nobody %}{% endif %}",
        "{% if n in nobody %}{% endif %}",
        "{% if n > 3 or n <= nobody %}{% endif %}",
        "{{ [1, nobody]|join }}",
        "{{ {'a': nobody}|length }}",
        "{{ word|replace('a', nobody) }}",
        "{{ rows|join(nobody) }}",
        "{{ rows|sort(attribute=nobody)|length }}",
        "{{ [1]|sum(start=nobody) }}",
        "{{ word|indent(nobody) }}",
        "{{ word|truncate(nobody) }}",
        "{{ n|number(nobody) }}",
        "{{ n|money(nobody) }}",
        "{{ day|date(nobody) }}",
        "{{ word|phone(nobody) }}",
        "{{ n|round(nobody) }}",
        "{{ rows|selectattr('k', 'equalto', nobody)|list|length }}",
        "{{ n is eq(nobody) }}",
        "{{ n is not divisibleby(nobody) }}",
        "{{ t(nobody) }}",
        "{{ range(nobody)|length }}",
    ],
)
@pytest.mark.req("P-740")
def test_a_missing_variable_is_refused_on_the_right_and_as_an_argument(source: str) -> None:
    with pytest.raises(BadIntent, match=r"missing template variables: .*nobody") as refused:
        text(f"one\n {source}", DATA)
    assert refused.value.place == ("order", 2, 2, "text")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ n == nobody|default(3) }}", "True"),
        ("{{ n|round(nobody|default(0)) }}", "3"),
        ("{% if n == none %}x{% else %}y{% endif %}{{ n != true }}", "yTrue"),
        ("{{ rows|selectattr('k', 'gt', 1)|map(attribute='k')|join }}", "2"),
        ("{{ rows|map(attribute='k', default=0)|sum }}", "3"),
        ("{{ n is defined and word is eq('banana') }}", "True"),
        ("{% if nobody is defined and n > nobody %}x{% endif %}", ""),
    ],
)
@pytest.mark.req("P-740")
def test_what_says_default_or_asks_first_is_rendered(source: str, expected: str) -> None:
    assert text(source, DATA) == expected


@pytest.mark.parametrize("source", ["{{ word|replace('b', nobody) }}", "{{ n|number(nobody) }}", "{{ n == nobody }}"])
@pytest.mark.req("P-740")
def test_where_missing_variables_are_empty_so_are_arguments(source: str) -> None:
    said = render_message(ready(text=source), DATA, "empty", ADA).text
    assert "None" not in said
    assert said in {"anana", "3", "False"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ (1e308 * 10)|money('BHD') }}",
        "{{ (1e308 * 10 - 1e308 * 10)|money('KWD') }}",
        "{{ 1e308 * 10 }}",
        "{{ huge|money('BHD') }}",
        "{{ huge|number }}",
    ],
)
@pytest.mark.req("P-741")
def test_no_message_shows_infinity(source: str) -> None:
    for huge in (float("inf"), float("nan"), float("-inf")):
        with pytest.raises(BadIntent, match=r"too large|can be shown"):
            text(source, {"huge": huge})


@pytest.mark.parametrize("day", ["2026-11-17", "20261117", "2026-W47-2", "2026W472"])
@pytest.mark.req("P-741")
def test_a_day_is_the_same_day_in_every_time_zone(day: str) -> None:
    for zone in ("America/Los_Angeles", "UTC", "Pacific/Auckland"):
        assert text("{{ day|date('d.M.y') }}", {"day": day}, Person("de-DE", zone)) == "17.11.2026"


@pytest.mark.parametrize(
    "source",
    [
        "{{ long|truncate(20) }}",
        "{{ long|truncate }}",
        "{{ long|truncate(20, true) }}",
        "{{ long|truncate(20, end='…') }}",
        "{{ long|truncate(length=24, leeway=0) }}",
        "{{ 'short'|truncate(3) }}",
        "{{ [long]|map('truncate', 9)|join }}",
    ],
)
@pytest.mark.req("P-742")
def test_texts_are_cut_as_jinja_cuts_them(source: str) -> None:
    data = {"long": "The quick brown fox jumps over the lazy dog " * 8}
    assert text(source, data) == jinja2.Environment(autoescape=True).from_string(source).render(data)


@pytest.mark.parametrize("source", ["{{ word|title(1, 2) }}", "{{ -word }}", "{{ word|truncate(1) }}"])
@pytest.mark.req("P-742")
def test_an_error_says_no_names_that_nobody_knows(source: str) -> None:
    with pytest.raises(BadIntent) as refused:
        text(source, DATA)
    assert len(str(refused.value)) < 120, refused.value
    assert refused.value.place is not None


@pytest.mark.req("P-743")
def test_translations_that_a_layout_or_a_partial_needs_are_listed_too() -> None:
    header = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
    )
    german = f'{header}\nmsgid "half"\nmsgid_plural "half"\nmsgstr[0] "eins"\nmsgstr[1] ""\n'
    held: dict[str, dict[tuple[str, str], Template]] = {
        "base": {("email", "en-US"): other("base", kind="layout", html="{{ t('mail.title') }}{% include 'foot' %}")},
        "foot": {("email", "en-US"): other("foot", kind="partial", html="{{ t('mail.foot') }}{% include 'foot' %}")},
        "translations": {("email", "de"): other("translations", locale="de", text=german, kind="catalogue")},
    }
    letter = other("x", locale="de-DE", layout="base", html="{{ t('own') }}{{ t('half', count=2) }}")
    found = Composer().missing_translations(letter, lambda key: held.get(key, {}))
    assert found == ["own", "half", "mail.title", "mail.foot"]


@pytest.mark.parametrize("link", ["javascript:x", "&#106;avascript:x", "&#x6A;avascript&colon;x", "java&Tab;script:x"])
@pytest.mark.req("P-749")
def test_a_link_of_the_template_itself_that_runs_a_script_is_refused_at_its_place(link: str) -> None:
    with pytest.raises(BadTemplate, match="a link begins with") as refused:
        ready(html=f'<p>\n  <a href="{link}">x</a></p>')
    place = refused.value.place
    assert place is not None
    assert (place.template, place.part) == ("order", "html")
    assert (place.line, place.column) == ((2, 12) if link == "javascript:x" else (1, 1))
