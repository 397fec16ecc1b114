"""Carillon delivers notifications durably: written down before answered, tried until told."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carillon.embedded import Embedded

__version__ = "0.1.0"
__all__ = ["open"]


def open(where: str = "carillon.db", **options: Any) -> "Embedded":  # noqa: A001, ANN401 - read as carillon.open, options of open_embedded
    """Run Carillon inside this program: `async with carillon.open("app.db") as c: await c.send(...)`."""
    # The engine is loaded by those who want it: the client and `carillon --help` need little.
    from carillon.embedded import open_embedded  # noqa: PLC0415 - as said

    return open_embedded(where, **options)
