"""Named SQL statements, read from the .sql files of each engine."""

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


def load(dialect: str) -> Mapping[str, str]:
    """Every statement of one dialect by its name; comments stay, so that a server's log shows the reason as well."""
    found: dict[str, str] = {}
    room = files("carillon.ledger").joinpath(dialect)
    for name in sorted(entry.name for entry in room.iterdir()):
        if name.endswith(".sql"):
            found |= parse(room.joinpath(name).read_text(encoding="utf-8"))
    return MappingProxyType(found)


def parse(text: str) -> dict[str, str]:
    """Split at the `-- name:` lines; what stands before the first one belongs to nobody."""
    parts = _NAME.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError("two statements carry one name")
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}
