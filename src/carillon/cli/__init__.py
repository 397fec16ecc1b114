"""The `carillon` command."""

import sys

import typer

from carillon.cli.later import Commands, answer_the_first_tab
from carillon.domain.errors import CarillonError, ConfigurationError

app = typer.Typer(name="carillon", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def carillon() -> None:
    """Delivers notifications: written down before it answers, tried until each person has been told."""


def main() -> None:
    """Run the command line; an error that the user can correct is one line on stderr, not a traceback."""
    answer_the_first_tab()
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
