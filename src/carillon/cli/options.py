"""The options that many commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from carillon.config.reading import blueprint_names, load
from carillon.config.settings import Settings


def blueprint_option(default: str, more: str = "", names: Callable[[], list[str]] | None = None) -> object:
    """The option `--blueprint` with its default; `names` are its completions."""
    return typer.Option(
        "--blueprint",
        "-b",
        envvar="CARILLON_BLUEPRINT",
        help=f"The blueprint whose settings to use: `{default}` by default{more}.",
        autocompletion=names,
    )


Blueprint = Annotated[str | None, blueprint_option("local", names=blueprint_names)]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="CARILLON_CONFIG",
        help="A TOML file that changes a blueprint, which its `extends` names.",
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
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]


def load_for(default: str, blueprint: str | None, config: Path | None) -> Settings:
    """The settings of a command for one blueprint; a file names the blueprint that it extends itself."""
    return load(blueprint or (default if config is None else None), config)
