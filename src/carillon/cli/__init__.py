"""The `carillon` command."""

import sys

import typer

from carillon.cli.dead_letters import app as dead_letters
from carillon.cli.doctor import doctor
from carillon.cli.send import send
from carillon.cli.serve import serve
from carillon.cli.settings import app as config
from carillon.cli.settings import migrate
from carillon.domain.errors import CarillonError, ConfigurationError

app = typer.Typer(
    name="carillon",
    help="Delivers notifications: written down before it answers, tried until each person has been told.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(send)
app.command()(doctor)
app.command()(migrate)
app.add_typer(config, name="config")
app.add_typer(dead_letters, name="dead-letters")


@app.command()
def version() -> None:
    """Print the version."""
    from carillon import __version__  # noqa: PLC0415 - only this command needs it

    typer.echo(__version__)


def main() -> None:
    """Run the command line; what a user can mend is one line on stderr, not a traceback."""
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
