"""The `carillon` command: it imports each subcommand when it is called, so that `send` loads no database driver."""

import logging
import re
import sys
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_group

from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.version import __version__

HOMES = {
    "serve": "serve:serve",
    "doctor": "settings:doctor",
    "migrate": "settings:migrate",
    "config": "settings:app",
    "version": "settings:version",
    "send": "send:send",
    "top": "top:top",
    "tail": "tail:tail",
    "load": "load:load",
    "rehearse": "rehearse:rehearse",
    "dead-letters": "dead_letters:app",
    "skipped": "skipped:app",
    "digests": "digests:app",
    "endpoints": "endpoints:app",
    "history": "history:app",
    "templates": "templates:app",
    "suppressions": "suppressions:app",
    "people": "people:app",
    "keys": "keys:app",
    "ledger": "ledger:app",
    "pause": "pauses:pause",
    "resume": "pauses:resume",
    "queues": "queues:app",
    "billing": "billing:app",
    "galaxy": "galaxy:app",
    "listo": "listo:app",
    "push": "push:app",
}
"""Each command with its module and its name there, in the order of `carillon --help`."""
PANELS = {
    "Run": "serve doctor migrate config version",
    "Send and look": "send top tail load rehearse dead-letters skipped digests endpoints history",
    "Look after": "templates suppressions people keys ledger pause resume queues",
    "Blueprints": "billing galaxy listo push",
}
"""The commands under their headings in `carillon --help`."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}
_TYPE = re.compile(r"<([\w\[\] ]+)>")
_KINDS = {
    "str": "text",
    "list[str]": "text",
    "int": "number",
    "int range": "number",
    "float": "number",
    "float range": "number",
    "path": "file",
    "Path": "file",
    "list[Path]": "file",
}
_FIRST_TAB = """
# zsh loads this file at the first TAB and would not complete that one.
if [[ "$funcstack[1]" = "_%(prog_name)s" ]]; then
  %(complete_func)s "$@"
fi
"""


class LazyCommands(MutableMapping[str, Any]):
    """All commands by name; looking one up imports its module."""

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer's own kinds of commands
        if name not in self._imported:
            self._imported[name] = _read(name, HOMES[name])
        return self._imported[name]

    def __setitem__(self, name: str, command: Any) -> None:  # noqa: ANN401 - see above
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**HOMES, **self._imported})

    def __len__(self) -> int:
        return len({**HOMES, **self._imported})


class Commands(TyperGroup):
    """The group `carillon`."""

    def __init__(self, **about: Any) -> None:  # noqa: ANN401 - typer's own options of a group
        super().__init__(**about)
        self.commands = LazyCommands()

    def list_commands(self, _ctx: object) -> list[str]:
        """Every name, without importing a command."""
        return list(self.commands)


def _read(name: str, home: str) -> Any:  # noqa: ANN401 - see above
    module, _, inside = home.partition(":")
    found = getattr(import_module(f"carillon.cli.{module}"), inside)
    alone = typer.Typer(callback=_nothing)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    command = get_group(alone).commands[name]
    command.rich_help_panel = _PANEL_OF[name]  # type: ignore[attr-defined]
    return command


def _nothing() -> None:
    """Makes typer build a group although there is only one command."""


def answer_the_first_tab() -> None:
    """Let zsh complete at the first TAB: append to typer's script, which is private to typer and may be missing."""
    try:
        scripts = getattr(import_module("typer._completion_shared"), "_completion_scripts", {})
    except ImportError:
        return
    if "zsh" in scripts and _FIRST_TAB not in scripts["zsh"]:
        scripts["zsh"] += _FIRST_TAB


def show_types_in_words() -> None:
    """Let the help show `<text>` and `<number>`; typer prints Python's types, and `<bool>` for a flag."""
    for kind in (TyperOption, TyperArgument):
        kind.display_type_rich = _in_words(kind.display_type_rich)  # type: ignore[method-assign, assignment]


def _in_words(shown: Callable[[Any, Any], str | None]) -> Callable[[Any, Any], str | None]:
    def words(parameter: Any, ctx: Any) -> str | None:  # noqa: ANN401 - typer's own parameter and context
        if getattr(parameter, "is_flag", False):
            return None
        text = shown(parameter, ctx)
        return text and _TYPE.sub(lambda found: f"<{_KINDS.get(found[1], found[1])}>", text)

    return words


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - the signature of typer's callbacks
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(name="carillon", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def carillon(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Delivers notifications: stores each before it answers, and tries until it is delivered or given up."""
    del version


def say_errors_once() -> None:
    """Our own errors say what a broker's client logs too; Python prints what is logged without a handler."""
    for client in ("aiormq", "azure"):
        logging.getLogger(client).addHandler(logging.NullHandler())


def main() -> None:
    """Run the command line; an error that the user can correct is one line on stderr, not a traceback."""
    answer_the_first_tab()
    show_types_in_words()
    say_errors_once()
    try:
        app()
    except ConfigurationError as error:
        sys.stderr.write(f"carillon: {error}\n")
        sys.exit(2)
    except CarillonError as error:
        sys.stderr.write(f"carillon: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
