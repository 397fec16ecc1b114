"""Numbers, money, days and translations, in the person's language and time zone."""

import random
from decimal import Decimal

import pytest
from babel import localedata
from babel.numbers import format_currency

from carillon.domain.errors import BadIntent, BadTemplate
from carillon.intake.jinja.catalogues import read_messages
from carillon.intake.jinja.formats import Person, known_locale, money
from carillon.intake.jinja.ready import Composer
from carillon.intake.render import render_message
from tests.unit.test_jinja_engine import ADA, ANNA, other, ready, text

GERMAN = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

msgid "greeting"
msgstr "Hallo {name}"

msgid "items"
msgid_plural "items"
msgstr[0] "{count} Artikel"
msgstr[1] "{count} Artikel insgesamt"

msgctxt "female"
msgid "guest"
msgstr "Besucherin"

msgid "guest"
msgstr "Besucher"

#, fuzzy
msgid "unsure"
msgstr "vielleicht"
"""
ENGLISH = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

msgid "greeting"
msgstr "Hello {name}"

msgid "only"
msgstr "Only in English"
"""
CATALOGUES = {"de": GERMAN, "en-US": ENGLISH}


@pytest.mark.parametrize(
    ("source", "english", "german"),
    [
        ("{{ 1234.5|money('EUR') }}", "€1,234.50", "1.234,50\xa0€"),
        ("{{ -3|money('USD') }}", "-$3.00", "-3,00\xa0$"),
        ("{{ '0.125'|money('EUR') }}", "€0.12", "0,12\xa0€"),
        ("{{ 5000|money('JPY') }}", "¥5,000", "5.000\xa0¥"),
        ("{{ 1234567.891|number }}", "1,234,567.891", "1.234.567,891"),
        ("{{ 2|number(2) }}", "2.00", "2,00"),
        ("{{ '2026-11-17'|date('full') }}", "Tuesday, November 17, 2026", "Dienstag, 17. November 2026"),
        ("{{ '2026-11-17T23:30:00Z'|date }}", "Nov 17, 2026", "18.11.2026"),
        ("{{ '2026-11-17T23:30:00Z'|time('short') }}", "11:30\u202fPM", "00:30"),
        ("{{ '2026-11-17T08:30:00+02:00'|datetime('short') }}", "11/17/26, 6:30\u202fAM", "17.11.26, 07:30"),
        ("{{ 1795165200|datetime('d MMM y HH:mm') }}", "20 Nov 2026 09:00", "20 Nov. 2026 10:00"),
        ("{{ '2026-11-20T09:00:00Z'|relative }}", "in 3 days", "in 3 Tagen"),
        ("{{ '2026-11-17T07:00:00Z'|relative }}", "2 hours ago", "vor 2 Stunden"),
        ("{{ '+4930123456'|phone }}", "+49 30 123456", "+49 30 123456"),
        ("{{ '030 123456'|phone('e164') }}", "030 123456", "+4930123456"),
    ],
)
@pytest.mark.req("P-408")
def test_formats_follow_the_person(source: str, english: str, german: str) -> None:
    assert (text(source, {}, ADA), text(source, {}, ANNA)) == (english, german)


@pytest.mark.slow
@pytest.mark.req("P-408")
def test_money_is_what_the_tables_say_in_every_locale() -> None:
    """Amounts are written without Babel's slow way, and must look the same."""
    wrong = []
    for tag in localedata.locale_identifiers():
        person = Person(tag.replace("_", "-"), "UTC", 0.0)
        for currency in ("EUR", "JPY"):
            for amount in ("-1.5", "1234567.895"):
                expected = format_currency(Decimal(amount), currency, locale=known_locale(person.locale))
                if money(amount, currency, person) != expected:
                    wrong.append((tag, currency, amount, money(amount, currency, person), expected))
    assert not wrong[:5]


@pytest.mark.req("P-741")
def test_a_float_is_the_amount_that_its_shortest_text_says() -> None:
    dice = random.Random(19)
    amounts = [dice.choice((-1, 1)) * dice.random() * 10 ** dice.randrange(-4, 20) for _ in range(500)]
    amounts += [round(one, digits) for one in amounts for digits in range(5)] + [2.675, -0.0, 1e22, 0.005, 1e11 + 0.1]
    for currency in ("EUR", "JPY", "BHD", "CLF"):
        for amount in amounts:
            expected = format_currency(Decimal(repr(amount)), currency, locale=known_locale("de-DE"))
            assert money(amount, currency, ANNA) == expected or amount == 0, amount


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ 'x'|money('EUR') }}", "is not a number"),
        ("{{ 1|money('EURO') }}", "is not a currency"),
        ("{{ 1|money }}", "is not a currency"),
        ("{{ 'yesterday'|date }}", "is not a time"),
        ("{{ '2026-11-17'|date(5) }}", "is short, medium"),
        ("{{ 1e40|number }}", "is not a number that can be shown"),
        ("{{ '1'|phone('x') }}", "phone takes"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_its_place(source: str, said: str) -> None:
    with pytest.raises(BadIntent, match=said) as refused:
        text(f"\n {source}", {})
    assert refused.value.place == ("order", 2, 2, "text")


@pytest.mark.parametrize(
    ("locale", "source", "expected"),
    [
        ("de-DE", "{{ t('greeting', name='Anna') }}", "Hallo Anna"),
        ("en-US", "{{ t('greeting', name='Ada') }}", "Hello Ada"),
        ("fr-FR", "{{ t('greeting', name='Ada') }}", "Hello Ada"),
        ("de-DE", "{{ t('items', count=1) }} {{ t('items', count=2000) }}", "1 Artikel 2.000 Artikel insgesamt"),
        ("de-DE", "{{ t('guest', select='female') }} {{ t('guest', select='male') }}", "Besucherin Besucher"),
        ("de-DE", "{{ t('only') }}", "Only in English"),
        ("de-DE", "{{ t('Thank you, {name}', name='Anna') }}", "Thank you, Anna"),
    ],
)
@pytest.mark.req("P-409")
def test_translations(locale: str, source: str, expected: str) -> None:
    made = ready(text=source, locale=locale, catalogues=CATALOGUES)
    assert render_message(made, {}, person=Person(locale)).text == expected


@pytest.mark.req("P-409")
def test_a_translation_that_is_missing_is_refused_and_listed() -> None:
    made = ready(text="{{ t('nowhere') }}", catalogues=CATALOGUES)
    with pytest.raises(BadIntent, match="no translation of 'nowhere'"):
        render_message(made, {})
    german = other("x", locale="de-DE", text="{{ t('greeting') }}{{ t('only') }}{{ t('unsure') }}")
    catalogues = {
        ("email", locale): other("translations", locale=locale, text=said, kind="catalogue")
        for locale, said in CATALOGUES.items()
    }
    found = Composer().missing_translations(german, lambda key: catalogues if key == "translations" else {})
    assert found == ["only", "unsure"]


def test_values_of_translations_are_escaped_in_html() -> None:
    made = ready(html="<p>{{ t('greeting', name=name) }}</p>", catalogues=CATALOGUES)
    assert render_message(made, {"name": "<b>"}).html == "<p>Hello &lt;b&gt;</p>"


@pytest.mark.parametrize("bad", ["nonsense", 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n;"\n'])
def test_what_is_no_catalogue_is_refused(bad: str) -> None:
    with pytest.raises(BadTemplate, match="not a PO file"):
        read_messages("de", bad)
