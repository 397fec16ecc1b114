"""`carillon endpoints`: endpoints in trouble, what calls keep a pace for, and enabling an endpoint by hand."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from carillon.cli.options import AsJson, print_json
from carillon.cli.remote import HERE, Remote, Token, TokenFile, Url, bearer, call, token_of

app = typer.Typer(help="See endpoints in trouble, and enable one again.", no_args_is_help=True)
_PATH = "/api/v1/admin/targets"


@app.command("list")
def list_(
    context: typer.Context,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Endpoints that calls are kept from, the worst first, and every rate that calls keep now."""
    found = Remote(url.rstrip("/"), token_of(context, token, token_file)).get(_PATH)
    if as_json:
        print_json(found)
        return
    if not found["items"]:
        typer.echo("No endpoint is in trouble, and no rate was learnt.")
        return
    table = Table(title=f"{len(found['items'])} of {found['totalCount']} targets", title_justify="left")
    for heading in ("provider", "endpoint", "breaker", "failing since", "next probe", "rate"):
        table.add_column(heading, overflow="fold")
    for one in found["items"]:
        table.add_row(
            one["provider"] or f"tenant {one['tenantId']}",
            one["endpoint"] or "",
            one["state"].replace("_", " "),
            one["failingSince"] or "",
            one["nextProbeAt"] or "",
            _rate(one),
        )
    Console(emoji=False).print(table)


@app.command()
def enable(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    endpoint: Annotated[str, typer.Argument(help="host:port, as `carillon endpoints list` shows it.")],
    provider: Annotated[str, typer.Option(help="The provider that calls the endpoint.")] = "webhook",
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "enabled from the command line",
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Call an endpoint again at once; its dead letters wait for `carillon dead-letters redrive`."""
    headers = bearer(token_of(context, token, token_file)) | {
        "Content-Type": "application/json",
        "X-Admin-Override": "true",
    }
    body = {"provider": provider, "endpoint": endpoint, "reason": reason}
    done = call(f"{url.rstrip('/')}{_PATH}/enable", headers, body)
    if as_json:
        print_json(done)
        return
    typer.echo(f"{endpoint} is called again" if done["enabled"] else f"{endpoint} was not kept from calls")


def _rate(one: dict[str, Any]) -> str:
    rate = "" if one["perSecond"] is None else f"{one['perSecond']:g}/s"
    return f"{rate} paused until {one['pausedUntil']}".strip() if one["pausedUntil"] else rate
