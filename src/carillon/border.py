"""The border: outside input is made clean and bounded here, once, and a refusal says what was meant."""

import datetime as dt
import enum
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args, get_origin

import msgspec

from carillon.domain.content.wishes import MOMENTS, NAMES, NO_WISHES, STRUCTURED, SendWishes
from carillon.domain.errors import BadIntent, CarillonError
from carillon.domain.timing import LATEST_MS
from carillon.patterns import in_words

MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)
MAX_DIGITS = len(str(MIN_INTEGER))
_FIRST_SURROGATE, _LAST_SURROGATE = "\ud800", "\udfff"
_REPLACEMENT = "\ufffd"
_SURROGATES = re.compile("[\x00\ud800-\udfff]")
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_UNSTORABLE = re.compile(
    rb"\\u(?:0000|[dD](?:[89abAB][0-9a-fA-F]{2}(?!" + _LOW + rb")|[c-fC-F][0-9a-fA-F]{2}(?<!" + _HIGH + _LOW + rb")))"
)
"""An escape of JSON that no store can hold; there is no escaped backslash in the text."""
# Possessive: the expression scans an unterminated text once, not again from each quote.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)


_SURE_DIGITS = 19
"""So few of them are always within 64 bits."""
_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * _SURE_DIGITS
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_ROUNDS = MAX_DEPTH // 2
_MARKS = (b'"', b"[", b"{", b",", b"]", b"}")
_MOST_MARKS = 150_000
"""A vendor's batch of 1 MiB has a quarter of these; more of them in a broken batch would stop the process for long."""


def strict_loads(body: bytes | str) -> Any:
    """Decode the JSON of a door; refuse what another parser could read differently or a store cannot hold."""
    text = _text(body)
    # The number of brackets is a cheap upper bound of the depth; only a text above the limit is parsed for it.
    if text.count("{") + text.count("[") > MAX_DEPTH and not _is_flat(body) and _depth(text) > MAX_DEPTH:
        raise BadIntent("VALIDATION_ERROR", f"JSON is nested deeper than {MAX_DEPTH} levels")
    if isinstance(body, bytes):
        try:
            return _read_quickly(body)
        except (_Unsure, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The other reader says what is wrong.
            pass
    try:
        value = _reader.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadIntent("VALIDATION_ERROR", f"body is not valid JSON: {error}") from None
    if "\\u" in text or isinstance(body, str):
        # Bytes were checked by their decoding; text may hold what no bytes could.
        _refuse_unstorable(value)
    return value


def clean_text(text: str, longest: int | None = None) -> str:
    """A text that every store can hold: U+0000 and lone surrogates become U+FFFD, the rest is cut off."""
    text = text if longest is None else text[:longest]
    if text.isascii():
        return text.replace("\x00", _REPLACEMENT)
    return _SURROGATES.sub(_REPLACEMENT, text) if _SURROGATES.search(text) else text


def clean_json(body: bytes) -> bytes:
    """JSON whose texts every store can hold; for a vendor's signed body, which is read event by event.

    The bytes stay as they are unless they hold an escape or a byte that cannot stay.
    """
    if not body.isascii():
        body = body.decode("utf-8", "replace").encode()
    if b"\\u" in body:
        # Once escaped backslashes are away, every backslash begins an escape; no UTF-8 holds the bytes for them.
        body = _UNSTORABLE.sub(rb"\\ufffd", body.replace(rb"\\", b"\xff\xff")).replace(b"\xff\xff", rb"\\")
    return body


def json_elements(body: bytes) -> list[bytes] | None:
    """The elements of a JSON array as bytes, also where one of them is not valid; None for what is no array."""
    body = clean_json(body)
    try:
        return [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _split(body)


def _split(body: bytes) -> list[bytes] | None:
    """Split an array in which one element is invalid or too deep: find the commas without decoding the elements."""
    if not body.lstrip().startswith(b"[") or sum(map(body.count, _MARKS)) > _MOST_MARKS:
        return None
    found: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == 1:
                    start = token.end()
            case b"]" | b"}":
                depth -= 1
                if depth == 0:
                    last = body[start : token.start()].strip()
                    return [*found, last] if last else found
            case b"," if depth == 1:
                found.append(body[start : token.start()].strip())
                start = token.end()
    return None


class _Unsure(CarillonError):
    """The quick reader may read it otherwise than the exact one."""


def _read_quickly(body: bytes) -> Any:
    """What the exact reader finds, in an eighth of the time: no function of ours is called for each value."""
    if b"\\u" in body or _MANY_DIGITS in body.translate(_AS_ZERO):
        raise _Unsure
    value = _quick_reader.decode(body)
    # A name that is given twice is kept once: then the value has fewer colons than the text. None hides in an escape.
    if body.count(b":") != _quick_writer.encode(value).count(b":"):
        raise _Unsure
    return value


def _is_flat(body: bytes | str) -> bool:
    """Whether the brackets are surely no deeper than the limit; most bodies need no reading for that."""
    if not isinstance(body, bytes) or b"\\" in body:
        return False
    # Two quotes side by side are a text without brackets, or an end and a beginning: a bracket in a text keeps one.
    marks = body.translate(None, _NO_BRACKETS).replace(b'""', b"")
    for _ in range(_ROUNDS):
        if not marks:
            return True
        # A round may take two levels away.
        marks = marks.replace(b"{}", b"").replace(b"[]", b"")
    return not marks


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
    if len(digits) < _SURE_DIGITS:
        return int(digits)
    if len(digits) > MAX_DIGITS or not MIN_INTEGER <= int(digits) <= MAX_INTEGER:
        raise BadIntent("VALIDATION_ERROR", f"an integer is outside 64 bits ({MIN_INTEGER} to {MAX_INTEGER})")
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


# One decoder for all calls: creating a decoder costs as much as decoding a text.
_quick_reader, _quick_writer = msgspec.json.Decoder(), msgspec.json.Encoder()
_reader = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_bounded_int, parse_float=_finite_float
)


_MESSAGE = re.compile(r"(?P<text>.*?)(?: - at `\$?\.?(?P<path>[^`]*)`)?", re.DOTALL)
_NAMED = re.compile(r"(?:unknown|required) field `([^`]*)`")
_SHOWN = 300
_SPELLINGS = frozenset(NAMES) | frozenset(NAMES.values())


class Fault(NamedTuple):
    """What is wrong with an input, in the same words at every door."""

    sentence: str
    text: str
    """The sentence without the field."""
    field: str | None


def fault(error: msgspec.ValidationError, kind: Any, prefix: str = "") -> Fault:
    """Read msgspec's sentence, whose end names the field; a hint says what was meant."""
    message, meant = _OF_A_KEY.sub(" - at `", in_words(str(error))), hint(str(error), kind)
    found = _MESSAGE.fullmatch(message)
    text, path = (found["text"], found["path"] or "") if found else (message, "")
    named = _NAMED.search(text)
    parts = [part for part in (prefix, path, named[1] if named else "") if part]
    field = ".".join(parts).replace(".[", "[")[:_SHOWN] or None
    sentence = text[:_SHOWN] if field is None or named else f"{text[:_SHOWN]} at {field}"
    return Fault(sentence + meant, text[:_SHOWN] + meant, field)


def read_wishes(fields: Mapping[str, Any]) -> SendWishes:
    """What a message of a queue, a topic or a stream asks for; raises BadIntent in the words of HTTP.

    Each field has its name of HTTP or the same with underscores. Where a transport knows texts alone, a field that
    holds more is the JSON of it, and a moment may be Unix milliseconds in digits.
    """
    if _SPELLINGS.isdisjoint(fields):
        return NO_WISHES
    said: dict[str, Any] = {}
    for name, other in NAMES.items():
        value = fields.get(name, fields.get(other))
        if value is not None and value != "":
            said[name] = _unwrapped(name, value)
    try:
        return msgspec.convert(said, SendWishes)
    except msgspec.ValidationError as error:
        wrong = fault(error, SendWishes)
        raise BadIntent("VALIDATION_ERROR", wrong.sentence, field=wrong.field) from None


def _unwrapped(name: str, value: Any) -> Any:
    if name in STRUCTURED and isinstance(value, str):
        try:
            return strict_loads(value)
        except BadIntent as error:
            said = str(error).removeprefix("body ")
            raise BadIntent("VALIDATION_ERROR", f"{name} {said}", field=name) from None
    if name in MOMENTS:
        digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(LATEST_MS))
        unix_ms = int(value) if digits else value
        if isinstance(unix_ms, int) and not isinstance(unix_ms, bool) and 0 <= unix_ms <= LATEST_MS:
            return dt.datetime.fromtimestamp(unix_ms / 1000, dt.UTC)
    return value


_OF_A_KEY = re.compile(r" - at `key` in `(?=\$[^`]*`$)")
_PLACE = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"contains unknown field `(?P<field>[^`]*)`")
_STEP = re.compile(r"\[[^\[\]]*\]|[^.\[\]]+")
_IN_A_HEADER = {"idempotencyKey": "Idempotency-Key", "idempotency_key": "Idempotency-Key"}
"""Fields that items of a batch have, and that a request alone has in a header."""
_NOTHING = (NoneType, msgspec.UnsetType)
_LEAST_LETTERS = 3
"""Fewer begin too many names."""


def hint(said: str, kind: Any) -> str:
    """A hint to add to msgspec's error about a value of this type; "" if there is none."""
    of_a_key = _OF_A_KEY.search(said) is not None
    place = _PLACE.search(_OF_A_KEY.sub(" - at `", said))
    there = _at(kind, place["path"] if place else "")
    if of_a_key:
        there = _bare(next(iter(get_args(there)), None))
    unknown = _UNKNOWN.search(said)
    if unknown is not None:
        names = dict(_names(there))
        if unknown["field"] in _IN_A_HEADER:
            return f"; it is the header `{_IN_A_HEADER[unknown['field']]}`"
        meant = get_close_matches(unknown["field"], names, n=1) or _begun(unknown["field"], names)
        return f"; did you mean `{names[meant[0]]}`?" if meant else ""
    words = _words(there) if said.startswith("Invalid enum value") else []
    return f"; it is one of {', '.join(words)}" if words else ""


def _begun(field: str, names: Iterable[str]) -> list[str]:
    """The shortest name that begins with this one, as `htmlTemplate` does with `html`."""
    longer = [name for name in names if len(field) >= _LEAST_LETTERS and name.startswith(field)]
    return [min(longer, key=len)] if longer else []


def _at(kind: Any, path: str) -> Any:
    """The type that stands at a path such as `policy.retry[...].max_attempts`."""
    kind = _bare(kind)
    for step in _STEP.findall(path):
        inner = get_args(kind)
        if not step.startswith("["):
            kind = _bare(_fields(kind).get(step))
        elif inner:
            kind = _bare(inner[-1] if get_origin(kind) is dict else inner[0])
        else:
            return None
    return kind


def takes_list(kind: Any, path: Iterable[str]) -> bool:
    """Whether a list stands at a path of names, such as `http`, `trusted_proxies`."""
    for name in path:
        kind = _bare(kind)
        kind = get_args(kind)[-1] if get_origin(kind) is dict else _fields(kind).get(name)
    return get_origin(_bare(kind)) is list


def _bare(kind: Any) -> Any:
    """The type without its annotations and without None or UNSET."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Literal, dict, list, tuple, set, frozenset):
        return kind
    held = [one for one in get_args(kind) if one not in _NOTHING]
    return _bare(held[0]) if len(held) == 1 else kind


def _fields(kind: Any) -> dict[str, Any]:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def in_camel_case(value: object, kind: type[msgspec.Struct]) -> object:
    """A JSON object whose fields may have the names of the past, `retry_after` for `retryAfter`; others stay."""
    if not isinstance(value, dict):
        return value
    past = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    # Of two spellings of one field the older one stays, and is refused as unknown.
    return {now if (now := past.get(name, name)) not in value else name: held for name, held in value.items()}


def _names(kind: Any) -> Iterator[tuple[str, str]]:
    """Possible spellings of each field, and its right name: `ledger_url` stands for `ledger.url`."""
    for name, held in _fields(kind).items():
        yield from ((f"{name}_{inner}", f"{name}.{inner}") for inner in _fields(_bare(held)))
        yield name, name


def _words(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [str(one.value) for one in kind] if isinstance(kind, type) and issubclass(kind, enum.Enum) else []
