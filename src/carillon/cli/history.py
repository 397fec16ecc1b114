"""`carillon history`: volume, latency and failures, from ClickHouse."""

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from carillon.cli.by_hand import of_existing, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.cli.plots import bar
from carillon.compose.erasure import kept_at
from carillon.config.environment import duration
from carillon.config.reading import load
from carillon.domain.errors import CarillonError

app = typer.Typer(help="Show volume, latency and failures of the past, from ClickHouse.", no_args_is_help=True)
_BAR = 30
_DAY = 86_400.0

Since = Annotated[str, typer.Option(help="How far to look back, e.g. 90m, 24h or 7d.")]
Channel = Annotated[str, typer.Option(help="Only this channel.")]
Kind = Annotated[str, typer.Option("--type", help="Only this notification type.")]


class Every(StrEnum):
    """The span of one line of `volume`."""

    HOUR = "hour"
    DAY = "day"


class By(StrEnum):
    """How `latency` and `failures` group their lines."""

    TYPE = "type"
    CHANNEL = "channel"
    PROVIDER = "provider"
    HOUR = "hour"


class NoSuchTime(CarillonError):
    """`--since` is not a duration."""


@app.command()
def volume(  # noqa: PLR0917 - a command line has many options
    since: Since = "24h",
    by: Annotated[Every, typer.Option(help="One line per hour, or one per day.")] = Every.HOUR,
    channel: Channel = "",
    kind: Kind = "",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how many notifications ended in each hour or day, by outcome."""
    rows = _asked("volume", blueprint, config, by=by, since=since, channel=channel, type=kind)
    if as_json:
        print_json(rows)
        return
    table = _table(f"{sum(row['total'] for row in rows)} ended in {since}", by, "", "total")
    most = max((row["total"] for row in rows), default=0)
    for heading in ("published", "delivered", "dead letter", "skipped"):
        table.add_column(heading, justify="right")
    for row in rows:
        counts = (row[name] for name in ("total", "published", "delivered", "dead_letter", "skipped"))
        table.add_row(row["name"], _bar(row["total"], most, "green"), *map(str, counts))
    Console(emoji=False).print(table)


@app.command()
def latency(  # noqa: PLR0917 - a command line has many options
    since: Since = "24h",
    by: Annotated[By, typer.Option(help="What one line of the table stands for.")] = By.CHANNEL,
    channel: Channel = "",
    kind: Kind = "",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the milliseconds from acceptance to the provider's answer."""
    rows = _asked("latency", blueprint, config, by=by, since=since, channel=channel, type=kind)
    found = [_spread(row) for row in rows]
    if as_json:
        print_json(found)
        return
    table = _table(f"{sum(row['published'] for row in found)} published in {since}; milliseconds", by, "p99", "sent")
    slowest = max((row["p99"] for row in found), default=0)
    for heading in ("p50", "p90", "p95", "p99", "max"):
        table.add_column(heading, justify="right")
    for row in found:
        numbers = (row[name] for name in ("published", "p50", "p90", "p95", "p99", "max"))
        table.add_row(row["name"], _bar(row["p99"], slowest, "cyan"), *map(str, numbers))
    Console(emoji=False).print(table)


@app.command()
def failures(  # noqa: PLR0917 - a command line has many options
    since: Since = "24h",
    by: Annotated[By, typer.Option(help="What one line of the table stands for.")] = By.PROVIDER,
    channel: Channel = "",
    kind: Kind = "",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show dead letters, their share of all routes, and the most frequent cause."""
    rows = _asked("failures", blueprint, config, by=by, since=since, channel=channel, type=kind)
    found = [{**row, "causes": list(row["causes"])} for row in rows]
    if as_json:
        print_json(found)
        return
    table = _table(f"{sum(row['failed'] for row in found)} given up in {since}", by, "", "failed")
    most = max((row["failed"] for row in found), default=0)
    for heading in ("of", "share", "cause"):
        table.add_column(heading, justify="left" if heading == "cause" else "right")
    for row in found:
        share = f"{100 * row['failed'] / row['total']:.1f} %"
        cause = ", ".join(row["causes"])
        table.add_row(
            row["name"], _bar(row["failed"], most, "red"), str(row["failed"]), str(row["total"]), share, cause
        )
    Console(emoji=False).print(table)


@app.command()
def rewind(
    since: Annotated[str, typer.Option(help="How far to go back, e.g. 24h or 7d.")],
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Copy the routes that ended since then to ClickHouse again; it counts none twice."""
    settings = of_existing(load(blueprint, config))
    kept_at(settings)
    to = datetime.now(UTC).timestamp() - _seconds(since)
    with_ledger(settings, lambda ledger: ledger.rewind_history(round(to * 1e6)))
    if as_json:
        print_json({"since": datetime.fromtimestamp(to, UTC).isoformat(timespec="seconds")})
        return
    typer.echo(f"the process that keeps history will copy the routes that ended in the last {since} again")


def _asked(question: str, blueprint: Blueprint, config: Config, *, since: str, **given: str) -> list[dict[str, Any]]:
    archive = kept_at(load(blueprint, config))
    asked = {name: str(value) for name, value in given.items()}
    return asyncio.run(archive.ask(question, seconds=round(_seconds(since)), **asked))


def _spread(row: dict[str, Any]) -> dict[str, Any]:
    p50, p90, p95, p99 = row["percentiles"]
    return {
        "name": row["name"],
        "published": row["published"],
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "max": row["slowest"],
    }


def _seconds(since: str) -> float:
    found = duration(since)
    if found is None or found <= 0:
        raise NoSuchTime(f"{since!r} is not a duration; write for example 90m, 24h or 7d")
    return min(found, 36_500 * _DAY)


def _table(title: str, by: str, plotted: str, counted: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(str(by), overflow="fold")
    table.add_column(plotted, no_wrap=True)
    table.add_column(counted, justify="right")
    return table


def _bar(value: int, most: int, style: str) -> Text:
    return Text(bar(value, most, _BAR), style=style)
