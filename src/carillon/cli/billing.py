"""`carillon billing`: whose subscriptions, payments and counters the rows of the blueprint billing are."""

from typing import Annotated

import typer

from carillon.blueprints.billing.store import ASSIGNED, BillingStore
from carillon.cli.by_hand import confirmed, of_existing, with_ledger
from carillon.cli.options import AsJson, Config, blueprint_option, load_for, print_json
from carillon.domain.errors import CarillonError
from carillon.web.auth import fits_tenant

app = typer.Typer(help="Assign rows of the blueprint billing to tenants.", no_args_is_help=True)
BLUEPRINT = "billing"

Blueprint = Annotated[str | None, blueprint_option(BLUEPRINT)]


class NotAssigned(CarillonError):
    """The command does not say clearly whose rows a tenant is to get."""


@app.callback()
def billing() -> None:
    """Assign rows of the blueprint billing to tenants."""


@app.command()
def assign(
    tenant: Annotated[str, typer.Argument(help="The tenant that gets the rows.")],
    user: Annotated[list[str] | None, typer.Option(help="Assign the rows of this user; repeatable.")] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    everybody: Annotated[bool, typer.Option("--everybody", help="Assign every row without a tenant.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Assign rows without a tenant: subscriptions, their payments, refunds and events, and usage.

    Rows that are older than the column tenant_id have no tenant: operators and callers without a tenant reach them.

    For example: `carillon billing assign acme --user ada --user bob`.
    """
    if not fits_tenant(tenant):
        raise NotAssigned(f"{tenant!r} is not the name of a tenant: use 1 to 64 letters, digits, dots, colons, _ and -")
    if bool(user) == everybody:
        raise NotAssigned("name whose rows to assign: --user ID, several times if needed, or --everybody")
    settings = of_existing(load_for(BLUEPRINT, blueprint, config, needs="ledger"))
    whose = "everybody" if everybody else ", ".join(user or ())
    if not confirmed(2, f"Give {tenant} all rows of {whose} that have no tenant?", yes=yes or as_json):
        raise typer.Exit(1)
    found = with_ledger(settings, lambda ledger: BillingStore(ledger.engine).assign(tenant, user or None))
    if as_json:
        print_json({"tenant": tenant, "assigned": found})
        return
    if not any(found.values()):
        typer.echo(f"No row of {whose} is without a tenant: nothing was assigned.")
        return
    for table in ASSIGNED:
        typer.echo(f"{found[table]:>8}  {table}")
    typer.echo(f"{tenant} has {sum(found.values())} rows more.")
