"""Values in a form that both dialects share, so that rows can be copied and compared."""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["text", "number", "real", "time", "flag", "json", "amount"]
Row: TypeAlias = tuple[Any, ...]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


class Column(msgspec.Struct, frozen=True):
    """One column and what it holds."""

    name: str
    kind: Kind


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table; `key` orders its rows the same way in both dialects."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def kinds(self, names: Iterable[str]) -> list[Kind]:
        known = {column.name: column.kind for column in self.columns}
        return [known[name] for name in names]


def neutral(kinds: Sequence[Kind], row: Sequence[Any]) -> Row:
    """A row in SQLite's form: times as Unix milliseconds, flags as 0 or 1, JSON and amounts as text."""
    return tuple(None if value is None else _NEUTRAL[kind](value) for kind, value in zip(kinds, row, strict=True))


def for_postgres(kinds: Sequence[Kind], row: Row) -> Row:
    """A row in the form that asyncpg passes to PostgreSQL."""
    return tuple(None if value is None else _POSTGRES[kind](value) for kind, value in zip(kinds, row, strict=True))


class Digest:
    """One hash over all rows of a table in their order; JSON is compared by its meaning, not by its spacing."""

    def __init__(self, table: Table) -> None:
        self._kinds = table.kinds(table.names)
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            meant = [
                _meaning(value) if kind == "json" and value is not None else value
                for kind, value in zip(self._kinds, row, strict=True)
            ]
            self._hash.update(json.dumps(meant, sort_keys=True).encode() + b"\n")
            self.rows += 1

    def text(self) -> str:
        return self._hash.hexdigest()


def _milliseconds(value: Any) -> int:  # noqa: ANN401 - a driver's value
    return (value - _EPOCH) // _MILLISECOND if isinstance(value, dt.datetime) else int(value)


def _amount(value: Any) -> str:  # noqa: ANN401 - a driver's value
    return format(Decimal(value).normalize(), "f")


def _meaning(text: str) -> Any:  # noqa: ANN401 - any JSON
    # PostgreSQL writes 1e2 as 100.
    return json.loads(text, parse_float=lambda number: int(found) if (found := float(number)).is_integer() else found)


def _moment(value: int) -> dt.datetime:
    # Not from seconds, because a float does not hold them exactly.
    return _EPOCH + value * _MILLISECOND


def _same(value: Any) -> Any:  # noqa: ANN401 - a driver's value
    return value


_NEUTRAL: dict[Kind, Callable[[Any], Any]] = {
    "text": _same,
    "number": int,
    "real": float,
    "time": _milliseconds,
    "flag": int,
    "json": _same,
    "amount": _amount,
}
_POSTGRES: dict[Kind, Callable[[Any], Any]] = {
    "text": _same,
    "number": int,
    "real": float,
    "time": _moment,
    "flag": bool,
    "json": _same,
    "amount": Decimal,
}
