"""Retry-After in both of its forms, and what peers write instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.providers.http import parse_retry_after

NOW = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 5 ", 5.0),
        ("1.5", 1.5),
        ("0", 0.0),
        ("-1", 0.0),
        ("1000000000000", 1e12),
        ("9" * 500, None),
        ("inf", None),
        ("nan", None),
        ("1e9", None),
        ("٣", None),
        ("soon", None),
        ("5 minutes", None),
        ("Wed, 21 Oct 2015 07:29:00 GMT", 60.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:29:00", 60.0),
        ("Wednesday, 21-Oct-15 07:29:00 GMT", 60.0),
        ("Wed, 99 Oct 2015 07:29:00 GMT", None),
        ("Wed, 21 Oct 99999 07:29:00 GMT", None),
        ("\x00", None),
    ],
)
def test_table(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@given(st.text(max_size=100), st.floats(0, 1e11))
def test_whatever_comes_is_none_or_a_wait(value: str, now: float) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or seconds >= 0
