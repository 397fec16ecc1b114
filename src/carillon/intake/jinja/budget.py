"""What one render may spend, and the data as templates see them."""

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from carillon.domain.errors import CarillonError
from carillon.intake.jinja.catalogues import Chain
from carillon.intake.jinja.formats import Person, Value

MOST_WORK = 400_000
"""Units of about half a microsecond."""
QUICK_WORK, QUICK_OUTPUT = 10_000, 64 * 1024
"""What a render may spend beside all others; the rest needs a thread of its own."""
MOST_OUTPUT = 256 * 1024
MOST_DATA = 50_000
"""Values in the data of one render."""
DEEPEST_DATA = 64
_PLAIN = frozenset({int, float, bool})
_TOO_MUCH = f"the data have more than {MOST_DATA} values, or more than {DEEPEST_DATA} levels"


class Exceeded(CarillonError):
    """A render asked for more than it may have."""


class TooHeavy(CarillonError):
    """A quick render has spent what it may; the same render in its own thread may spend more."""


class MissingValue(CarillonError):
    """A filter was given a value that the data lack."""


class _Unreachable:
    """In place of a method: a template that names it finds nothing."""

    def __get__(self, instance: object, kind: type | None = None) -> Value:
        raise AttributeError


def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_"))


METHODS = _methods(dict) | _methods(list)
"""Names that a template must not reach: what is missing in the data would be a method of Python's."""


class Fields(dict[str, Any]):
    """A dictionary whose methods a template cannot reach; a null in it is missing."""

    __slots__ = ()


class FlatFields(Fields):
    """The same for templates that have a field `items`: missing it is missing, but the engine sees no pairs."""

    __slots__ = ()


class Rows(list[Any]):
    """A list whose methods a template cannot reach."""

    _weight = 0
    """How many values it holds, those inside counted; 0 if nobody has counted them."""


for _name in _methods(dict):
    setattr(Fields, _name, _Unreachable())
# The engine takes an object with `items` for a dictionary, and asks for no other name itself.
setattr(Fields, "items", None)  # noqa: B010 - a type checker refuses the plain form
setattr(FlatFields, "items", _Unreachable())  # noqa: B010 - the same
for _name in _methods(list):
    setattr(Rows, _name, _Unreachable())


class Budget:
    """One render: its person, its translations, and what it has left."""

    __slots__ = ("at", "left", "messages", "output", "person", "quick", "strict")

    def __init__(self, person: Person, messages: Chain, *, strict: bool, quick: bool = False) -> None:
        self.person = person
        self.messages = messages
        self.strict = strict
        self.quick = quick
        self.left = QUICK_WORK if quick else MOST_WORK
        self.output = QUICK_OUTPUT if quick else MOST_OUTPUT
        self.at = -1
        """The number of the tag, while a failed render is repeated to find its place."""

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise TooHeavy if self.quick else Exceeded("the template does too much work")

    def emit(self, length: int) -> None:
        self.output -= length
        if self.output < 0:
            raise TooHeavy if self.quick else Exceeded(f"the rendered message exceeds {MOST_OUTPUT} characters")


CURRENT: ContextVar[Budget] = ContextVar("CURRENT")


class _Unlike(CarillonError):
    """The data cannot be shown as they are."""


class DataReader:
    """Measures data, and copies them into what templates may see where they cannot be shown as they are."""

    def __init__(self) -> None:
        self.values = 0
        self.length = 0

    def plain(self, value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The same data, if they are JSON without a null: only for templates that reach no method. Else None."""
        if type(value) is not dict:
            return None
        try:
            self._measure(value.values(), 0)
        except _Unlike:
            self.values = self.length = 0
            return None
        return value

    def _measure(self, values: Iterable[Value], depth: int) -> None:
        if depth > DEEPEST_DATA:
            raise Exceeded(_TOO_MUCH)
        length = count = 0
        for one in values:
            count += 1
            kind = type(one)
            if kind is str:
                length += len(one)
            elif kind is dict:
                self._measure(one.values(), depth + 1)
            elif kind is list:
                self._measure(one, depth + 1)
            elif kind not in _PLAIN:
                raise _Unlike
        self.values += count
        self.length += length
        if self.values > MOST_DATA:
            raise Exceeded(_TOO_MUCH)

    def read(self, value: Value, fields: type[Fields] = Fields, depth: int = 0) -> Value:
        """A copy without nulls, whose methods cannot be reached."""
        kind = type(value)
        self.values += 1
        if kind is str:
            self.length += len(value)
            return value
        if kind in _PLAIN:
            return value
        if self.values > MOST_DATA or depth > DEEPEST_DATA:
            raise Exceeded(_TOO_MUCH)
        if isinstance(value, Mapping):
            found = dict.items(value) if isinstance(value, dict) else value.items()
            return fields([(name, self.read(one, fields, depth + 1)) for name, one in found if one is not None])
        if isinstance(value, list | tuple):
            return Rows([self.read(one, fields, depth + 1) for one in value])
        # What is neither is no value of JSON: it is shown and can do nothing.
        return str(value)


def merged(defaults: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The data over the defaults, also inside dictionaries; a null is no value."""
    out = dict(defaults)
    for name, value in data.items():
        under = out.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            out[name] = merged(under, value)
        elif value is not None:
            out[name] = value
    return out


def weighed(value: Value) -> Value:
    """A value on its way into a filter or a loop of the engine: its length counts as work."""
    if value is None:
        refuse_missing(value)
        return ""
    return compared(value)


def handed(value: Value) -> Value:
    """A value on its way into a comparison, a test, or a filter of the engine as its argument: none is missing."""
    if value is None:
        refuse_missing(value)
        return None
    return compared(value)


def refuse_missing(*values: Value) -> None:
    """Raise MissingValue where a missing variable is refused and one of these is missing."""
    if CURRENT.get().strict and any(value is None for value in values):
        raise MissingValue("a value is missing")


def iterated(value: Value) -> Value:
    """A value on its way into a filter of the engine that looks at each letter or element of it."""
    found = weighed(value)
    if isinstance(found, str | list | dict):
        CURRENT.get().spend(2 * len(found))
    return found


def ordered(value: Value) -> Value:
    """A value on its way into a filter of the engine that compares its elements, field by field."""
    found = iterated(value)
    if isinstance(found, str | list | dict):
        fields = 0 if isinstance(found, str) else _inside(found) - len(found)
        CURRENT.get().spend((len(found) + 10 * fields) * len(found).bit_length() >> 1)
    return found


def worded(value: Value) -> Value:
    """A value on its way into a filter that takes it as text: a list is written with all that it holds."""
    found = weighed(value)
    if isinstance(found, str):
        CURRENT.get().spend(len(found) >> 3)
    elif isinstance(found, list | dict):
        CURRENT.get().spend(4 * _inside(found))
    return found


def _inside(value: Value) -> int:
    """How many values a list or dictionary holds, those inside counted, and a long text as several."""
    if isinstance(value, str):
        return len(value) >> 4
    # A pair of the engine's `items` is a tuple.
    if not isinstance(value, list | tuple | dict):
        return 0
    return len(value) + sum(map(_inside, dict.values(value) if isinstance(value, dict) else value))


def compared(value: Value) -> Value:
    """A value on its way into a comparison."""
    budget = CURRENT.get()
    if isinstance(value, str):
        budget.spend(1 + (len(value) >> 6))
    elif isinstance(value, list | dict):
        budget.spend(1 + (len(value) >> 1))
        # What the engine makes itself comes as Python's own; so do data that no tag reaches a method of.
        if type(value) is list:
            return Rows(value)
        return Fields(value) if type(value) is dict else value
    else:
        budget.spend(1 + (len(value) >> 1) if isinstance(value, Sequence | Mapping) else 1)
    return value


def emitted(value: Value) -> Value:
    """A value on its way into the message."""
    budget = CURRENT.get()
    if isinstance(value, str):
        budget.emit(len(value))
        budget.spend(1 + (len(value) >> 8))
    else:
        text = str(value)
        budget.emit(len(text))
        budget.spend(1 + (len(text) >> 4))
    return value
