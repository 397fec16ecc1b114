"""The version of this release, and the names that earlier ones had for public classes."""

import warnings
from collections.abc import Callable, Mapping

__version__ = "0.1.0"


def old_names(module: str, renamed: Mapping[str, type]) -> Callable[[str], object]:
    """A module's `__getattr__`: the old name of a class still works, with a DeprecationWarning."""

    def look(name: str) -> object:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        now = renamed[name]
        warnings.warn(f"{module}.{name} is called {now.__name__} now", DeprecationWarning, stacklevel=2)
        return now

    return look
