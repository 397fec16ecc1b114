"""Strict reading, canonical writing and the fingerprint."""

import json
import math
import random
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.border import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER, strict_loads
from carillon.domain.errors import BadIntent
from carillon.domain.intents import canonical, fingerprint
from tests.support.examples import cases, examples

PROPERTY = examples(300)
OUTSIDE = "an integer is outside 64 bits (-9223372036854775808 to 9223372036854775807)"
FAST_SECONDS = 2.0

V2 = {
    "recipient_user_ids": ["user-1", "user-2"],
    "producer": "game_master",
    "payload": {"turn_number": 54, "game_name": "Nebula Clash", "game_id": "game-123"},
    "occurred_at_ms": 1775121700000,
    "notification_type": "game.turn.ready",
    "idempotency_key": "game-master:game-123:turn-54",
    "audience_kind": "user",
}
V2_TEXT = (
    '{"audience_kind":"user","idempotency_key":"game-master:game-123:turn-54","notification_type":"game.turn.ready",'
    '"occurred_at_ms":1775121700000,"payload":{"game_id":"game-123","game_name":"Nebula Clash","turn_number":54},'
    '"producer":"game_master","recipient_user_ids":["user-1","user-2"]}'
)
V2_FINGERPRINT = "320e8fa3793fb01f1cf7253a61a74cd199abb34c396e94a3f0047810058dc78a"

INTEGERS = (0, 1, -1, 10, 2**31, 2**53 - 1, 2**53 + 1, MAX_INTEGER, MIN_INTEGER)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.1, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 2.0**53, 1 / 3)
CHARACTERS = (
    *("a", "b", "Z", "0", " ", '"', "\\", "/", "{", "}", "[", "]", ":", ",", "'"),
    *("\x01", "\b", "\t", "\n", "\r", "\x1f", "\x7f", "\x80", "\xa0", "ß", "é", "e\u0301"),
    *("\u2028", "\u2029", "\ud7ff", "\ue000", "\ufeff", "\ufffd", "\uffff", "\U00010000", "😀", "\U0010ffff"),
)
NEAR: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 0.0, 1.0, -0.0),
    *("", "0", "1", "null", "true", "false", [], {}, [0], [False], {"0": 0}),
)
"""Values that a careless writer takes for each other."""


class Drawn:
    """Random JSON, the same in every run; Hypothesis takes a hundred times as long for values of this kind."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self._leaves = 12

    def word(self) -> str:
        return "".join(self._character() for _ in range(self.dice.randrange(9)))

    def _character(self) -> str:
        if self.dice.random() < 0.7:
            return self.dice.choice(CHARACTERS)
        found = chr(self.dice.randrange(1, 1 << self.dice.choice((7, 8, 16, 20))))
        return "x" if "\ud800" <= found <= "\udfff" else found

    def integer(self, bits: int = 63) -> int:
        return self.dice.getrandbits(self.dice.randint(1, bits)) * self.dice.choice((1, -1))

    def number(self) -> float:
        (found,) = struct.unpack("d", self.dice.randbytes(8))
        return found if math.isfinite(found) else round(self.dice.gauss(0, 1000), self.dice.randrange(9))

    def scalar(self) -> Any:
        match self.dice.randrange(6):
            case 0:
                return self.dice.choice((None, True, False))
            case 1:
                return self.dice.choice((*INTEGERS, *FLOATS))
            case 2:
                return self.integer()
            case 3:
                return self.number()
            case _:
                return self.word()

    def value(self, depth: int = 0) -> Any:
        if depth >= 5 or self._leaves <= 0 or self.dice.random() < 0.35:
            self._leaves -= 1
            return self.scalar()
        inside = range(self.dice.randrange(5))
        if self.dice.random() < 0.5:
            return [self.value(depth + 1) for _ in inside]
        return {self.word(): self.value(depth + 1) for _ in inside}


def drawn(number: int) -> list[Drawn]:
    return [Drawn(random.Random(seed)) for seed in range(cases(number))]


def same(one: Any, other: Any) -> bool:
    """json.dumps keeps 1, 1.0 and true apart, where == does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def shuffled(value: Any, dice: random.Random) -> Any:
    """The same content with the members of every object in another order."""
    if isinstance(value, dict):
        names = list(value)
        dice.shuffle(names)
        return {name: shuffled(value[name], dice) for name in names}
    return [shuffled(inner, dice) for inner in value] if isinstance(value, list) else value


def refused(body: bytes | str) -> str:
    with pytest.raises(BadIntent) as caught:
        strict_loads(body)
    assert caught.value.code == "VALIDATION_ERROR"
    return str(caught.value)


@pytest.mark.req("G-10")
def test_the_catalogues_vector() -> None:
    assert canonical(V2) == V2_TEXT
    assert fingerprint(V2) == V2_FINGERPRINT
    assert fingerprint(strict_loads(V2_TEXT)) == V2_FINGERPRINT


@pytest.mark.req("S1-49")
def test_numbers_keep_value_and_kind() -> None:
    assert canonical(strict_loads('{"n":54}')) == '{"n":54}'
    assert canonical(strict_loads('{"n":54.0}')) == '{"n":54.0}'
    assert fingerprint({"n": 54}) != fingerprint({"n": 54.0})
    assert fingerprint({"n": 1}) != fingerprint({"n": True})


def test_the_order_of_members_does_not_matter() -> None:
    for each in drawn(2000):
        value = each.value()
        assert fingerprint(shuffled(value, each.dice)) == fingerprint(value)


def test_different_content_has_a_different_fingerprint() -> None:
    found = [*NEAR, *(each.value() for each in drawn(2000))]
    by_text = {json.dumps(value, sort_keys=True): value for value in found}
    assert len(by_text) > len(found) // 2
    assert len({fingerprint(value) for value in by_text.values()}) == len(by_text)


def test_any_change_of_one_member_shows() -> None:
    shown = 0
    for each in drawn(2000):
        value = {"member": each.value(), each.word(): each.value()}
        name = each.dice.choice(list(value))
        instead = each.dice.choice(NEAR) if each.dice.random() < 0.5 else each.value()
        if not same(value[name], instead):
            assert fingerprint({**value, name: instead}) != fingerprint(value)
            shown += 1
    assert shown > cases(2000) // 2


def test_canonical_text_survives_a_round_trip() -> None:
    for each in drawn(2000):
        value = each.value()
        text = canonical(value)
        assert canonical(strict_loads(text.encode())) == text
        assert canonical(strict_loads(json.dumps(value, indent=2, ensure_ascii=True))) == text


@PROPERTY
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_name(body: bytes) -> None:
    with suppress(BadIntent):
        canonical(strict_loads(body)).encode()


def test_escapes_are_resolved_and_what_is_not_ascii_stays_raw() -> None:
    assert canonical(strict_loads(r'{"\u00e9":"\u4f60\u597d \ud83d\ude00 \/"}')) == '{"é":"你好 😀 /"}'


def test_keys_are_sorted_by_code_point_and_arrays_keep_their_order() -> None:
    assert canonical({"ä": 1, "b": 2, "Z": 3, "a": [3, 1, 2]}) == '{"Z":3,"a":[3,1,2],"b":2,"ä":1}'


def test_unicode_forms_are_not_unified() -> None:
    assert fingerprint({"name": "e\u0301"}) != fingerprint({"name": "\u00e9"})


@pytest.mark.parametrize(
    "body",
    [
        '{"a":1,"a":1}',
        '{"a":1,"b":2,"a":3}',
        '[{"x":{"k":1,"k":2}}]',
        '{"a":1,"\\u0061":2}',
    ],
)
def test_a_name_twice_is_refused(body: str) -> None:
    assert "twice" in refused(body)


@pytest.mark.parametrize("body", ["NaN", "[Infinity]", '{"a":-Infinity}', "[1e400]", "[-1e400]", f"[{'9' * 400}.0]"])
def test_what_is_no_finite_number_is_refused(body: str) -> None:
    assert "number" in refused(body)


@pytest.mark.parametrize("number", [MAX_INTEGER + 1, -MAX_INTEGER - 2, 10**19, -(10**19), 10**20])
def test_an_integer_no_store_can_hold_is_refused(number: int) -> None:
    assert refused(str(number)) == OUTSIDE


def test_a_number_of_a_million_digits_is_refused_without_being_computed() -> None:
    began = time.thread_time()
    assert refused("9" * 1_000_000) == OUTSIDE
    assert time.thread_time() - began < FAST_SECONDS


@pytest.mark.parametrize("number", [0, MAX_INTEGER, MIN_INTEGER])
def test_64_bits_are_kept_exactly(number: int) -> None:
    assert strict_loads(str(number)) == number


@pytest.mark.parametrize(
    "body",
    [
        rb'"\ud800"',
        rb'"\udfff"',
        rb'["\ude00\ud83d"]',
        rb'{"\ud800":1}',
        rb'{"a":["x",{"b":"\udc00"}]}',
        '"\ud800"',
        '{"\udc80":1}',
    ],
)
def test_a_lone_surrogate_is_refused(body: bytes | str) -> None:
    assert "surrogate" in refused(body)


@pytest.mark.parametrize("body", [b'"\x00"', b"\x00", rb'"\u0000"', rb'{"a\u0000b":1}', rb'[[["\u0000"]]]'])
def test_nul_is_refused_raw_and_escaped(body: bytes) -> None:
    assert "U+0000" in refused(body)


@pytest.mark.parametrize("body", [b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', '{"a":1}'.encode("utf-16")])
def test_what_is_not_utf_8_is_refused(body: bytes) -> None:
    assert refused(body) == "body is not UTF-8"


@pytest.mark.parametrize(
    "body", ["", " ", "{", "[1,]", "{'a':1}", "01", "+1", "1 2", "\ufeff{}", '"\n"', "tru", "{a:1}"]
)
def test_what_is_not_json_is_refused(body: str) -> None:
    assert refused(body).startswith("body is not valid JSON")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_32_levels_are_read_and_33_are_not(opening: str, closing: str) -> None:
    inside = "1" if opening != "[" else ""
    assert strict_loads(opening * MAX_DEPTH + inside + closing * MAX_DEPTH)
    assert "deeper than 32" in refused(opening * (MAX_DEPTH + 1) + inside + closing * (MAX_DEPTH + 1))


@pytest.mark.parametrize("closing", ["]" * 100_000, ""])
def test_100_000_levels_are_refused_fast(closing: str) -> None:
    began = time.thread_time()
    assert "deeper than 32" in refused("[" * 100_000 + closing)
    assert time.thread_time() - began < FAST_SECONDS


def test_brackets_in_text_and_beside_each_other_are_no_depth() -> None:
    assert strict_loads('["' + '[{\\"' * 100 + '"]')
    assert len(strict_loads("[" + "[]," * 100 + "[]]")) == 101


def test_a_name_twice_among_many_is_refused_fast() -> None:
    members = ",".join(f'"k{number}":1' for number in range(50_000))
    began = time.thread_time()
    assert refused("{" + members + ',"k49999":1}') == "JSON object names 'k49999' twice"
    assert time.thread_time() - began < FAST_SECONDS


def test_nothing_secret_long_is_quoted_back() -> None:
    name = "x" * 10_000
    assert len(refused(f'{{"{name}":1,"{name}":2}}')) < 200


def read(body: bytes | str) -> str:
    """What is read, to the kind of each number, or why it is refused."""
    try:
        return repr(strict_loads(body))
    except BadIntent as error:
        return f"refused: {error}"


NAMES = ("a", "b", ":", "a:", '\\"', "{", "]")
LEAVES = ("1", "-0", "-0.0", "1e5", "1E400", "0.1", "01", "null", "true", "NaN", '"x"', '":"', '"}"', r'"\u003a"')


class Written(Drawn):
    """Texts that are JSON, and texts that are nearly JSON."""

    def leaf(self) -> str:
        match self.dice.randrange(5):
            case 0:
                return str(self.integer(67))
            case 1:
                return repr(struct.unpack("d", self.dice.randbytes(8))[0])
            case 2:
                return json.dumps(self.word())
            case _:
                return self.dice.choice(LEAVES)

    def text(self, depth: int = 0) -> str:
        if depth >= 6 or self.dice.random() < 0.3:
            return self.leaf()
        found = [self.text(depth + 1) for _ in range(self.dice.randrange(4))]
        if self.dice.random() < 0.5:
            return f"[{','.join(found)}]"
        return "{" + ", ".join(f'"{self.dice.choice(NAMES)}" : {one}' for one in found) + "}"


@pytest.mark.req("P-650")
def test_the_quick_reader_reads_what_the_exact_one_reads() -> None:
    taken = 0
    for seed in range(cases(5000)):
        written = Written(random.Random(seed))
        depth = written.dice.choice((0, 0, 1, 2, written.dice.randrange(34)))
        # Text goes through the exact reader, bytes through the quick one where it is sure of itself.
        body = "[" * depth + written.text() + "]" * depth
        found = read(body)
        assert read(body.encode()) == found
        taken += not found.startswith("refused")
    assert cases(5000) // 4 < taken < cases(5000) * 3 // 4, "both what is JSON and what is not"


@pytest.mark.req("P-650")
def test_the_quick_writer_writes_what_the_exact_one_writes() -> None:
    for each in drawn(5000):
        value = each.value()
        assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


EDGES = (
    1e15,
    9999999999999998.0,
    1e16,
    1.5e16,
    1e17,
    1e21,
    1e22,
    1.5e300,
    5e-324,
    0.001,
    0.0001,
    0.00012,
    1e-5,
    1.25e-7,
)


@pytest.mark.parametrize(
    "number", [*EDGES, *(-one for one in EDGES), -0.0, 0.0, 2.0**53, 1 / 3, MAX_INTEGER, MIN_INTEGER]
)
@pytest.mark.req("P-650")
def test_numbers_of_any_size_are_written_as_ever(number: float) -> None:
    assert canonical({"n": [number]}) == f'{{"n":[{number!r}]}}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.req("P-650")
def test_what_is_no_number_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"n": number})


@pytest.mark.req("P-650")
def test_a_long_body_is_read_without_a_look_at_each_character() -> None:
    lines = [{"name": f"Item {number}", "quantity": number, "price": number * 1.25} for number in range(5000)]
    body = json.dumps({"lines": lines}).encode()
    text = body.decode()
    quick, exact = [min(_seconds(one) for _ in range(3)) for one in (body, text)]
    assert quick < exact / 3, f"{quick:.4f} s, and {exact:.4f} s character by character"


def _seconds(body: bytes | str) -> float:
    began = time.thread_time()
    strict_loads(body)
    return time.thread_time() - began
