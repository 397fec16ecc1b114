"""`carillon pause` and `carillon resume`: stop the calls of a provider, endpoint, lane, template, tenant or queue."""

import json
from typing import Annotated, Literal

import typer
from rich.table import Table

from carillon.cli.options import AsJson, print_table
from carillon.cli.remote import HERE, Remote, Token, TokenFile, Url, bearer, call, token_of

_PATH = "/api/v1/admin/pauses"
Kind = Literal["provider", "endpoint", "lane", "template", "tenant", "queue"]
Scope = Annotated[
    Kind | None,
    typer.Argument(help="What kind of thing: provider, endpoint, lane, template, tenant or queue.", show_default=False),
]
Name = Annotated[str | None, typer.Argument(help="Its name; host:port of an endpoint.", show_default=False)]
Provider = Annotated[str, typer.Option(help="The provider that calls the endpoint.")]


def pause(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    scope: Scope = None,
    name: Name = None,
    reason: Annotated[str, typer.Option(help="Shown to everybody who asks why something waits.")] = "",
    provider: Provider = "webhook",
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make no call of a provider, endpoint, lane, template, tenant or queue; without arguments, show what is paused."""
    secret = token_of(context, token, token_file)
    if scope is not None and name is None:
        raise typer.BadParameter(f"which {scope}? `carillon pause` alone shows what is paused", param_hint="NAME")
    if scope is None or name is None:
        _list(Remote(url, secret), as_json=as_json)
        return
    if not reason:
        raise typer.BadParameter("say why: the story of every notification that waits shows it", param_hint="--reason")
    body = {"scope": scope, "name": name, "provider": provider, "reason": reason}
    done = call(f"{url}{_PATH}", _headers(secret), body)
    said = f"{done['what']} is paused" if done["changed"] else f"{done['what']} was paused; the reason is the new one"
    typer.echo(json.dumps(done, ensure_ascii=False) if as_json else said)


def resume(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    scope: Annotated[Kind, typer.Argument(help="What kind of thing.")],
    name: Annotated[str, typer.Argument(help="Its name; host:port of an endpoint.")],
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "resumed from the command line",
    provider: Provider = "webhook",
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make the calls again that a pause keeps back."""
    body = {"scope": scope, "name": name, "provider": provider, "reason": reason}
    done = call(f"{url}{_PATH}/resume", _headers(token_of(context, token, token_file)), body)
    said = f"{done['what']} goes on" if done["changed"] else f"{done['what']} was not paused"
    typer.echo(json.dumps(done, ensure_ascii=False) if as_json else said)


def _headers(secret: str | None) -> dict[str, str]:
    return bearer(secret) | {"Content-Type": "application/json", "X-Admin-Override": "true"}


def _list(remote: Remote, *, as_json: bool) -> None:
    found = remote.get(_PATH)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    if not found["items"]:
        typer.echo("Nothing is paused.")
        return
    table = Table(title=f"{len(found['items'])} paused", title_justify="left")
    for heading in ("what", "by", "since", "reason"):
        table.add_column(heading, overflow="fold")
    for one in found["items"]:
        table.add_row(one["what"], one["by"], one["since"], one["reason"])
    print_table(table)
