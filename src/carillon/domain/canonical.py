"""One strict JSON reader, one canonical JSON writer, one fingerprint."""

import hashlib
import json
import math
from collections import Counter
from typing import Any, NoReturn

from carillon.domain.errors import BadIntent

MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = len(str(-MAX_INTEGER))
_FIRST_SURROGATE, _LAST_SURROGATE = "\ud800", "\udfff"


def strict_loads(body: bytes | str) -> Any:
    """Decode JSON and refuse what another parser could read differently or a store cannot hold."""
    text = _text(body)
    # Counting brackets is a cheap upper bound of the depth; only a suspicious text is walked.
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise BadIntent("VALIDATION_ERROR", f"JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        value = _reader.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadIntent("VALIDATION_ERROR", f"body is not valid JSON: {error}") from None
    if "\\u" in text or isinstance(body, str):
        # Bytes were checked by their decoding; text may hold what no bytes could.
        _refuse_unstorable(value)
    return value


def canonical(value: Any) -> str:
    """Sorted keys, no spaces, non-ASCII raw: equal content gives equal text."""
    return _writer.encode(value)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical text, lower-case hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _text(body: bytes | str) -> str:
    if isinstance(body, bytes):
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise BadIntent("VALIDATION_ERROR", "body is not UTF-8") from None
    else:
        text = body
    if "\x00" in text:
        raise BadIntent("VALIDATION_ERROR", "body contains U+0000")
    return text


def _depth(text: str) -> int:
    depth = deepest = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise BadIntent("VALIDATION_ERROR", f"JSON object names {twice[:64]!r} twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadIntent("VALIDATION_ERROR", f"{name} is not a JSON number")


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS or abs(int(digits)) > MAX_INTEGER:
        raise BadIntent("VALIDATION_ERROR", "integer is larger than 64 bits")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadIntent("VALIDATION_ERROR", "number is out of range")
    return number


def _refuse_unstorable(value: Any) -> None:
    if isinstance(value, str):
        if any(char == "\x00" or _FIRST_SURROGATE <= char <= _LAST_SURROGATE for char in value):
            raise BadIntent("VALIDATION_ERROR", "text contains U+0000 or a lone surrogate")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _refuse_unstorable(name)
            _refuse_unstorable(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_unstorable(inner)


# Made once: building one for every text costs as much as the text.
_reader = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_bounded_int, parse_float=_finite_float
)
_writer = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
