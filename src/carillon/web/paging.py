"""Paging through lists: by page up to a bound, and by cursor without one. Every list endpoint pages with this."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.web.problems import Problem

DEEPEST = 10_000
"""The last offset: a page costs as much as all pages before it. A cursor costs the same everywhere."""
Cursor = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,6000}\Z",
        description="`nextCursor` of the answer before: goes on from there. It takes the place of the page.",
    ),
]
_LATEST = 10**16
"""No time in microseconds and no id of a row is larger."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST = 4000
Shown = TypeVar("Shown")


class CursorShape:
    """What a cursor of one list holds: the columns that order the list, taken from its last row."""

    def __init__(self, name: str, columns: Mapping[str, tuple[str, type]]) -> None:
        """`columns` maps the ledger's filter to the column of a row and to its type."""
        self._name = name
        self._columns = columns

    def place(self, cursor: str | UnsetType, number: int, size: int) -> tuple[dict[str, Any], int]:
        """The filters that go on after the cursor, and the offset."""
        if cursor is UNSET:
            return {}, offset(number, size)
        if number != 1:
            raise Problem("VALIDATION_ERROR", "a page and a cursor exclude each other: give one of them")
        return self._read(cursor), 0

    def cut(
        self, rows: Sequence[Shown], size: int, columns: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Shown], str | None]:
        """The first `size` of the rows, and the cursor of the next ones; None if there are no more.

        Ask the ledger for one row more than `size`. `columns` are the rows' columns, under the same index.
        """
        if len(rows) <= size:
            return list(rows), None
        last = columns[size - 1]
        values = [self._name, *(last[column] for column, _ in self._columns.values())]
        return list(rows[:size]), base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")

    def _read(self, cursor: str) -> dict[str, Any]:
        try:
            text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            name, *values = msgspec.json.decode(text, type=list[int | str])
        except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
            raise _foreign() from None
        kinds = [kind for _, kind in self._columns.values()]
        if name != self._name or [type(value) for value in values] != kinds or not all(map(_fit, values)):
            raise _foreign()
        return dict(zip(self._columns, values, strict=True))


def counts(cursor: str | UnsetType, number: int, size: int, total: int) -> dict[str, Any]:
    """The figures of a page. Behind a cursor nothing is counted: that would cost more than the page itself."""
    if cursor is not UNSET:
        return {"total_count": None, "page_number": None, "page_size": size, "total_pages": None}
    return {"total_count": total, "page_number": number, "page_size": size, "total_pages": -(-total // size)}


def offset(number: int, size: int) -> int:
    """How many rows stand before a page."""
    if number * size > DEEPEST:
        raise Problem(
            "VALIDATION_ERROR",
            f"only the first {DEEPEST} have pages: go on with `cursor`, the `nextCursor` of an answer",
        )
    return (number - 1) * size


def _fit(value: object) -> bool:
    if isinstance(value, int):
        return 0 <= value <= _LATEST
    return isinstance(value, str) and len(value) <= _LONGEST and _UNFIT.search(value) is None


def _foreign() -> Problem:
    return Problem("VALIDATION_ERROR", "this cursor is not one of this list")
