"""`carillon version`."""

import typer

from carillon import __version__
from carillon.cli.options import AsJson


def version(*, as_json: AsJson = False) -> None:
    """Print the version."""
    typer.echo(f'{{"version": "{__version__}"}}' if as_json else __version__)
