"""The interface of a database engine: run a named statement with named values, and get rows."""

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
"""Columns by name; times are Unix milliseconds."""
Values: TypeAlias = Mapping[str, Any]
"""Parameters by name. A list becomes an array in PostgreSQL and a JSON text in SQLite; `now` is SQLite's clock."""
PoolName: TypeAlias = Literal["intake", "claims", "settlements", "reads"]
"""Which of PostgreSQL's pools runs the statement; SQLite has one connection to write and one to read."""

NOTHING: Values = MappingProxyType({})


class Ask(NamedTuple):
    """One statement with its values; a batch in `each` runs once with arrays in PostgreSQL, once per row in SQLite."""

    statement: str
    values: Values = NOTHING
    each: Sequence[Values] | None = None


Steps: TypeAlias = Generator[Ask, list[Row], T]
"""The statements of one transaction: the generator yields each, receives its rows, and returns the result.

The generator does not know the engine: PostgreSQL runs it in the event loop, SQLite in its thread.
"""


class Engine(Protocol):
    """One database. Every method raises LedgerUnavailable for a failure of the network, the server or the disk."""

    async def rows(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",
    ) -> list[Row]:
        """Read rows; repeats the statement after a broken connection."""
        ...

    async def one(self, statement: str, values: Values = NOTHING, *, pool: PoolName = "reads") -> Row | None:
        """Read the first row; None if there is none."""
        ...

    async def write(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        repeatable: bool,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",
        look: str | None = None,
    ) -> list[Row]:
        """Run a statement that writes; returns its rows.

        A repeatable statement runs again after a broken connection, so running it twice must equal running it once.
        `look` names a statement with which SQLite checks first, without a lock, whether there is anything to do.
        """
        ...

    async def snapshot(self, steps: Callable[[], Steps[T]]) -> T:
        """Read with several statements that see the same snapshot."""
        ...

    async def change(self, steps: Callable[[], Steps[T]], *, repeatable: bool, pool: PoolName = "reads") -> T:
        """Write with several statements in one transaction."""
        ...

    async def check(self) -> dict[str, Any]:
        """The engine's version, its durability settings, and the difference of its clock in seconds."""
        ...
