"""Carillon delivers notifications durably: it stores each before it answers, and tries until it is delivered."""

from typing import TYPE_CHECKING, Any

from carillon.version import __version__

if TYPE_CHECKING:
    from carillon.embedded import Embedded

__all__ = ["__version__", "open"]


def open(where: str = "carillon.db", **options: Any) -> "Embedded":  # noqa: A001, ANN401 - read as carillon.open, options of open_embedded
    """Run Carillon inside this program: `async with carillon.open("app.db") as c: await c.send(...)`."""
    # Loaded here: a program that only imports the client, and `carillon --help`, start faster without the engine.
    from carillon.embedded import open_embedded  # noqa: PLC0415 - as said

    return open_embedded(where, **options)
