"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

from carillon.config import blueprint_names

Blueprint = Annotated[
    str | None,
    typer.Option(
        "--blueprint",
        "-b",
        envvar="CARILLON_BLUEPRINT",
        help="Which shipped configuration to run: `local` by default.",
        autocompletion=blueprint_names,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="CARILLON_CONFIG", help="A TOML file over the blueprint; `extends` names one."
    ),
]
Blueprints = Annotated[
    str | None,
    typer.Option(
        "--blueprint",
        "-b",
        envvar="CARILLON_BLUEPRINT",
        help="Which shipped configuration to run: `local` by default; several, with commas between, run together.",
        autocompletion=blueprint_names,
    ),
]
Configs = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", envvar="CARILLON_CONFIG", help="A TOML file over the blueprint; several run together."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]
