"""The options that many commands share."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from carillon.config.reading import Needs, blueprint_names, load
from carillon.config.settings import Settings

T = TypeVar("T")


def blueprint_option(default: str, more: str = "", names: Callable[[], list[str]] | None = None) -> object:
    """The option `--blueprint` with its default; `names` are its completions."""
    return typer.Option(
        "--blueprint",
        "-b",
        envvar="CARILLON_BLUEPRINT",
        help=f"The blueprint whose settings to use: `{default}` by default{more}.",
        autocompletion=names,
    )


IN_FOLDER = Path("carillon.toml")


def _say_unread(context: typer.Context, given: T) -> T:
    """Say that the file in this folder is not read: no command reads a file that nobody named."""
    if not given and not context.resilient_parsing and IN_FOLDER.is_file():
        typer.echo(f"note: {IN_FOLDER} in this folder is not read; --config {IN_FOLDER} reads it", err=True)
    return given


Blueprint = Annotated[str | None, blueprint_option("local", names=blueprint_names)]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="CARILLON_CONFIG",
        help="A TOML file that changes a blueprint, which its `extends` names.",
        callback=_say_unread,
    ),
]
Blueprints = Annotated[
    str | None,
    blueprint_option(
        "local", "; several, separated by commas, run in one process, each on a port of its own", blueprint_names
    ),
]
Configs = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        envvar="CARILLON_CONFIG",
        help="A TOML file that changes a blueprint, which its `extends` names; several files run in one process.",
        callback=_say_unread,
    ),
]
_SEVERAL_WORDS = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_OTHERS_NAMES = frozenset(
    ["payload", "data", "metadata", "sample", "variables", "defaultVariables", "headers", "tables", "rawFields"]
)
"""Fields whose names inside are not ours: a producer's data, the names of tables."""


def print_json(value: object, indent: int | None = None) -> None:
    """Print one JSON document with the names of the API, which are camelCase, whatever the ledger calls them."""
    typer.echo(json.dumps(_camel(msgspec.to_builtins(value)), ensure_ascii=False, indent=indent))


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table; of one without rows only its title, which says that there are none."""
    console = console or Console(emoji=False)
    if table.rows or table.title is None:
        console.print(table, markup=False)
    else:
        console.print(table.title, markup=False, highlight=False)


def _camel(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inside in value.items():
        first, *rest = name.split("_") if _SEVERAL_WORDS.fullmatch(name) else [name]
        spelled = first + "".join(word.capitalize() for word in rest)
        found[spelled] = inside if spelled in _OTHERS_NAMES else _camel(inside)
    return found


AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]


def load_for(default: str, blueprint: str | None, config: Path | None, *, needs: Needs = "everything") -> Settings:
    """The settings of a command for one blueprint; a file names the blueprint that it extends itself."""
    return load(blueprint or (default if config is None else None), config, needs=needs)
