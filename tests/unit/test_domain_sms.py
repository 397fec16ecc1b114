"""How many parts a text message has, and how it is spelled so that it has fewer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.content.sms import Segments, segments_of, transliterate
from tests.support.examples import examples

PROPERTY = examples(300)
WITHOUT_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@pytest.mark.req("P-101")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Segments("GSM-7", 0, 1, 160)),
        ("a" * 160, Segments("GSM-7", 160, 1, 160)),
        ("a" * 161, Segments("GSM-7", 161, 2, 153)),
        ("a" * 306, Segments("GSM-7", 306, 2, 153)),
        ("a" * 307, Segments("GSM-7", 307, 3, 153)),
        # Two septets each: an escape and the sign.
        ("€" * 80, Segments("GSM-7", 160, 1, 160)),
        ("€" * 81, Segments("GSM-7", 162, 2, 153)),
        # A part holds 76 of them: the escape and its sign stay together, and one septet stays empty.
        ("€" * 153, Segments("GSM-7", 306, 3, 153)),
        ("[]{}\\~^|\f", Segments("GSM-7", 18, 1, 160)),
        ("Ω" * 70, Segments("GSM-7", 70, 1, 160)),
        ("я" * 70, Segments("UCS-2", 70, 1, 70)),
        ("я" * 71, Segments("UCS-2", 71, 2, 67)),
        ("я" * 134, Segments("UCS-2", 134, 2, 67)),
        ("я" * 135, Segments("UCS-2", 135, 3, 67)),
        # One letter outside the alphabet makes the whole text UCS-2.
        ("a" * 70 + "ç", Segments("UCS-2", 71, 2, 67)),
        # An emoji is a pair of units, which stays together.
        ("😀" * 35, Segments("UCS-2", 70, 1, 70)),
        ("😀" * 36, Segments("UCS-2", 72, 2, 67)),
        ("😀" * 67, Segments("UCS-2", 134, 3, 67)),
        # A family is several emoji and joiners.
        ("👩‍👩‍👧", Segments("UCS-2", 8, 1, 70)),
    ],
)
def test_parts_are_counted_as_carriers_count_them(text: str, found: Segments) -> None:
    assert segments_of(text) == found


@pytest.mark.req("P-101")
@PROPERTY
@given(WITHOUT_SURROGATES)
def test_parts_hold_the_text_and_none_is_superfluous(text: str) -> None:
    found = segments_of(text)
    assert found.units <= found.segments * found.per_segment
    if found.encoding == "UCS-2":
        assert found.units == len(text.encode("utf-16-le")) // 2
    # A part ends at most one unit early.
    assert found.segments == 1 or found.units > (found.segments - 1) * (found.per_segment - 1)


@pytest.mark.req("P-102")
@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("plain", "plain"),
        ("“Łódź” \u2013 it\u2019s here…", '"Lodz" - it\'s here...'),
        ("Çğışé", "Çgisé"),
        ("naïve\u00a0co\u0302te", "naive cote"),
        # Letters of the alphabet keep their accents.
        ("Zürich à 5 €", "Zürich à 5 €"),
        # What stays in UCS-2 stays as it is.
        ("“Привет”", "“Привет”"),
        ("ça va 😀", "ça va 😀"),
    ],
)
def test_a_text_is_spelled_in_the_cheaper_alphabet_where_all_of_it_can_be(text: str, spelled: str) -> None:
    assert transliterate(text) == spelled


@pytest.mark.req("P-102")
@PROPERTY
@given(WITHOUT_SURROGATES)
def test_spelling_never_costs_more_units_than_it_saves(text: str) -> None:
    spelled = transliterate(text)
    assert spelled == text or segments_of(spelled).encoding == "GSM-7"
    assert transliterate(spelled) == spelled
