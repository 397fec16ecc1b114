"""`carillon endpoints`: how endpoints do, those in trouble, enabling one by hand, and replaying what went to one."""

from typing import Annotated, Any

import typer
from rich.table import Table

from carillon.cli.by_hand import confirmed
from carillon.cli.dead_letters import per_second
from carillon.cli.options import AsJson, print_json, print_table
from carillon.cli.remote import HERE, Remote, Token, TokenFile, Url, bearer, call, token_of
from carillon.cli.words import counted

app = typer.Typer(help="See how endpoints do, enable one again, and replay what went to one.", no_args_is_help=True)
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
    found = Remote(url, token_of(context, token, token_file)).get(_PATH)
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
    print_table(table)


@app.command()
def health(
    context: typer.Context,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """How every endpoint does that was called in the last ten to twenty minutes, also those without any trouble."""
    found = Remote(url, token_of(context, token, token_file)).get("/api/v1/admin/endpoints")
    if as_json:
        print_json(found)
        return
    if not found["items"]:
        typer.echo("No endpoint was called lately.")
        return
    table = Table(title=f"{len(found['items'])} of {found['totalCount']} endpoints", title_justify="left")
    for heading in ("provider", "endpoint", "calls", "failed", "last success", "average", "slowest"):
        # Do not wrap endpoints: an operator copies them into the next command.
        table.add_column(heading, overflow="fold", no_wrap=heading == "endpoint")
    for one in found["items"]:
        table.add_row(
            one["provider"],
            one["endpoint"],
            str(one["calls"]),
            f"{one['failures']} ({one['errorRate']:.0%})",
            one["lastSuccessAt"] or "none",
            f"{one['averageMs']:g} ms",
            f"{one['slowestMs']:g} ms",
        )
    print_table(table)


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
    """Call an endpoint again at once; its dead letters wait for `carillon endpoints replay`."""
    body = {"provider": provider, "endpoint": endpoint, "reason": reason}
    done = call(f"{url}{_PATH}/enable", _headers(token_of(context, token, token_file)), body)
    if as_json:
        print_json(done)
        return
    typer.echo(f"{endpoint} is called again" if done["enabled"] else f"{endpoint} was not kept from calls")


@app.command()
def replay(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    endpoint: Annotated[str, typer.Argument(help="host:port, or a URL that is registered.")],
    since: Annotated[str, typer.Option(help="What ended at this time or later, e.g. 2030-01-01T08:00:00Z.")],
    provider: Annotated[str, typer.Option(help="The provider that calls the endpoint.")] = "webhook",
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N/s", help="At most this many a second, e.g. 20/s.")] = None,
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "replayed from the command line",
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    delivered: Annotated[bool, typer.Option("--delivered", help="Also what the endpoint took since then.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send again what failed at an endpoint since a time; counts first. `carillon dead-letters stop` stops it."""
    headers = _headers(token_of(context, token, token_file))
    body: dict[str, Any] = {"provider": provider, "endpoint": endpoint, "since": since, "delivered": delivered}
    body |= {"reason": reason, "ratePerSecond": per_second(rate), "tenantId": tenant}
    found = call(f"{url}{_PATH}/replay", headers, {**body, "dryRun": True})
    number = found["failed"] + found["delivered"] - found["suppressed"]
    question = f"Replay {counted(number, 'notification')} to {found['endpoint']}?"
    if not dry_run and number and confirmed(number, question, yes=yes or as_json):
        found = call(f"{url}{_PATH}/replay", headers, body)
    if as_json:
        print_json(found)
        return
    taken = f" and {found['delivered']} delivered" if delivered else ""
    held = f"; {found['suppressed']} stay, because their address is suppressed" if found["suppressed"] else ""
    noted = f"; redrive {found['actionId']}" if found["actionId"] is not None else ""
    said = f"{found['endpoint']}: {found['failed']} failed{taken} since then, {found['replayed']} replayed"
    typer.echo(said + (" (dry run)" if dry_run else "") + held + noted)


def _headers(secret: str | None) -> dict[str, str]:
    return bearer(secret) | {"Content-Type": "application/json", "X-Admin-Override": "true"}


def _rate(one: dict[str, Any]) -> str:
    rate = "" if one["perSecond"] is None else f"{one['perSecond']:g}/s"
    return f"{rate} paused until {one['pausedUntil']}".strip() if one["pausedUntil"] else rate
