"""The options that many commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from carillon.config.reading import blueprint_names, load
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
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]


def load_for(default: str, blueprint: str | None, config: Path | None) -> Settings:
    """The settings of a command for one blueprint; a file names the blueprint that it extends itself."""
    return load(blueprint or (default if config is None else None), config)
