"""`carillon digests`: which digests are open, and what became of the others."""

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from carillon.cli.options import AsJson, print_json, print_table
from carillon.cli.remote import HERE, NOT_FOUND, Remote, RemoteFailed, Token, TokenFile, Url, token_of
from carillon.cli.words import counted

app = typer.Typer(help="See digests and the events that wait in them.", no_args_is_help=True)
_PATH = "/api/v1/digests"
PAGE = 200
_WIDE = 130


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
    console = Console(emoji=False)
    table = _table(found["items"], found["totalCount"], wide=console.width >= _WIDE, told=all_)
    print_table(table, console)


def _table(rows: list[dict[str, Any]], total: int, *, wide: bool, told: bool) -> Table:
    """A row for each digest; where there is no room, recipient, key and channels are below the id."""
    about = ["recipient", "key", "channels"]
    table = Table(title=f"{len(rows)} of {counted(total, 'digest')}", title_justify="left")
    for heading in ("digest", *(about if wide else ()), "events", "closes", *(("told",) if told else ())):
        # Do not wrap ids and times: an operator copies them into the next command.
        table.add_column(heading, overflow="fold", no_wrap=heading == "closes" or (wide and heading == "digest"))
    for one in rows:
        what = [one["recipient"], one["key"], ", ".join(one["channels"])]
        first = [one["id"], *what] if wide else ["\n".join([one["id"], *what])]
        last = [one["error"] or _minute(one["toldAt"])] if told else []
        table.add_row(*first, str(one["events"]), _minute(one["closesAt"]), *last)
    return table


def _minute(time: str | None) -> str:
    """A time of the API to the minute, as a table has room for it."""
    return "" if time is None else f"{time[:10]} {time[11:16]} UTC"


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
