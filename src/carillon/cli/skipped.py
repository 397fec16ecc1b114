"""`carillon skipped`: evaluate again what a gate skipped, and stop a redrive."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from carillon.cli.by_hand import confirmed, settings_of_ledger, who, with_ledger
from carillon.cli.dead_letters import per_second, stop
from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.cli.words import counted
from carillon.compose import Ledger, from_settings
from carillon.config.settings import Settings
from carillon.domain.admin import AdminAction
from carillon.domain.errors import CarillonError
from carillon.domain.skipped import GATES, SkippedPage
from carillon.upkeep.redriving import redrive_skipped, skipped_action, skipped_plan

app = typer.Typer(help="Evaluate again what a gate skipped.", no_args_is_help=True)
Why = Annotated[str, typer.Option("--reason", help="The reason for the audit trail.")]


class NothingSkipped(CarillonError):
    """The options name nothing that can be evaluated again."""


@app.command()
def redrive(  # noqa: PLR0917 - a command line has many options
    notification_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of notifications; leave them out with --all.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(help="Only what this gate skipped: suppressed, category, throttle.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    template: Annotated[str | None, typer.Option(help="Only this template.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this person, by user id.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    since: Annotated[str | None, typer.Option(help="Skipped not before this time, e.g. 2030-01-01T08:00:00Z.")] = None,
    before: Annotated[str | None, typer.Option(help="Skipped before this time.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N/s", help="At most this many a second, e.g. 20/s.")] = None,
    reason: Why = "redriven from the command line",
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Everything that the filters match.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation before many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let skipped routes pass the gates as they stand now; what a gate holds still stays skipped."""
    if everything == bool(notification_ids):
        raise NothingSkipped("name notification ids, or use --all with or without filters")
    given: dict[str, Any] = {"channel": channel, "gate": _known(gate), "tenant_id": tenant}
    given |= {"notification_type": template, "user_id": user}
    given |= {"skipped_after_ms": _ms(since, "--since"), "skipped_before_ms": _ms(before, "--before")}
    given["notification_ids"] = sorted(set(notification_ids or [])) or None
    filters, per = {name: value for name, value in given.items() if value is not None}, per_second(rate)
    settings = _settings(blueprint, config)
    action = skipped_action(actor=f"cli:{who()}", reason=reason, filters=filters, rate=per)
    work = _work(settings, filters, action, dry_run=dry_run, yes=yes or as_json, rate=per)
    _tell(with_ledger(settings, work), dry_run=dry_run, as_json=as_json)


def _work(
    settings: Settings, filters: dict[str, Any], action: AdminAction, *, dry_run: bool, yes: bool, rate: float | None
) -> Callable[[Ledger], Awaitable[SkippedPage]]:
    async def work(ledger: Ledger) -> SkippedPage:
        lanes, categories = from_settings.lanes(settings), from_settings.categories(settings)
        found = await redrive_skipped(ledger, filters, skipped_plan(lanes, categories, dry_run=True), action)
        number = sum(found.matched.values()) - sum(found.held.values())
        if dry_run or not number or not confirmed(number, f"Redrive {counted(number, 'skipped route')}?", yes=yes):
            return found
        return await redrive_skipped(ledger, filters, skipped_plan(lanes, categories, rate=rate), action)

    return work


app.command()(stop)


def _tell(found: SkippedPage, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        said = {"found": sum(found.matched.values()), "redriven": found.redriven, "dry_run": dry_run}
        print_json(said | {"by_gate": found.matched, "held": found.held, "action": found.action_id})
        return
    held = "".join(f"; {number} stay, held by {gate}" for gate, number in sorted(found.held.items()))
    noted = f"; redrive {found.action_id}" if found.action_id is not None else ""
    matched = counted(sum(found.matched.values()), "skipped route")
    typer.echo(f"{matched} found, {found.redriven} redriven" + (" (dry run)" if dry_run else "") + held + noted)


def _settings(blueprint: Blueprint, config: Config) -> Settings:
    settings = settings_of_ledger(blueprint, config)
    if settings.ledger.replay == "new_intent":
        raise NothingSkipped(f"blueprint {settings.blueprint} sends nothing again: publish a new intent")
    return settings


def _known(gate: str | None) -> str | None:
    if gate is not None and gate not in GATES:
        raise NothingSkipped(f"--gate {gate}: only {', '.join(GATES)} can be evaluated again")
    return gate


def _ms(moment: str | None, option: str) -> int | None:
    if moment is None:
        return None
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise NothingSkipped(f"{option} {moment}: write a time with an offset, such as 2030-01-01T08:00:00Z")
    return round(found.timestamp() * 1000)
