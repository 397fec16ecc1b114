"""`carillon dead-letters`: list, show and redrive dead letters."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from carillon.cli.by_hand import confirmed, settings_of_ledger, who, why, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json, print_table
from carillon.cli.words import counted
from carillon.compose import Ledger, from_settings
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.admin import AdminAction, FailedCounts, RedrivePlan
from carillon.domain.errors import CarillonError
from carillon.upkeep.redriving import redrive_failed, redrive_plan

app = typer.Typer(help="List, show and redrive dead letters.", no_args_is_help=True)
Answer = TypeVar("Answer")
PAGE = 200
_WIDE = 130

Channel = Annotated[str | None, typer.Option(help="Only this channel.")]
Cause = Annotated[str | None, typer.Option("--classification", help="Only this classification, e.g. http_503.")]


class NoSuchDeadLetter(CarillonError):
    """The id names no dead letter."""


def _with_ledger(blueprint: Blueprint, config: Config, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    return with_ledger(settings_of_ledger(blueprint, config), work)


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
    """List dead letters, newest first."""
    filters = _filters(channel=channel, classification=classification)
    rows, total = _with_ledger(blueprint, config, lambda ledger: ledger.dead_letters(filters, limit, 0))
    if as_json:
        print_json({"items": [_shown(row) for row in rows], "total": total})
        return
    console = Console(emoji=False)
    print_table(_table(rows, total, wide=console.width >= _WIDE), console)


def _table(rows: list[dict[str, Any]], total: int, *, wide: bool) -> Table:
    """A row for each; where there is no room, the route is below the id and the attempts below the cause."""
    table = Table(title=f"{len(rows)} of {counted(total, 'dead letter')}", title_justify="left")
    for heading in ("notification", *(("route",) if wide else ()), "cause", *(("attempts",) if wide else ()), "since"):
        # Do not wrap ids and times: an operator copies them into the next command.
        table.add_column(heading, overflow="fold", no_wrap=heading == "since" or (wide and heading == "notification"))
    for row in rows:
        about = [row["notification_id"], row["route_id"]]
        cause = [row["failure_classification"], f"{row['final_attempt_count']} of {row['max_attempts']}"]
        cells = [*about, *cause] if wide else ["\n".join(about), "\n".join(cause)]
        table.add_row(*cells, _time(row["created_at"]))
    return table


@app.command()
def show(
    notification_id: Annotated[str, typer.Argument(help="The notification's id.")],
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the dead letters of one notification, with their whole history and what to do next."""

    async def find(ledger: Ledger) -> dict[str, Any]:
        rows, _ = await ledger.dead_letters({"notification_id": notification_id}, PAGE, 0)
        story = await ledger.story(notification_id, None)
        if not rows or story is None:
            raise NoSuchDeadLetter(f"{notification_id} has no dead letter; `carillon dead-letters list` shows all")
        return {
            "dead_letters": [_shown(row) for row in rows],
            "notification": story.notification,
            "attempts": story.attempts,
        }

    found = _with_ledger(blueprint, config, find)
    if as_json:
        print_json(found)
        return
    console = Console(emoji=False)
    kind = found["notification"]["notification_type"]
    console.print(f"{notification_id}  {kind}  from {found['notification']['producer']}", markup=False)
    for row in found["dead_letters"]:
        console.print(f"  {row['route_id']}: {why(row)}", markup=False)
        console.print(f"    {row['recovery_hint']}", markup=False)
    for attempt in found["attempts"]:
        said = f"#{attempt['attempt']} {attempt['provider']} {attempt['outcome']} {attempt['error'] or ''}"
        console.print(f"    {_time(attempt['started_at'])}  {said}", markup=False)


@app.command()
def redrive(  # noqa: PLR0917 - a command line has many options
    notification_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of notifications; leave them out with --all.")
    ] = None,
    channel: Channel = None,
    classification: Cause = None,
    provider: Annotated[str | None, typer.Option(help="Make the first attempt with this provider.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N/s", help="At most this many a second, e.g. 20/s.")] = None,
    reason: Annotated[str, typer.Option(help="The reason for the audit trail.")] = "redriven from the command line",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter that the filters match.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give dead letters a fresh budget under their old id; their history stays."""
    if everything == bool(notification_ids):
        raise NoSuchDeadLetter("name notification ids, or use --all with or without filters")
    settings = _allowed(blueprint, config, provider)
    filters = _filters(channel=channel, classification=classification)
    how = redrive_plan(from_settings.lanes(settings), provider=provider, rate=per_second(rate))
    named = sorted(set(notification_ids or []))
    chosen = {**filters, "notification_ids": named} if named else filters
    action = _action(named, filters, reason, how.rate)

    async def work(ledger: Ledger) -> tuple[FailedCounts, int]:
        counts = await ledger.failed_counts(chosen)
        number = counts.total - counts.suppressed
        question = f"Redrive {counted(number, 'dead letter')}?"
        if dry_run or not number or not confirmed(number, question, yes=yes or as_json):
            return counts, 0
        return counts, await _redrive(ledger, chosen, counts, how, action)

    found, redriven = _with_ledger(blueprint, config, work)
    _tell(found, redriven, dry_run=dry_run, as_json=as_json)


@app.command()
def stop(
    redrive_id: Annotated[
        int | None, typer.Argument(help="The redrive; the newest that still waits by default.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason for the audit trail.")] = "stopped from the command line",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Stop a redrive: what waits for its turn is as it was before; what was attempted already goes on."""
    action = AdminAction(actor=f"cli:{who()}", action="stop_redrive", reason=reason)

    async def work(ledger: Ledger) -> tuple[int | None, int]:
        row = await (_running(ledger) if redrive_id is None else ledger.action(redrive_id))
        if row is None and redrive_id is None:
            return None, 0
        if row is None or row["action"] != "redrive":
            raise NoSuchDeadLetter(f"there is no redrive {redrive_id}")
        number = row["action_id"]
        about = msgspec.structs.replace(action, tenant_id=row["tenant_id"], subject=str(number))
        return number, await ledger.stop_redrive(number, about)

    number, stopped = _with_ledger(blueprint, config, work)
    if as_json:
        print_json({"redrive": number, "stopped": stopped})
        return
    if number is None:
        typer.echo("No redrive waits.")
        return
    typer.echo(f"Redrive {number} is stopped; {counted(stopped, 'route')} as before.")


async def _running(ledger: Ledger) -> dict[str, Any] | None:
    """The newest redrive of which something waits."""
    rows, _ = await ledger.actions({"action": "redrive"}, PAGE, 0)
    waiting = {one["action_id"] for one in await ledger.redriven([row["action_id"] for row in rows]) if one["waiting"]}
    return next((row for row in rows if row["action_id"] in waiting), None)


def _tell(found: FailedCounts, redriven: int, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        said = {"found": found.total, "redriven": redriven, "dry_run": dry_run, "suppressed": found.suppressed}
        print_json(said)
        return
    held = f"; {found.suppressed} stay, because their address is suppressed" if found.suppressed else ""
    typer.echo(
        f"{counted(found.total, 'dead letter')} found, {redriven} redriven" + (" (dry run)" if dry_run else "") + held
    )


def _allowed(blueprint: Blueprint, config: Config, provider: str | None) -> Settings:
    settings = load(blueprint, config, needs="ledger")
    if settings.ledger.replay == "new_intent":
        raise NoSuchDeadLetter(
            f"blueprint {settings.blueprint} never changes a dead letter: publish a new intent with a new idempotency "
            "key (`carillon galaxy dead-letters` prints the command), or set ledger.replay"
        )
    known = from_settings.provider_names(settings)
    if provider is not None and provider not in known:
        raise NoSuchDeadLetter(f"--provider {provider}: there is no such provider; known: {', '.join(known)}")
    return settings


def per_second(rate: str | None) -> float | None:
    """The number of `--rate`; None without it."""
    if rate is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(?:/s)?", rate.strip())
    if found is None or float(found[1]) <= 0:
        raise NoSuchDeadLetter(f"--rate {rate}: write how many a second, e.g. 20/s")
    return float(found[1])


def _action(named: list[str], filters: dict[str, Any], reason: str, rate: float | None) -> AdminAction:
    detail: dict[str, Any] = {"filters": filters, "ratePerSecond": rate}
    if named:
        detail["chosen"] = len(named)
    return AdminAction(
        actor=f"cli:{who()}",
        action="redrive",
        reason=reason,
        subject=named[0] if len(named) == 1 else None,
        detail=detail,
    )


async def _redrive(
    ledger: Ledger, chosen: dict[str, Any], counts: FailedCounts, how: RedrivePlan, action: AdminAction
) -> int:
    about = msgspec.structs.replace(action, detail={**action.detail, "matched": counts.total})
    with Progress(console=Console(stderr=True, emoji=False), disable=counts.total <= PAGE) as progress:
        bar = progress.add_task("redriving", total=counts.total)
        done = await redrive_failed(
            ledger, chosen, how, about, counts, progress=lambda number: progress.advance(bar, number)
        )
    return done.count


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The row without its place in the list, which is for cursors only."""
    return {name: value for name, value in row.items() if name != "place"}


def _time(unix_ms: int | None) -> str:
    return "" if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
