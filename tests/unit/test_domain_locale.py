"""Which language a person is spoken to in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.templates import LocaleRules, parse_accept_language, resolve_locale, wished_locale
from tests.support.examples import examples

PROPERTY = examples(200)
GALAXY = LocaleRules(default="en", on_missing="default")
LISTO = LocaleRules(default="en-US", on_missing="error")
CHAIN = LocaleRules(default="en-US", on_missing="chain")


@pytest.mark.req("S2-101")
@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ("es-MX, en-US;q=0.9", ["es-MX", "en-US"]),
        ("en-US;q=0.9, es-MX", ["es-MX", "en-US"]),
        ("de;q=0.3,fr;q=0.8,it;q=0.5", ["fr", "it", "de"]),
        ("de, fr, it", ["de", "fr", "it"]),
        ("de;q=0.5, fr;q=0.5", ["de", "fr"]),
        ("de ; q=0.5 , fr", ["fr", "de"]),
        ("*", []),
        ("*, de;q=0.1", ["de"]),
        ("de;q=0", []),
        ("de;q=2, fr", ["fr"]),
        ("de;q=-1, fr", ["fr"]),
        ("de;q=nan, fr", ["fr"]),
        ("de;q=inf, fr", ["fr"]),
        ("de;q=high, fr", ["fr"]),
        ("de;level=1, fr", ["fr"]),
        ("", []),
        (",,;;,", []),
        ("1234, x, <script>, ../../etc, en_US, de", ["de"]),
        ("zh-Hant-TW", ["zh-Hant-TW"]),
        ("de\r\nSet-Cookie: a=b", []),
    ],
)
def test_the_header_table(header: str, tags: list[str]) -> None:
    assert parse_accept_language(header) == tags


@PROPERTY
@given(st.text(max_size=300))
def test_any_header_gives_only_clean_tags(header: str) -> None:
    for tag in parse_accept_language(header):
        assert tag.replace("-", "").isalnum()
        assert tag.isascii()


def test_a_header_without_end_is_cut() -> None:
    assert len(parse_accept_language("de," * 100_000)) <= 500


@pytest.mark.parametrize(
    ("explicit", "preferred", "header", "tenant", "wished"),
    [
        ("fr-FR", "de-DE", "es-MX", "it-IT", "fr-FR"),
        (None, "de-DE", "es-MX", "it-IT", "de-DE"),
        (None, None, "es-MX, en-US;q=0.9", "it-IT", "es-MX"),
        (None, None, "*", "it-IT", "it-IT"),
        (None, None, None, "it-IT", "it-IT"),
        (None, None, None, None, "en-US"),
        ("", "", "", "", "en-US"),
    ],
)
def test_the_first_that_is_said_is_wished(
    explicit: str | None, preferred: str | None, header: str | None, tenant: str | None, wished: str
) -> None:
    assert wished_locale(explicit, preferred, header, tenant, "en-US") == wished


@pytest.mark.parametrize(
    ("wished", "existing", "rules", "found"),
    [
        ("en", {"en"}, GALAXY, "en"),
        ("fr-FR", {"en"}, GALAXY, "en"),
        ("", {"en"}, GALAXY, "en"),
        ("pt-BR", {"en", "pt"}, GALAXY, "en"),
        ("es-MX", {"en-US", "es-MX"}, LISTO, "es-MX"),
        ("es-MX", {"en-US", "es"}, LISTO, None),
        ("pt-BR", {"en-US", "pt"}, CHAIN, "pt"),
        ("zh-Hant-TW", {"en-US", "zh"}, CHAIN, "zh"),
        ("zh-Hant-TW", {"en-US", "zh", "zh-Hant"}, CHAIN, "zh-Hant"),
        ("pt-BR", {"en-US"}, CHAIN, "en-US"),
        ("pt-BR", {"de"}, CHAIN, None),
        ("pt-BR", set(), CHAIN, None),
        ("pt-BR", {"de"}, GALAXY, None),
        ("PT-br", {"pt-BR", "en-US"}, CHAIN, "en-US"),
    ],
)
def test_a_wish_becomes_what_exists_or_nothing(
    wished: str, existing: set[str], rules: LocaleRules, found: str | None
) -> None:
    assert resolve_locale(wished, existing, rules) == found


@PROPERTY
@given(
    st.text(alphabet="abAB-", max_size=12),
    st.sets(st.text(alphabet="abAB-", min_size=1, max_size=6), max_size=5),
    st.sampled_from([GALAXY, LISTO, CHAIN]),
)
def test_only_what_exists_is_ever_chosen(wished: str, existing: set[str], rules: LocaleRules) -> None:
    found = resolve_locale(wished, existing, rules)
    assert found is None or found in existing
    assert wished not in existing or found == wished
