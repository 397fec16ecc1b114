"""`carillon ledger`: move a ledger to another database."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from carillon.cli.options import AsJson
from carillon.ledger.copying import Copied, copy_ledger

app = typer.Typer(help="Copy a ledger to another database.", no_args_is_help=True)


@app.callback()
def ledger() -> None:
    """Copy a ledger to another database."""


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
        typer.echo(msgspec.json.encode({"rows": rows, "written": written, "tables": done}))
        return
    _show(done)
    typer.echo(f"{rows} rows in {len(done)} tables are the same at both ends, {written} of them written now")


def _show(done: list[Copied]) -> None:
    table = Table()
    table.add_column("table", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("digest")
    for one in done:
        if one.rows:
            table.add_row(one.table, str(one.rows), one.digest[:16])
    Console(emoji=False).print(table)
