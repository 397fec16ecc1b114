"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

Blueprint = Annotated[
    str | None,
    typer.Option(
        "--blueprint", "-b", envvar="CARILLON_BLUEPRINT", help="Which shipped configuration to run: `local` by default."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="CARILLON_CONFIG", help="A TOML file over the blueprint; `extends` names one."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]
