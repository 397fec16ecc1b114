"""What comes from outside is made clean and bounded once, where it enters."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.border import clean_json, clean_text, json_elements
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptKind
from carillon.receipts.callbacks import LAST_MOMENT_MS, clean_reading

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
"""Lone surrogates and U+0000 included."""
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


def storable(text: str) -> bool:
    return "\x00" not in text and text.encode("utf-8", "ignore").decode() == text


@given(ANY_TEXT)
def test_every_text_becomes_storable_and_good_text_stays(text: str) -> None:
    cleaned = clean_text(text)
    assert storable(cleaned)
    assert len(cleaned) == len(text)
    if storable(text):
        assert cleaned == text
    assert clean_text(text, 3) == cleaned[:3]


@given(ANY_JSON)
def test_json_is_read_after_cleaning_and_good_json_stays(value: Any) -> None:
    body = json.dumps(value).encode()
    cleaned = clean_json(body)
    found = msgspec.json.decode(cleaned)
    if b"\\u0000" not in body and b"\\ud" not in body:
        assert cleaned == body
        assert found == value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\udc00\ud800"', "\ufffd\ufffd"),
        (rb'"\u0000a"', "\ufffda"),
        # An escaped backslash before letters that look like an escape.
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (b'"\xff"', "\ufffd"),
    ],
)
def test_escapes(body: bytes, text: str) -> None:
    assert msgspec.json.decode(clean_json(body)) == text


BAD_ELEMENTS = {
    "lone surrogate": rb'{"useragent": "\ud800"}',
    "no JSON": b"{nonsense}",
    "too deep": b"[" * 3000 + b"]" * 3000,
    "brackets in a text": rb'{"a": "]}[{,\"", "b": nope}',
    "large number": b'{"n": 1e99999}',
}


@pytest.mark.parametrize("name", BAD_ELEMENTS)
def test_one_bad_element_costs_no_other(name: str) -> None:
    found = json_elements(b'[{"good": 1}, ' + BAD_ELEMENTS[name] + b', {"good": 2}]')
    assert found is not None
    assert [found[0], found[-1], len(found)] == [b'{"good": 1}', b'{"good": 2}', 3]


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"null", b"[" * 5000, b'["'])
def test_what_is_no_array_has_no_elements(body: bytes) -> None:
    assert json_elements(body) is None


@pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\", b"[", b'{"', b"\\ud800", b'"\\'])
def test_hostile_text_is_read_in_linear_time(unit: bytes) -> None:
    body = b"[" + unit * (1024 * 1024 // len(unit))
    began = time.process_time()
    json_elements(body)
    assert time.process_time() - began < 3


def test_a_receipt_is_clean_and_bounded_before_it_is_looked_up() -> None:
    dirty = Receipt(
        provider="p",
        kind=ReceiptKind.DELIVERED,
        provider_message_id="a\x00b",
        event_id="\ud800" + "x" * 5000,
        address="ada\x00@example.org",
        occurred_at_ms=2**63,
        reason="r" * 9000,
    )
    [receipt] = clean_reading(CallbackReading((dirty,), ("why\x00",))).receipts
    assert (receipt.provider_message_id, receipt.address) == ("a\ufffdb", "ada\ufffd@example.org")
    assert receipt.event_id == "\ufffd" + "x" * 999
    assert (receipt.occurred_at_ms, len(receipt.reason or "")) == (None, 2000)
    in_time = msgspec.structs.replace(dirty, occurred_at_ms=LAST_MOMENT_MS)
    assert clean_reading(CallbackReading((in_time,))).receipts[0].occurred_at_ms == LAST_MOMENT_MS
