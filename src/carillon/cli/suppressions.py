"""`carillon suppressions`: list, add and lift suppressions."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from carillon.cli.by_hand import confirmed, settings_of_ledger, who, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json, print_table
from carillon.cli.words import counted
from carillon.compose import Ledger
from carillon.config.settings import Settings
from carillon.domain.admin import AdminAction
from carillon.domain.errors import CarillonError
from carillon.domain.suppressions import SHARED, Suppression, SuppressionKind, unfit_suppression

app = typer.Typer(help="List, add and lift suppressions: addresses to which nothing is sent.", no_args_is_help=True)
Result = TypeVar("Result")
PAGE = 200
MOST_DAYS = 36_500
_WIDE = 100
_LONG = frozenset({"address", "reason"})
_HEADINGS = ("id", "channel", "address", "tenant", "kind", "since", "until", "reason")
_DATE = len("2026-01-31")

Channel = Annotated[str | None, typer.Option(help="Only this channel.")]
Address = Annotated[str | None, typer.Option(help="Only this address.")]
Tenant = Annotated[str | None, typer.Option(help="Only suppressions of this tenant.")]
Kind = Annotated[SuppressionKind | None, typer.Option(help="Only this kind.")]
Source = Annotated[str | None, typer.Option(help="Only of this origin: delivery, receipt, unsubscribe or operator.")]
Shared = Annotated[bool, typer.Option("--shared", help="Only those that hold for every tenant.")]


class NoSuchSuppression(CarillonError):
    """The options name no suppression."""


def _with_ledger(blueprint: Blueprint, config: Config, work: Callable[[Ledger], Awaitable[Result]]) -> Result:
    return with_ledger(settings_of_ledger(blueprint, config), work)


def _filters(tenant: str | None, *, shared: bool, **given: str | None) -> dict[str, Any]:
    if shared and tenant is not None:
        raise NoSuchSuppression("--tenant and --shared exclude each other: a shared suppression has no tenant")
    whose = {"tenant_id": SHARED if shared else tenant} if shared or tenant is not None else {}
    return {name: str(value) for name, value in given.items() if value is not None} | whose


async def _noted(ledger: Ledger, action: str, row: dict[str, Any]) -> None:
    """Who did it, in the audit trail: by the suppression's number, because the trail holds no address."""
    if "api" not in await ledger.parts():
        # The ledger of galaxy has no trail.
        return
    whose, number, detail = row["tenant_id"] or None, str(row["suppression_id"]), {"channel": row["channel"]}
    await ledger.note_action(AdminAction(actor=who(), action=action, tenant_id=whose, subject=number, detail=detail))


async def _lifted(ledger: Ledger, row: dict[str, Any]) -> bool:
    done = await ledger.unsuppress(row["channel"], row["address"], row["tenant_id"])
    if done:
        await _noted(ledger, "unsuppress", row)
    return done


@app.command("list")
def list_(  # noqa: PLR0917 - a command line has many options
    channel: Channel = None,
    address: Address = None,
    kind: Kind = None,
    source: Source = None,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="How many to show.")] = 50,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    shared: Shared = False,
    as_json: AsJson = False,
) -> None:
    """List suppressions in force, newest first; for one tenant and address also the one that holds for every tenant."""
    filters = _filters(tenant, shared=shared, channel=channel, address=address, kind=kind, source=source)
    rows, total = _with_ledger(blueprint, config, lambda ledger: ledger.suppressions(filters, limit, 0))
    rows = [_without_total(row) for row in rows]
    if as_json:
        print_json({"items": rows, "total": total})
        return
    console = Console(emoji=False)
    print_table(_table(rows, total, wide=console.width >= _WIDE), console)


def _table(rows: list[dict[str, Any]], total: int, *, wide: bool) -> Table:
    """What fits beside an address: `--json` has all of it."""
    told = [
        {
            "id": str(row["suppression_id"]),
            "channel": row["channel"],
            "address": row["address"],
            "tenant": row["tenant_id"] or "every tenant",
            "kind": row["kind"],
            "since": _time(row["created_at"])[:_DATE],
            "until": _time(row["expires_at"])[:_DATE] or "lifted",
            "reason": row["reason"],
        }
        for row in rows
    ]
    # Most hold for every tenant: a column that says so in every row would take the place of the addresses.
    left_out = set() if wide else {"since"} | ({"tenant"} if not any(row["tenant_id"] for row in rows) else set())
    table = Table(title=f"{len(rows)} of {counted(total, 'suppression')}", title_justify="left")
    headings = [name for name in _HEADINGS if name not in left_out]
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading not in _LONG)
    for one in told:
        table.add_row(*(one[heading] for heading in headings))
    return table


@app.command()
def add(  # noqa: PLR0917 - a command line has many options
    channel: Annotated[str, typer.Argument(help="The channel, such as email or sms.")],
    address: Annotated[str, typer.Argument(help="The address to which nothing more is sent.")],
    reason: Annotated[str, typer.Option(help="The reason; administrators see it.")] = "added from the command line",
    tenant: Annotated[str | None, typer.Option(help="The tenant; by default it holds for every tenant.")] = None,
    days: Annotated[
        float | None, typer.Option(min=0.0, help="For how many days; by default until it is lifted.")
    ] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Send nothing more to an address; for a suppressed address the later end counts."""
    settings = settings_of_ledger(blueprint, config)
    _refuse_unfit(settings, channel, address)
    if days is not None and days > MOST_DAYS:
        raise NoSuchSuppression(f"--days: at most {MOST_DAYS:,}; without it, it holds until it is lifted")
    seconds = None if days is None else timedelta(days=days).total_seconds()
    asked = Suppression(channel, address, tenant or SHARED, reason, "operator", seconds)

    async def work(ledger: Ledger) -> dict[str, Any]:
        await ledger.suppress([asked])
        rows, _ = await ledger.suppressions(
            {"channel": channel, "address": address, "tenant_id": asked.tenant_id}, PAGE, 0
        )
        row = next((_without_total(row) for row in rows if row["tenant_id"] == asked.tenant_id), {})
        if row:
            await _noted(ledger, "suppress", row)
        return row

    row = with_ledger(settings, work)
    if not row:
        raise NoSuchSuppression("the suppression ended before it could be shown; take a longer --days")
    if as_json:
        print_json(row)
        return
    end = _time(row["expires_at"]) or "it is lifted"
    typer.echo(f"{row['suppression_id']}: nothing more is sent to {row['address']} by {channel} until {end}")


def _refuse_unfit(settings: Settings, channel: str, address: str) -> None:
    if channel not in settings.channels:
        known = ", ".join(sorted(settings.channels))
        raise NoSuchSuppression(f"{channel}: there is no such channel; known: {known}")
    wrong = unfit_suppression(channel, address)
    if wrong is not None:
        raise NoSuchSuppression(wrong[1])


@app.command()
def lift(  # noqa: PLR0917 - a command line has many options
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Numbers that `list` shows; leave them out with --all.")
    ] = None,
    channel: Channel = None,
    address: Address = None,
    kind: Kind = None,
    source: Source = None,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    shared: Shared = False,
    everything: Annotated[bool, typer.Option("--all", help="Every suppression that the filters match.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send to addresses again; skipped notifications are not sent later."""
    if everything == bool(numbers):
        raise NoSuchSuppression("name numbers, or use --all with or without filters")
    filters = _filters(tenant, shared=shared, channel=channel, address=address, kind=kind, source=source)

    async def work(ledger: Ledger) -> tuple[int, int]:
        rows = await (_numbered(ledger, numbers) if numbers else _matching(ledger, filters))
        question = f"Lift {len(rows)} suppressions?"
        if dry_run or not rows or not confirmed(len(rows), question, yes=yes or as_json):
            return len(rows), 0
        return len(rows), sum([await _lifted(ledger, row) for row in rows])

    found, lifted = _with_ledger(blueprint, config, work)
    if as_json:
        print_json({"found": found, "lifted": lifted, "dry_run": dry_run})
        return
    typer.echo(f"{counted(found, 'suppression')} found, {lifted} lifted" + (" (dry run)" if dry_run else ""))


async def _numbered(ledger: Ledger, numbers: list[int]) -> list[dict[str, Any]]:
    found = {number: await ledger.suppression(number) for number in numbers}
    missing = ", ".join(str(number) for number, row in found.items() if row is None)
    if missing:
        raise NoSuchSuppression(f"no suppression in force has the number {missing}; `carillon suppressions list`")
    return [row for row in found.values() if row is not None]


async def _matching(ledger: Ledger, filters: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    total = 1
    while len(rows) < total:
        page, total = await ledger.suppressions(filters, PAGE, len(rows))
        rows += page
        if not page:
            break
    # One tenant and one address also show the suppression of every tenant, which is not this tenant's to lift.
    return [row for row in rows if filters.get("tenant_id") in {None, row["tenant_id"]}]


def _without_total(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in {"total", "place"}}


def _time(unix_ms: int | None) -> str:
    return "" if unix_ms is None else datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
