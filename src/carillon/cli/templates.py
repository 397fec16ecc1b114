"""`carillon templates`: check a folder of templates, write it into the ledger, and list the ledger's templates."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from carillon.cli.by_hand import with_ledger
from carillon.cli.options import AsJson, Blueprint, Config
from carillon.compose import Ledger
from carillon.config.reading import load
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.domain.templates import Draft, StoredTemplate, gaps, unfit_name
from carillon.intake.templates import FileTemplates
from carillon.system import new_id

app = typer.Typer(help="Check, push and list templates.", no_args_is_help=True)
MOST = 1000

Folder = Annotated[Path, typer.Argument(help="A folder of <key>/<locale>/<channel>/text.tmpl.")]
Tenant = Annotated[str | None, typer.Option(help="The tenant of the templates; by default they are for all tenants.")]


class UnfitTemplates(CarillonError):
    """The folder has a template that cannot be used."""


@app.command()
def check(folder: Folder, blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Read every template of a folder; exit 1 if one is wrong or missing in a supported locale."""
    settings = load(blueprint, config)
    files, complaints = _read(folder)
    complaints += _unknown_channels(files, settings.channels)
    missing = [str(gap) for gap in gaps([(None, *name) for name in files.all()], settings.locale.supported)]
    if as_json:
        typer.echo(json.dumps({"templates": files.count(), "unfit": complaints, "missing": missing}))
    else:
        for line in (*complaints, *(f"missing: {gap}" for gap in missing)):
            typer.echo(line)
        typer.echo(f"{files.count()} templates read, {len(complaints)} unfit, {len(missing)} missing")
    if complaints or missing:
        raise typer.Exit(1)


@app.command()
def push(
    folder: Folder,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the templates of a folder into the ledger; an unchanged template gets no new version."""
    files, complaints = _read(folder)
    if complaints:
        raise UnfitTemplates("; ".join(complaints))
    drafts = [Draft.of(template, tenant) for template in files.all().values()]
    told = with_ledger(load(blueprint, config), lambda ledger: _push(ledger, drafts, dry_run=dry_run))
    if as_json:
        typer.echo(json.dumps({"items": told, "dryRun": dry_run}))
        return
    for item in told:
        if item["written"]:
            typer.echo(f"{item['templateKey']}/{item['locale']}/{item['channel']}: version {item['version']}")
    written = sum(item["written"] for item in told)
    typer.echo(f"{written} written, {len(told) - written} unchanged" + (" (dry run)" if dry_run else ""))


@app.command("list")
def list_(  # noqa: PLR0917 - a command line has many options
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    locale: Annotated[str | None, typer.Option(help="Only this locale.")] = None,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the templates in the ledger, each in the version in use."""
    given = {"template_key": key, "channel": channel, "locale": locale, "tenant_id": tenant}
    filters = {name: value for name, value in given.items() if value is not None}
    found, total = with_ledger(load(blueprint, config), lambda ledger: ledger.list_templates(filters, MOST, 0))
    if as_json:
        typer.echo(json.dumps({"items": [msgspec.to_builtins(one) for one in found], "total": total}))
        return
    table = Table(title=f"{len(found)} of {total} templates", title_justify="left")
    for heading in ("key", "channel", "locale", "version", "tenant", "in use"):
        table.add_column(heading, overflow="fold")
    for one in found:
        used = "yes" if one.is_active else "no"
        table.add_row(one.template_key, one.channel, one.locale, str(one.version), one.tenant_id or "", used)
    Console(emoji=False).print(table)


def _read(folder: Path) -> tuple[FileTemplates, list[str]]:
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder")
    files = FileTemplates.read(folder)
    complaints = []
    for code, channel, locale in files.all():
        why = unfit_name(code, locale)
        if why is not None:
            complaints.append(f"{code}/{locale}/{channel}: {why}")
    return files, complaints


def _unknown_channels(files: FileTemplates, channels: Collection[str]) -> list[str]:
    """The templates of channels that do not exist, such as a misspelt folder."""
    known = ", ".join(sorted(channels))
    return [
        f"{code}/{locale}/{channel}: there is no channel {channel}; there are {known}"
        for code, channel, locale in files.all()
        if channel not in channels
    ]


async def _push(ledger: Ledger, drafts: list[Draft], *, dry_run: bool) -> list[dict[str, Any]]:
    current = await ledger.current_templates([(draft.tenant_id, draft.template_key) for draft in drafts])
    held = {(one.template_key, one.channel, one.locale): one for one in current}
    told: list[dict[str, Any]] = []
    with Progress(console=Console(stderr=True, emoji=False), transient=True) as progress:
        bar = progress.add_task("pushing", total=len(drafts))
        for draft in drafts:
            there = held.get((draft.template_key, draft.channel, draft.locale))
            told.append(await _push_one(ledger, draft, there, dry_run=dry_run))
            progress.advance(bar)
    return told


async def _push_one(ledger: Ledger, draft: Draft, there: StoredTemplate | None, *, dry_run: bool) -> dict[str, Any]:
    same = there is not None and _content(there) == _content(draft)
    version = there.version if there is not None else 0
    if not same:
        made = None if dry_run else await ledger.add_template(draft, new_id())
        version = version + 1 if made is None else made.version
    place = {"templateKey": draft.template_key, "channel": draft.channel, "locale": draft.locale}
    return {**place, "version": version, "written": not same}


def _content(draft: Draft) -> tuple[Any, ...]:
    return draft.subject, draft.body, draft.html, draft.default_variables, draft.category
