"""The functions and filters of templates in place of the engine's own, and the formats; each spends from the budget."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from carillon.intake.jinja import formats
from carillon.intake.jinja.budget import (
    CURRENT,
    DEEPEST_DATA,
    MOST_DATA,
    MOST_OUTPUT,
    Exceeded,
    Fields,
    Rows,
    handed,
    iterated,
    ordered,
    refuse_missing,
    weighed,
    worded,
)
from carillon.intake.jinja.catalogues import translate
from carillon.intake.jinja.formats import Person, Unformattable, Value
from carillon.intake.jinja.mail import read_markup
from carillon.intake.markup import Spot, unfit

_MONEY_COST = 6
_COSTS = {"number": 30, "date": 60, "time": 60, "datetime": 80, "relative": 80, "phone": 200, "t": 20}


def _long(length: int) -> None:
    budget = CURRENT.get()
    budget.spend(1 + (length >> 6))
    if length > MOST_OUTPUT:
        raise Exceeded(f"a value exceeds {MOST_OUTPUT} characters")


def concatenated(left: Value, right: Value) -> str:
    one, other = _text(left), _text(right)
    _long(len(one) + len(other))
    return _joined(left, one, right, other)


def _text(value: Value) -> str:
    if value is None:
        return str(weighed(value))
    return value if isinstance(value, str) else str(worded(value))


def _joined(left: Value, one: str, right: Value, other: str) -> str:
    """Trusted HTML stays trusted only beside trusted HTML."""
    safe = hasattr(left, "__html__") and hasattr(right, "__html__")
    return type(left)(str(one) + str(other)) if safe else str(one) + str(other)


def added(left: Value, right: Value) -> Value:
    if isinstance(left, str) and isinstance(right, str):
        return concatenated(left, right)
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str):
        return rows(*left, *right)
    return _number(left) + _number(right)


def _number(value: Value) -> Value:
    if value is None:
        weighed(value)
        return 0
    if not isinstance(value, int | float):
        raise Unformattable(f"{str(value)[:40]!r} is not a number")
    return value


def _operation(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Value, right: Value) -> Value:
        CURRENT.get().spend(1)
        try:
            found = work(_number(left), _number(right))
        except (ArithmeticError, ValueError) as error:
            raise Unformattable(str(error)) from None
        # The engine's own integers have 128 bits.
        if found.bit_length() > 120 if isinstance(found, int) else not math.isfinite(found):  # noqa: PLR2004 - see above
            raise Unformattable("the number is too large")
        return found

    return run


def rows(*values: Value) -> Rows:
    """A list that a template writes; what it holds is counted, so that lists of lists of lists stay small."""
    refuse_missing(*values)
    made = Rows(values)
    made._weight = _size(values, 0)  # noqa: SLF001 - its own kind
    if made._weight > MOST_DATA:  # noqa: SLF001 - its own kind
        raise Exceeded("a list is too large")
    CURRENT.get().spend(1 + (made._weight >> 1))  # noqa: SLF001 - its own kind
    return made


def _size(values: Sequence[Value], depth: int) -> int:
    """How many values there are, those inside counted."""
    if depth > DEEPEST_DATA:
        raise Exceeded("a list is too deep")
    size = len(values)
    for value in values:
        if isinstance(value, Rows) and value._weight:  # noqa: SLF001 - its own kind
            size += value._weight  # noqa: SLF001 - its own kind
        elif isinstance(value, list):
            size += _size(value, depth + 1)
        elif isinstance(value, dict):
            size += len(value)
        if size > MOST_DATA:
            break
    return size


def fields(*pairs: Value) -> Fields:
    """A dictionary that a template writes."""
    rows(*pairs)
    names, values = pairs[::2], pairs[1::2]
    if any(isinstance(value, Mapping) for value in values):
        raise Exceeded("a dictionary in a template holds no dictionaries: put them into the data")
    return Fields(zip((str(name) for name in names), values, strict=True))


def numbers(*bounds: Value) -> Rows:
    """range(…), at most 10,000 of them."""
    refuse_missing(*bounds)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in bounds) or not bounds:
        raise Unformattable("range takes whole numbers")
    try:
        found = range(*bounds)
        length = len(found)
    except (ValueError, OverflowError, TypeError) as error:
        raise Unformattable(str(error)) from None
    if length > 10_000:  # noqa: PLR2004 - more rows than a message can hold
        raise Exceeded("range has at most 10000 numbers")
    CURRENT.get().spend(length >> 1)
    return Rows(found)


def _listed(value: Value) -> Sequence[Any]:
    """The letters or elements of a value, each of which a filter of ours looks at: they count as the engine's do."""
    found = iterated(value)
    if isinstance(found, str):
        return list(found)
    if isinstance(found, Mapping):
        return [*found]
    if not isinstance(found, Sequence):
        raise Unformattable(f"{str(value)[:40]!r} is not a list")
    return found


def joined(value: Value, mark: str = "", attribute: str | None = None) -> str:
    items = _listed(value)
    if attribute is not None:
        items = [dict.get(one, attribute) if isinstance(one, dict) else None for one in items]
    texts = [_text(one) for one in items]
    between = str(_text(mark))
    _long(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(map(str, texts))


def replaced(value: Value, old: str, new: str) -> str:
    text, put = str(_text(value)), str(_text(new))
    if not old:
        raise Unformattable("replace needs a text to look for")
    _long(len(text) + text.count(str(old)) * len(put))
    return text.replace(str(old), put)


def truncated(value: Value, length: Value = 255, killwords: bool = False, end: Value = "...", leeway: Value = 5) -> str:  # noqa: FBT001, FBT002 - Jinja's own
    """A text of at most so many characters, and `end` in place of the rest; a little more than that stays whole."""
    text, tail = str(_text(value)), str(_text(end))
    if not isinstance(length, int) or not isinstance(leeway, int) or length < len(tail):
        raise Unformattable("truncate takes a length that its end fits into")
    _long(len(text))
    if len(text) <= length + leeway:
        return text
    kept = text[: length - len(tail)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + tail


def indented(value: Value, width: Value = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002 - Jinja's own
    text = str(_text(value))
    if not isinstance(width, int) or not 0 <= width <= 100:  # noqa: PLR2004 - of a line
        raise Unformattable("indent takes 0 to 100 spaces")
    breaks = text.count("\n")
    _long(len(text) + width * (breaks + 1))
    CURRENT.get().spend(breaks)
    pad = " " * width
    lines = text.split("\n")
    return "\n".join((pad if (first or at) and (blank or line) else "") + line for at, line in enumerate(lines))


def summed(value: Value, attribute: str | None = None, start: float = 0) -> Value:
    items = _listed(value)
    if attribute is not None:
        items = [dict.get(one, attribute) for one in items if isinstance(one, dict)]
    try:
        return start + sum(_number(one) for one in items)
    except OverflowError as error:
        raise Unformattable(str(error)) from None


def batched(value: Value, size: Value) -> Rows:
    items = _listed(value)
    if not isinstance(size, int) or size < 1:
        raise Unformattable("batch takes a number from 1 on")
    return Rows(Rows(items[at : at + size]) for at in range(0, len(items), size))


def sliced(value: Value, size: Value) -> Rows:
    items = _listed(value)
    if not isinstance(size, int) or not 1 <= size <= 1000:  # noqa: PLR2004 - columns
        raise Unformattable("slice takes 1 to 1000")
    length, more = divmod(len(items), size)
    starts = [at * length + min(at, more) for at in range(size + 1)]
    return Rows(Rows(items[one:other]) for one, other in pairwise(starts))


def sorted_(value: Value, reverse: bool = False, attribute: str | None = None) -> Rows:  # noqa: FBT001, FBT002 - Jinja's own
    items = _listed(value)
    CURRENT.get().spend(len(items) * 2)

    def key(one: Value) -> Value:
        found = one
        for name in (attribute or "").split(".") if attribute else ():
            found = dict.get(found, name) if isinstance(found, dict) else None
        return found.lower() if isinstance(found, str) else found

    try:
        return Rows(sorted(items, key=key, reverse=reverse))
    except TypeError:
        raise Unformattable("sort compares numbers with numbers and texts with texts") from None


def as_json(value: Value) -> str:
    text = json.dumps(_unwrapped(weighed(value)), ensure_ascii=False)
    _long(len(text))
    # Each value inside was looked at, and the shortest of them takes up two characters.
    CURRENT.get().spend(len(text) >> 2)
    return text


def _unwrapped(value: Value) -> Value:
    if isinstance(value, Fields):
        return {name: _unwrapped(dict.__getitem__(value, name)) for name in dict.keys(value)}
    return [_unwrapped(one) for one in value] if isinstance(value, tuple | list) else value


def formatted(name: str, work: Callable[..., str]) -> Callable[..., str]:
    """A filter of `formats`, which costs what it costs and refuses a missing value."""
    cost = _COSTS[name]

    def run(value: Value, *given: Value, **options: Value) -> str:
        budget = CURRENT.get()
        budget.left -= cost
        if budget.left < 0:
            budget.spend(0)
        if value is None:
            return str(weighed(value))
        refuse_missing(*given, *options.values())
        if isinstance(value, list | dict):
            worded(value)
        try:
            return work(value, *given, **options, person=budget.person)
        except TypeError:
            raise Unformattable(f"{name} was given arguments it does not know") from None

    return run


def money(value: Value, currency: Value = "") -> str:
    """The filter of long tables, and therefore without the detour of the others."""
    budget = CURRENT.get()
    budget.left -= _MONEY_COST
    if budget.left < 0:
        budget.spend(0)
    if value is None or currency is None:
        return str(weighed(None))
    return formats.money(value, currency, budget.person)


def read(value: Value) -> Value:
    """Trusted HTML in a text that is made from HTML."""
    found = weighed(value)
    if not isinstance(found, str):
        return found
    CURRENT.get().spend(len(found))
    return read_markup(str(found))


def complete(work: Callable[..., Value]) -> Callable[..., Value]:
    """A filter of ours that refuses a missing argument."""

    def run(value: Value, *given: Value, **options: Value) -> Value:
        refuse_missing(*given, *options.values())
        return work(value, *given, **options)

    return run


def translated(key: Value, **values: Value) -> str:
    budget = CURRENT.get()
    budget.spend(_COSTS["t"])
    refuse_missing(key)
    if not isinstance(key, str):
        raise Unformattable("t takes a key as text")
    if any(value is None for value in values.values()):
        weighed(None)
    return translate(budget.messages, key, values, budget.person)


def mark(number: int) -> str:
    """Says which tag is next, while a failed render is repeated."""
    CURRENT.get().at = number
    return ""


def _date(kind: Value) -> Callable[..., str]:
    def run(value: Value, style: str = "medium", *, person: Person) -> str:
        return formats.day_or_time(kind, value, style, person)

    return run


_WORD = 32


def _fitting(spot: Spot) -> Callable[[Value], Value]:
    """A value on its way into a place of HTML where not every value may stand."""

    def run(value: Value) -> Value:
        # A word or a number fits everywhere but behind <.
        if spot != "element" and type(value) is str and len(value) <= _WORD and value.isalnum():
            return value
        found = weighed(value)
        wrong = unfit(spot, str(found))
        if wrong is not None:
            raise Unformattable(wrong)
        return found

    return run


FILTERS: Mapping[str, Callable[..., Any]] = {
    "_w": weighed,
    "_t": worded,
    "_i": iterated,
    "_o": ordered,
    "_c": handed,
    "_bare": _fitting("bare"),
    "_element": _fitting("element"),
    "_name": _fitting("name"),
    "_style": _fitting("style"),
    "_read": read,
    "_add": added,
    "_cat": concatenated,
    "_sub": _operation(lambda left, right: left - right),
    "_mul": _operation(lambda left, right: left * right),
    "_div": _operation(lambda left, right: left / right),
    "_floor": _operation(lambda left, right: left // right),
    "_mod": _operation(lambda left, right: left % right),
    "join": complete(joined),
    "replace": complete(replaced),
    "indent": complete(indented),
    "sum": complete(summed),
    "batch": complete(batched),
    "slice": complete(sliced),
    "sort": complete(sorted_),
    "truncate": complete(truncated),
    "list": lambda value: Rows(_listed(value)),
    "tojson": as_json,
    "money": money,
    "number": formatted("number", lambda value, digits=None, *, person: formats.number(value, digits, person)),
    "date": formatted("date", _date("date")),
    "time": formatted("time", _date("time")),
    "datetime": formatted("datetime", _date("datetime")),
    "relative": formatted("relative", lambda value, *, person: formats.relative(value, person)),
    "phone": formatted("phone", lambda value, style="international", *, person: formats.phone(value, style, person)),
}
GLOBALS: Mapping[str, Callable[..., Any]] = {
    "t": translated,
    "range": numbers,
    "_list": rows,
    "_dict": fields,
    "_at": mark,
}
