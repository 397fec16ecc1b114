"""Commands that are read when they are asked for: who sends one notification waits for no driver of a database."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

HOMES = {
    "serve": "serve:serve",
    "send": "send:send",
    "top": "top:top",
    "tail": "tail:tail",
    "load": "load:load",
    "doctor": "doctor:doctor",
    "migrate": "settings:migrate",
    "version": "version:version",
    "config": "settings:app",
    "dead-letters": "dead_letters:app",
    "galaxy": "galaxy:app",
    "history": "history:app",
    "keys": "keys:app",
    "ledger": "ledger:app",
    "push": "push:app",
    "queues": "queues:app",
    "templates": "templates:app",
    "listo": "listo:app",
}
"""Each command with its module and its name in there, in the order of the help."""


class Shelf(MutableMapping[str, Any]):
    """All commands by name; each is imported when it is taken down for the first time."""

    def __init__(self) -> None:
        self._taken: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer's own kinds of commands
        if name not in self._taken:
            self._taken[name] = _read(name, HOMES[name])
        return self._taken[name]

    def __setitem__(self, name: str, command: Any) -> None:  # noqa: ANN401 - see above
        self._taken[name] = command

    def __delitem__(self, name: str) -> None:
        del self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**HOMES, **self._taken})

    def __len__(self) -> int:
        return len({**HOMES, **self._taken})


class Commands(TyperGroup):
    """The group `carillon`."""

    def __init__(self, **about: Any) -> None:  # noqa: ANN401 - whatever typer knows of a group
        super().__init__(**about)
        self.commands = Shelf()

    def list_commands(self, _ctx: object) -> list[str]:
        """Every name; none is imported for it."""
        return list(self.commands)


def _read(name: str, home: str) -> Any:  # noqa: ANN401 - see above
    module, _, inside = home.partition(":")
    found = getattr(import_module(f"carillon.cli.{module}"), inside)
    alone = typer.Typer(callback=_nothing)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return get_group(alone).commands[name]


def _nothing() -> None:
    """A lone command without this would be no group."""
