"""`carillon people`: what a person asks for: everything about them, or their erasure."""

import json
from typing import Annotated, Any

import msgspec
import typer

from carillon.cli.by_hand import confirmed, is_there, who, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.compose import Ledger
from carillon.compose.upkeep import places_beside
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError
from carillon.upkeep.consent.rights import erase as erase_person
from carillon.upkeep.consent.rights import erasure_view, exported

app = typer.Typer(help="Export or erase everything about a person.", no_args_is_help=True)

PersonId = Annotated[str, typer.Argument(metavar="ID", help="A user's id, or email:ADDRESS for a person without one.")]
_TOLD_EACH = 5000
Tenant = Annotated[str | None, typer.Option(help="The person's tenant.")]


class NoSuchLedger(CarillonError):
    """There is no ledger to look into."""


def _settings(blueprint: str | None, config: Any) -> Settings:  # noqa: ANN401 - the option's own type
    settings = load(blueprint, config)
    if not is_there(settings.ledger.url):
        path = settings.ledger.url.removeprefix("sqlite:///")
        raise NoSuchLedger(f"there is no ledger at {path} yet; `carillon serve` creates it")
    return settings


@app.command()
def export(person: PersonId, tenant: Tenant = None, blueprint: Blueprint = None, config: Config = None) -> None:
    """Print everything about a person as lines of JSON; the last line is `end`. Progress goes to stderr."""

    async def work(ledger: Ledger) -> None:
        count = 0
        async for thing in exported(ledger, tenant, person):
            typer.echo(json.dumps(thing, ensure_ascii=False))
            count += 1
            if count % _TOLD_EACH == 0:
                typer.echo(f"{count:,} lines", err=True)
        typer.echo(f"{count:,} lines, whole", err=True)

    with_ledger(_settings(blueprint, config), work)


@app.command()
def erase(
    person: PersonId,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person: notifications, preferences, streams, history; exit 1 if something could not be reached."""
    settings = _settings(blueprint, config)
    if not confirmed(2, f"Erase everything about {person}? Nobody can take that back.", yes=yes):
        raise typer.Exit(1)
    places = places_beside(settings)
    found = with_ledger(settings, lambda ledger: erase_person(ledger, tenant, person, who(), places))
    view = msgspec.to_builtins(erasure_view(found))
    if as_json:
        print_json(view)
    else:
        for table, rows in sorted(found.removed.items()):
            if rows:
                typer.echo(f"{table}: {rows}")
        typer.echo(f"suppressions kept as salted hashes: {found.suppressions_kept}")
        typer.echo("finished" if found.finished else f"unfinished: {', '.join(found.unfinished)}; run it again")
    if not found.finished:
        raise typer.Exit(1)
