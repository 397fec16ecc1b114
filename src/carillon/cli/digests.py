"""`carillon digests`: which digests are open, and what became of the others."""

from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from carillon.cli.options import AsJson, print_json
from carillon.cli.remote import HERE, NOT_FOUND, Remote, RemoteFailed, Token, TokenFile, Url, token_of
from carillon.cli.words import counted

app = typer.Typer(help="See digests and the events that wait in them.", no_args_is_help=True)
_PATH = "/api/v1/digests"
PAGE = 200


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="How many to show.")] = 50,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also those that were told.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the digests in which events wait, the newest first."""
    query = f"?pageSize={limit}" + ("" if all_ else "&open=true")
    found = Remote(url, token_of(context, token, token_file)).get(_PATH + query)
    if as_json:
        print_json(found)
        return
    if not found["items"]:
        typer.echo("No digest is there." if all_ else "No digest is open.")
        return
    table = Table(title=f"{len(found['items'])} of {counted(found['totalCount'], 'digest')}", title_justify="left")
    for heading in ("digest", "recipient", "key", "channels", "events", "closes", "told"):
        # Do not wrap ids: an operator copies them into the next command.
        table.add_column(heading, overflow="fold", no_wrap=heading == "digest")
    for one in found["items"]:
        told = one["error"] or one["toldAt"] or ""
        channels = ", ".join(one["channels"])
        table.add_row(one["id"], one["recipient"], one["key"], channels, str(one["events"]), one["closesAt"], told)
    Console(emoji=False).print(table)


@app.command()
def show(
    context: typer.Context,
    digest_id: Annotated[str, typer.Argument(help="The digest's id, as `carillon digests list` shows it.")],
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the notification that told a digest, and the events in it."""
    remote = Remote(url, token_of(context, token, token_file))
    try:
        found = remote.get(f"/api/v1/notifications/{quote(digest_id, safe='')}?include=message")
    except RemoteFailed as error:
        if error.status == NOT_FOUND:
            raise RemoteFailed(f"{digest_id} is not told; `carillon digests list` shows when it closes") from None
        raise
    if as_json:
        print_json(found)
        return
    about = found["metadata"].get("digest", {})
    typer.echo(f"{digest_id}  {found['status']}  {about.get('key', '')}: {counted(about.get('count', 0), 'event')}")
    for member in about.get("members", []):
        typer.echo(f"  {member}")
