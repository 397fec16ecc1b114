"""The `carillon` command."""

import sys

import typer

from carillon.cli.dead_letters import app as dead_letters
from carillon.cli.doctor import doctor
from carillon.cli.galaxy import app as galaxy
from carillon.cli.history import app as history
from carillon.cli.keys import app as keys
from carillon.cli.ledger import app as ledger
from carillon.cli.listo import app as listo
from carillon.cli.load import load
from carillon.cli.options import AsJson
from carillon.cli.push import app as push
from carillon.cli.queues import app as queues
from carillon.cli.send import send
from carillon.cli.serve import serve
from carillon.cli.settings import app as config
from carillon.cli.settings import migrate
from carillon.cli.tail import tail
from carillon.cli.templates import app as templates
from carillon.cli.top import top
from carillon.domain.errors import CarillonError, ConfigurationError

app = typer.Typer(
    name="carillon",
    help="Delivers notifications: written down before it answers, tried until each person has been told.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(send)
app.command()(top)
app.command()(tail)
app.command()(load)
app.command()(doctor)
app.command()(migrate)
app.add_typer(config, name="config")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(galaxy, name="galaxy")
app.add_typer(history, name="history")
app.add_typer(keys, name="keys")
app.add_typer(ledger, name="ledger")
app.add_typer(push, name="push")
app.add_typer(queues, name="queues")
app.add_typer(templates, name="templates")
app.add_typer(listo, name="listo")


@app.command()
def version(*, as_json: AsJson = False) -> None:
    """Print the version."""
    from carillon import __version__  # noqa: PLC0415 - only this command needs it

    typer.echo(f'{{"version": "{__version__}"}}' if as_json else __version__)


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
