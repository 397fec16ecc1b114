"""Seals: what they hide, what they let compare, and what becomes of damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import ConfigurationError
from carillon.ledger.resealing import again
from carillon.ledger.sealing import Seals, read_keys

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
OURS, ROTATED, THEIRS = Seals([OLD]), Seals([NEW, OLD]), Seals([NEW])
ANY = st.text(st.characters(exclude_categories=()))


@given(ANY)
def test_what_is_sealed_opens_again(text: str) -> None:
    for sealed in (OURS.address(text), OURS.content(text)):
        assert sealed is not None
        assert (OURS.open(sealed), ROTATED.open(sealed)) == (text, text)
        assert THEIRS.open(sealed) == sealed


@given(st.text(min_size=8), st.text(min_size=8))
def test_addresses_are_as_equal_as_their_seals_and_contents_never_look_alike(one: str, other: str) -> None:
    assert (OURS.address(one) == OURS.address(other)) == (one == other)
    assert OURS.content(one) != OURS.content(one)
    assert one not in str(OURS.address(one))
    assert OURS.name(one) != THEIRS.name(one)


def test_nothing_and_plain_text_stay_what_they_are() -> None:
    assert (OURS.address(None), OURS.content(None), OURS.open(None)) == (None, None, None)
    assert OURS.open("ada@example.org") == "ada@example.org"


@pytest.mark.parametrize("damage", [lambda text: text[:-4], lambda text: f"{text[:-6]}AAAA==", lambda text: f"{text}?"])
def test_a_damaged_seal_is_left_as_it_is(damage: object) -> None:
    damaged = damage(OURS.address("ada@example.org"))  # type: ignore[operator]
    assert OURS.open(damaged) == damaged


def test_rows_are_brought_under_the_first_key() -> None:
    old = OURS.address("ada@example.org")
    for known in (old, "ada@example.org"):
        assert again(ROTATED, "suppressions")(known, None) == (THEIRS.address("ada@example.org"), None)
    contacts, _ = again(ROTATED, "preferences")(f'{{"email": "{old}", "phone": "+14155550100"}}', None)
    assert contacts is not None
    assert contacts.count(f"sealed:{THEIRS.first}:") == 2
    assert "14155550100" not in contacts


@pytest.mark.parametrize("text", ["", "short", "c2hvcnQ=", "ä"])
def test_a_key_is_32_bytes(text: str) -> None:
    with pytest.raises(ConfigurationError, match="key 1 is not 32 bytes"):
        read_keys([text])


def test_no_keys_are_no_seals() -> None:
    assert read_keys([]) is None
