"""Hostile bytes made from honest ones: the same seed makes the same bytes."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

LONGEST = 64 * 1024
MOST_LEARNED, LONGEST_LEARNED = 400, 4096
_WORDS: tuple[bytes, ...] = (
    *(
        b"\x00",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\x1b[2J",
    ),
    *(
        rb"\u0000",
        rb"\ud800",
        rb"\udfff\ud800",
        rb"\ud83d\ude00",
        rb"\/",
        b"\\",
        b'"',
        b"'",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
    ),
    *(b"1e999", b"-0", b"9223372036854775808", b"-1", b"0.1e-400", b"NaN", b"Infinity", b"null", b"true", b"[]", b"{}"),
    *(b"\r\n", b"\r", b"\n", b"\r\n\r\n", b": ", b" ", b"\t", b"%00", b"%", b"%ff", b"+", b"&", b"=", b"?", b"#", b";"),
    *(
        b"{{",
        b"}}",
        b"{%",
        b"{{a}}",
        b"{{a.b}}",
        b"..",
        b"../",
        b"//",
        b"@",
        b"://",
        b"javascript:",
        b"data:",
        b"<",
        b">",
    ),
    *(b"127.0.0.1", b"[::1]", b"0x7f.1", b"2130706433", b"localhost", b"\xc2\xad", "ⅷ。".encode(), "İ".encode()),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(
        b"chunked",
        b"0\r\n\r\n",
        b"ffffffff\r\n",
        b"HTTP/1.1",
        b"GET ",
        b"POST ",
        b"Host: a\r\n",
        b"Connection: close\r\n",
    ),
    *(b"Bearer ", b"Basic ", b"sha256=", b"v1,", b"whsec_", b"eyJhbGciOiJub25lIn0.", b"ck_", b"Last-Event-ID: 1\r\n"),
    *(b"__proto__", b"$ref", b"'; DROP TABLE routes; --", b"${jndi:ldap://a}", b"a" * 300, b"\xf0\x9f\x94\x94" * 20),
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        0.5,
        2**63 - 1,
        2**63,
        -(2**70),
        1e308,
        "",
        " ",
        "\x00",
        "\ud800",
        "\u202e",
        "a" * 5000,
    ),
    *(
        [],
        {},
        [[]],
        [None] * 40,
        {"a": {"b": {}}},
        "1",
        "true",
        "2026-02-30T25:61:61Z",
        "9999-12-31T23:59:59.999999999Z",
    ),
    *(
        "{{a}}",
        "\r\nBcc: x@y",
        "http://[",
        "javascript:x",
        "ada@example.org",
        "+4915112345678",
        "é" * 300,
        "%s%n",
        "../../x",
    ),
)


class Mutator:
    """Makes inputs for one target from its seeds."""

    def __init__(self, random: Random, seeds: Sequence[bytes]) -> None:
        self._random = random
        self._honest = len(seeds)
        self._seeds = list(seeds)
        self._ways: tuple[Callable[[bytearray], bytearray], ...] = (
            *(self._flip, self._put, self._put, self._cut, self._double, self._swap, self._splice, self._end),
        )

    def learn(self, body: bytes) -> None:
        """Take an input as one more seed; a new one replaces an old one where there are many."""
        if len(body) > LONGEST_LEARNED:
            return
        if len(self._seeds) < self._honest + MOST_LEARNED:
            self._seeds.append(body)
        else:
            self._seeds[self._honest + self._random.randrange(MOST_LEARNED)] = body

    def next(self) -> bytes:
        """One input; a few are long."""
        random = self._random
        # Honest seeds stay in use beside those that were learned, which are mostly refused early.
        seeds = self._seeds[: self._honest] if random.random() < 0.5 else self._seeds
        seed = random.choice(seeds)
        if random.random() < 0.35:
            seed = self._other_json(seed)
        body = bytearray(seed)
        for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
            body = random.choice(self._ways)(body)
        if random.random() < 0.004:
            body = self._swell(body)
        return bytes(body[:LONGEST])

    def _at(self, body: bytearray) -> int:
        return self._random.randrange(len(body) + 1)

    def _flip(self, body: bytearray) -> bytearray:
        if body:
            body[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
        return body

    def _put(self, body: bytearray) -> bytearray:
        at = self._at(body)
        body[at:at] = self._random.choice(_WORDS)
        return body

    def _cut(self, body: bytearray) -> bytearray:
        one, two = sorted((self._at(body), self._at(body)))
        del body[one : min(two, one + 40)]
        return body

    def _double(self, body: bytearray) -> bytearray:
        one, two = sorted((self._at(body), self._at(body)))
        part = bytes(body[one : min(two, one + 60)])
        body[one:one] = part * self._random.choice((1, 1, 2, 9))
        return body

    def _swap(self, body: bytearray) -> bytearray:
        if body:
            body[self._random.randrange(len(body))] = self._random.randrange(256)
        return body

    def _splice(self, body: bytearray) -> bytearray:
        other = self._random.choice(self._seeds)
        return body[: self._at(body)] + other[self._random.randrange(len(other) + 1) :]

    def _end(self, body: bytearray) -> bytearray:
        return body[: self._at(body)]

    def _swell(self, body: bytearray) -> bytearray:
        unit = self._random.choice((*_WORDS, bytes(body[-4:]) or b"x"))
        at = self._at(body)
        body[at:at] = unit * (self._random.choice((1000, 8000, LONGEST)) // len(unit))
        return body

    def _other_json(self, seed: bytes) -> bytes:
        """The same JSON with one value replaced, one field more or one less."""
        try:
            value = json.loads(seed)
        except (ValueError, RecursionError):
            return seed
        value = self._changed(value, 0)
        return json.dumps(value, ensure_ascii=self._random.random() < 0.5).encode("utf-8", "surrogatepass")

    def _changed(self, value: Any, depth: int) -> Any:
        random = self._random
        if depth and (random.random() < 0.25 or not isinstance(value, dict | list) or not value):
            return random.choice(_VALUES)
        if isinstance(value, list):
            at = random.randrange(len(value)) if value else 0
            return [*value[:at], self._changed(value[at] if value else None, depth + 1), *value[at + 1 :]]
        if not isinstance(value, dict) or not value:
            return random.choice(_VALUES)
        name = random.choice(list(value))
        match random.randrange(6):
            case 0:
                return {each: held for each, held in value.items() if each != name}
            case 1:
                return {**value, str(random.choice(_VALUES)): random.choice(_VALUES)}
            case _:
                return {**value, name: self._changed(value[name], depth + 1)}
