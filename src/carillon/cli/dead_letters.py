"""`carillon dead-letters`: what could not be delivered, why, and another chance for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from carillon.cli.options import AsJson, Blueprint, Config
from carillon.compose import Ledger, open_ledger, parts
from carillon.config import load
from carillon.domain.errors import CarillonError

app = typer.Typer(help="See and redrive what could not be delivered.", no_args_is_help=True)
Answer = TypeVar("Answer")
PAGE = 200

Channel = Annotated[str | None, typer.Option(help="Only this channel.")]
Cause = Annotated[str | None, typer.Option("--classification", help="Only this kind of failure.")]


class NoSuchDeadLetter(CarillonError):
    """The id names no dead letter."""


def _with_ledger(blueprint: Blueprint, config: Config, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    settings = load(blueprint, config)
    path = settings.ledger.url.removeprefix("sqlite:///")
    if path != settings.ledger.url and not Path(path).exists():
        raise NoSuchDeadLetter(f"there is no ledger at {path} yet; `carillon serve` makes one")

    async def run() -> Answer:
        ledger = await open_ledger(settings)
        try:
            await ledger.migrate()
            return await work(ledger)
        finally:
            await ledger.aclose()

    return asyncio.run(run())


def _filters(**given: str | None) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


@app.command("list")
def list_(
    channel: Channel = None,
    classification: Cause = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="How many to show.")] = 50,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Dead letters, newest first."""
    filters = _filters(channel=channel, classification=classification)
    rows, total = _with_ledger(blueprint, config, lambda ledger: ledger.dead_letters(filters, limit, 0))
    if as_json:
        typer.echo(json.dumps({"items": rows, "total": total}, ensure_ascii=False))
        return
    table = Table(title=f"{len(rows)} of {total} dead letters", title_justify="left")
    for heading in ("notification", "route", "cause", "attempts", "since"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        attempts = f"{row['final_attempt_count']} of {row['max_attempts']}"
        table.add_row(
            row["notification_id"], row["route_id"], row["failure_classification"], attempts, _time(row["created_at"])
        )
    Console(emoji=False).print(table)


@app.command()
def show(
    notification_id: Annotated[str, typer.Argument(help="The notification's id.")],
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """One notification's dead letters with their whole history and what to do next."""

    async def find(ledger: Ledger) -> dict[str, Any]:
        rows, _ = await ledger.dead_letters({"notification_id": notification_id}, PAGE, 0)
        story = await ledger.story(notification_id, None)
        if not rows or story is None:
            raise NoSuchDeadLetter(f"{notification_id} has no dead letter; `carillon dead-letters list` shows all")
        return {"dead_letters": rows, "notification": story.notification, "attempts": story.attempts}

    found = _with_ledger(blueprint, config, find)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    console = Console(emoji=False)
    kind = found["notification"]["notification_type"]
    console.print(f"{notification_id}  {kind}  from {found['notification']['producer']}", markup=False)
    for row in found["dead_letters"]:
        console.print(f"  {row['route_id']}: {row['failure_classification']}: {row['failure_message']}", markup=False)
        console.print(f"    {row['recovery_hint']}", markup=False)
    for attempt in found["attempts"]:
        said = f"#{attempt['attempt']} {attempt['provider']} {attempt['outcome']} {attempt['error'] or ''}"
        console.print(f"    {_time(attempt['started_at'])}  {said}", markup=False)


@app.command()
def redrive(  # noqa: PLR0917 - a command line has many options
    notification_ids: Annotated[list[str] | None, typer.Argument(help="Ids; none with --all.")] = None,
    channel: Channel = None,
    classification: Cause = None,
    provider: Annotated[str | None, typer.Option(help="Start with this provider instead.")] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter that the filters match.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
) -> None:
    """Give dead letters a fresh budget under their old id; their history stays."""
    if everything == bool(notification_ids):
        raise NoSuchDeadLetter("say which: notification ids, or --all with or without filters")
    known = sorted({name for chain in parts.chains(load(blueprint, config)).values() for name in chain})
    if provider is not None and provider not in known:
        raise NoSuchDeadLetter(f"--provider {provider}: there is none of that name; known: {', '.join(known)}")
    filters = _filters(channel=channel, classification=classification)

    async def work(ledger: Ledger) -> tuple[int, int]:
        keys = await _find(ledger, notification_ids, filters)
        return len(keys), 0 if dry_run else await _redrive(ledger, keys, provider)

    found, redriven = _with_ledger(blueprint, config, work)
    typer.echo(f"{found} dead letters found, {redriven} redriven" + (" (dry run)" if dry_run else ""))


async def _find(ledger: Ledger, ids: list[str] | None, filters: dict[str, Any]) -> list[tuple[str, str]]:
    keys: list[tuple[str, str]] = []
    for chosen in [{**filters, "notification_id": one} for one in ids or []] or [filters]:
        rows, total = await ledger.dead_letters(chosen, PAGE, 0)
        while rows:
            keys += [(row["notification_id"], row["route_id"]) for row in rows]
            rows = (await ledger.dead_letters(chosen, PAGE, len(keys)))[0] if len(keys) < total else []
    return keys


async def _redrive(ledger: Ledger, keys: list[tuple[str, str]], provider: str | None) -> int:
    redriven = 0
    with Progress(console=Console(stderr=True, emoji=False), disable=len(keys) <= PAGE) as progress:
        bar = progress.add_task("redriving", total=len(keys))
        for at in range(0, len(keys), PAGE):
            redriven += await ledger.redrive(keys[at : at + PAGE], provider)
            progress.advance(bar, PAGE)
    return redriven


def _time(unix_ms: int | None) -> str:
    return "" if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
