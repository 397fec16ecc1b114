"""How a store asks its engine: a statement by its name and values by theirs, and rows come back."""

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
"""Columns by name; a time is Unix milliseconds."""
Values: TypeAlias = Mapping[str, Any]
"""Parameters by name. A list is an array of PostgreSQL and a JSON text of SQLite; `now` is SQLite's clock."""
PoolName: TypeAlias = Literal["intake", "claims", "settlements", "reads"]
"""Which of PostgreSQL's connections do the work; SQLite has one that writes and one that reads."""

NOTHING: Values = MappingProxyType({})


class Ask(NamedTuple):
    """One statement with its values; `each` is a batch: PostgreSQL runs it once with arrays, SQLite once for each."""

    statement: str
    values: Values = NOTHING
    each: Sequence[Values] | None = None


Steps: TypeAlias = Generator[Ask, list[Row], T]
"""Several statements of one transaction: the generator yields each, receives its rows, and returns the result.

A generator knows no engine: PostgreSQL drives it in the event loop and SQLite in its thread.
"""


class Engine(Protocol):
    """One database. Every method raises LedgerUnavailable for what the network, the server or the disk did."""

    async def rows(
        self,
        statement: str,
        values: Values = NOTHING,
        *,
        each: Sequence[Values] | None = None,
        pool: PoolName = "reads",
    ) -> list[Row]:
        """Read; a broken connection is tried again."""
        ...

    async def one(self, statement: str, values: Values = NOTHING, *, pool: PoolName = "reads") -> Row | None:
        """Read the first row; None where there is none."""
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
        """Change something; gives what the statement returns.

        Repeatable work is done again after a broken connection: twice must be the same as once. `look` names a
        statement with which SQLite finds out first, without a lock, whether there is anything to do.
        """
        ...

    async def snapshot(self, steps: Callable[[], Steps[T]]) -> T:
        """Read with several statements that see the same moment."""
        ...

    async def change(self, steps: Callable[[], Steps[T]], *, repeatable: bool, pool: PoolName = "reads") -> T:
        """Change something with several statements in one transaction: all of them, or none."""
        ...

    async def check(self) -> dict[str, Any]:
        """Ask the engine about itself: version, durability settings, clock difference in seconds."""
        ...
