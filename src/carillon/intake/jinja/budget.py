"""What one render may spend, and the data as templates see them."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from carillon.domain.errors import CarillonError
from carillon.intake.jinja.catalogues import Chain
from carillon.intake.jinja.formats import Person, Value

MOST_WORK = 400_000
"""Units of about half a microsecond."""
MOST_OUTPUT = 256 * 1024
MOST_DATA = 50_000
"""Values in the data of one render."""
DEEPEST_DATA = 64
_PLAIN = frozenset({int, float, bool})


class Exceeded(CarillonError):
    """A render asked for more than it may have."""


class MissingValue(CarillonError):
    """A filter was given a value that the data lack."""


class Fields(dict[str, Any]):
    """A dictionary whose methods a template cannot reach; a null in it is missing."""

    def __getattribute__(self, name: str) -> Value:
        # The engine takes an object with `items` for a dictionary, and asks for no other name itself.
        if name == "items":
            return None
        if not name.startswith("_"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)


class Rows(list[Any]):
    """A list whose methods a template cannot reach."""

    _weight = 0
    """How many values it holds, those inside counted; 0 if nobody has counted them."""

    def __getattribute__(self, name: str) -> Value:
        if not name.startswith("_"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)


class Budget:
    """One render: its person, its translations, and what it has left."""

    __slots__ = ("at", "left", "messages", "output", "person", "strict")

    def __init__(self, person: Person, messages: Chain, *, strict: bool) -> None:
        self.person = person
        self.messages = messages
        self.strict = strict
        self.left = MOST_WORK
        self.output = MOST_OUTPUT
        self.at = -1
        """The number of the tag, while a failed render is repeated to find its place."""

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise Exceeded("the template does too much work")

    def emit(self, length: int) -> None:
        self.output -= length
        if self.output < 0:
            raise Exceeded(f"the rendered message exceeds {MOST_OUTPUT} characters")


CURRENT: ContextVar[Budget] = ContextVar("CURRENT")


class DataReader:
    """Copies data into what templates may see, and measures them."""

    def __init__(self) -> None:
        self.values = 0
        self.length = 0

    def read(self, value: Value, depth: int = 0) -> Value:
        kind = type(value)
        self.values += 1
        if kind is str:
            self.length += len(value)
            return value
        if kind in _PLAIN:
            return value
        if self.values > MOST_DATA or depth > DEEPEST_DATA:
            raise Exceeded(f"the data have more than {MOST_DATA} values, or more than {DEEPEST_DATA} levels")
        if kind is dict or isinstance(value, Mapping):
            return Fields([(name, self.read(one, depth + 1)) for name, one in value.items() if one is not None])
        if kind is list or kind is tuple:
            return Rows([self.read(one, depth + 1) for one in value])
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
    budget = CURRENT.get()
    if value is None:
        if budget.strict:
            raise MissingValue("a value is missing")
        return ""
    return compared(value)


def compared(value: Value) -> Value:
    """A value on its way into a comparison."""
    budget = CURRENT.get()
    if isinstance(value, str):
        budget.spend(1 + (len(value) >> 6))
        return value
    if isinstance(value, Sequence | Mapping):
        budget.spend(1 + (len(value) >> 1))
        if type(value) is list:
            return Rows(value)
        return Fields(value) if type(value) is dict else value
    budget.spend(1)
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
