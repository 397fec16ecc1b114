"""`carillon ledger`: move a ledger to another database, and remove tables that nothing needs."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.compose.ledger import parts_needed
from carillon.config.reading import load
from carillon.ledger.copying import Copied, copy_ledger
from carillon.ledger.tidying import tidy

app = typer.Typer(help="Copy a ledger to another database, or tidy it.", no_args_is_help=True)


@app.callback()
def ledger() -> None:
    """Copy a ledger to another database, or tidy it."""


@app.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="sqlite:///path or postgresql://…; no process may use it.")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The other kind of URL; the database must be empty.")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted copy.")] = False,
    even_if_used: Annotated[
        bool, typer.Option("--even-if-used", help="Copy although another Carillon is connected to PostgreSQL.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a whole ledger from SQLite to PostgreSQL or back, then compare both, table by table."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, emoji=False), disable=as_json) as progress:
        bars = {phase: progress.add_task(phase, total=None) for phase in ("copying", "checking")}
        done = asyncio.run(
            copy_ledger(
                source,
                target,
                resume=resume,
                even_if_used=even_if_used,
                progress=lambda phase, number, total: progress.update(bars[phase], completed=number, total=total),
            )
        )
        for bar in bars.values():
            finished = progress.tasks[bar].completed
            progress.update(bar, total=finished or 1, completed=finished or 1)
    rows, written = sum(one.rows for one in done), sum(one.written for one in done)
    if as_json:
        print_json({"rows": rows, "written": written, "tables": done})
        return
    _show(done)
    typer.echo(f"{rows} rows in {len(done)} tables are the same at both ends, {written} of them written now")


@app.command("tidy")
def tidy_command(
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")] = False,
    even_if_used: Annotated[
        bool, typer.Option("--even-if-used", help="Tidy although other Carillon processes are connected.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the empty tables of parts that these settings do not need.

    Earlier releases made the tables of every part in every ledger. A part with a single row stays as a whole. An
    earlier release does not start on a tidied ledger.
    """
    settings = load(blueprint, config, needs="ledger")
    found = asyncio.run(tidy(settings.ledger.url, parts_needed(settings), dry_run=dry_run, even_if_used=even_if_used))
    if as_json:
        print_json(found)
        return
    for one in found:
        held = ", ".join(f"{name} ({rows} rows)" if rows else name for name, rows in one.tables.items())
        word = "removed" if one.removed else "would go" if one.empty else "stays"
        typer.echo(f"{one.part}: {word}: {held}")
    if not found:
        typer.echo("there is nothing to remove")


def _show(done: list[Copied]) -> None:
    table = Table()
    table.add_column("table", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("digest")
    for one in done:
        if one.rows:
            table.add_row(one.table, str(one.rows), one.digest[:16])
    Console(emoji=False).print(table)
