"""`carillon templates`: a folder of templates beside the ledger: check, diff, push, pull, preview and test-send."""

import asyncio
import json
import time
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.table import Table

from carillon.cli import template_folder
from carillon.cli.by_hand import read_ledger, who, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json, print_table
from carillon.cli.remote import HERE, Token, TokenFile, Url, bearer, call, token_of
from carillon.cli.words import counted
from carillon.compose import Ledger
from carillon.compose.messages import carry_rules, composer, zone_of
from carillon.compose.messages import templates as file_templates
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.content.sms import segments_of
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.domain.notifications import Message, Template
from carillon.domain.templates import Draft, LocaleRules, StoredTemplate, gaps, resolve_locale, warnings, written_as
from carillon.intake.jinja.formats import Person
from carillon.intake.parts import previewed, too_many_segments
from carillon.intake.render import render_message
from carillon.intake.templates import FRESH_SECONDS, FileTemplates
from carillon.system import SystemClock, new_id

app = typer.Typer(help="Check, compare, push, pull, preview and list templates.", no_args_is_help=True)
MOST = 1000

Folder = Annotated[Path, typer.Argument(help="A folder of <key>/<locale>/<channel>/text.tmpl or html.jinja.")]
Tenant = Annotated[str | None, typer.Option(help="The tenant of the templates; by default they are for all tenants.")]
Key = Annotated[str, typer.Argument(help="The template's key.")]
Locale = Annotated[str | None, typer.Option(help="The locale; by default that of the settings, else any.")]
Channel = Annotated[str | None, typer.Option(help="The channel; by default email, else any.")]
DataFile = Annotated[
    Path | None, typer.Option("--data", help="A JSON file of values; by default the template's sample.")
]


class UnfitTemplates(CarillonError):
    """The folder has a template that cannot be used."""


@app.command()
def check(folder: Folder, blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """Read every template of a folder; exit 1 if one is unfit or lacks a locale or translation, 2 if one is broken."""
    settings = load(blueprint, config, needs="nothing")
    faults: list[str] = []
    found, complaints = template_folder.read(folder, settings, faults=faults)
    missing = [str(gap) for gap in gaps([(None, *name) for name in _messages(found)], settings.locale.supported)]
    untranslated = template_folder.untranslated(found, settings)
    unfit = [*faults, *complaints]
    if as_json:
        told = {"templates": found.count(), "unfit": unfit, "missing": missing, "untranslated": untranslated}
        print_json(told)
    else:
        for fault in faults:
            typer.echo(f"carillon: {fault}", err=True)
        for line in (
            *complaints,
            *(f"missing: {gap}" for gap in missing),
            *(f"untranslated: {one}" for one in untranslated),
        ):
            typer.echo(line)
        counted = f"{len(unfit)} unfit, {len(missing)} missing, {len(untranslated)} untranslated"
        typer.echo(f"{found.count()} templates read, {counted}")
    if unfit or missing or untranslated:
        raise typer.Exit(2 if faults else 1)


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
    """Write the templates of a folder into the ledger, all or none; an unchanged template gets no new version.

    It returns when every running process uses them, a second later.
    """
    settings = load(blueprint, config, needs="ledger")
    drafts = _drafts(folder, settings, tenant)
    work = partial(_push, drafts=drafts, locale=settings.locale.default, dry_run=dry_run)
    # A dry run does not create a ledger either: every template would be new in it.
    told = (read_ledger(settings, work) or asyncio.run(work(None))) if dry_run else with_ledger(settings, work)
    written = sum(item["written"] for item in told)
    if written and not dry_run:
        # What comes next, a `test-send` in the same script, must not get the texts of before.
        time.sleep(FRESH_SECONDS)
    if as_json:
        print_json({"items": told, "dryRun": dry_run})
        return
    for item in told:
        if item["written"]:
            typer.echo(f"{item['templateKey']}/{item['locale']}/{item['channel']}: version {item['version']}")
    typer.echo(f"{written} written, {len(told) - written} unchanged" + (" (dry run)" if dry_run else ""))


@app.command()
def pull(
    folder: Annotated[Path, typer.Argument(help="The folder to write into; it is made if it is not there.")],
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the ledger's templates in use into a folder; files that are not templates stay."""
    settings = load(blueprint, config, needs="ledger")
    stored = read_ledger(settings, lambda ledger: _stored(ledger, tenant)) or []
    found: dict[str, str] = {}
    for one in stored:
        found |= template_folder.files_of(one, settings.locale.default)
    changed = template_folder.write(folder, found) if found else 0
    if as_json:
        print_json({"templates": len(stored), "changed": changed})
    else:
        typer.echo(f"{counted(len(stored), 'template')}, {counted(changed, 'file')} changed in {folder}")


@app.command()
def diff(
    folder: Folder,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what a push would change, as a unified diff; exit 1 if anything would change."""
    settings = load(blueprint, config, needs="ledger")
    drafts = _drafts(folder, settings, tenant)
    stored = read_ledger(settings, lambda ledger: _stored(ledger, tenant)) or []
    lines = template_folder.differences(stored, drafts, settings.locale.default)
    if as_json:
        print_json({"diff": lines})
    else:
        for line in lines or ["no differences"]:
            typer.echo(line)
    if lines:
        raise typer.Exit(1)


@app.command()
def preview(  # noqa: PLR0917 - a command line has many options
    folder: Folder,
    key: Key,
    channel: Channel = None,
    locale: Locale = None,
    data: DataFile = None,
    part: Annotated[
        Literal["subject", "text", "html"] | None, typer.Option(help="Only the subject, the text or the html.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant whose brand, locale and time zone it shows.")] = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Render a template of a folder with its sample, or with values of a file; exit 1 if it could not be sent."""
    settings = load(blueprint, config, needs="nothing")
    found, _ = template_folder.read(folder, settings)
    wished = locale or _locale_of(settings, tenant)
    template = _chosen(found, key, channel, wished, settings, strict=locale is not None)
    template = composer(settings).ready(template, found.usable, tenant)
    person = Person(written_as(wished, template.locale), zone_of(settings, tenant), SystemClock().wall())
    message = _previewed(template, _values(data), settings, person)
    shown = {"subject": message.subject, "text": message.text, "html": message.html}
    fields = _carried(template, message)
    if as_json:
        print_json({**shown, **fields, "warnings": warnings(template, message)})
    elif part is not None:
        typer.echo(shown[part] or "")
    else:
        texts = [message.subject, message.text, message.html]
        texts += [json.dumps(said, ensure_ascii=False, indent=2) for said in fields.values()]
        typer.echo("\n\n".join(text for text in texts if text))
    for warning in () if as_json else warnings(template, message):
        typer.echo(f"worth a look: {warning}", err=True)
    refusal = too_many_segments(message, template.channel, key, carry_rules(settings))
    if refusal is not None:
        typer.echo(f"it would be refused: {refusal}", err=True)
        raise typer.Exit(1)


def _locale_of(settings: Settings, tenant: str | None) -> str:
    """The locale of people of a tenant who have said none."""
    held = settings.tenant.get(tenant or "")
    return (held and held.default_locale) or settings.locale.default


def _previewed(template: Template, given: dict[str, Any] | None, settings: Settings, person: Person) -> Message:
    values = template.sample if given is None else given
    message = render_message(template, values, settings.templates.missing_variable, person)
    return previewed(message, template, values, carry_rules(settings))


def _carried(template: Template, message: Message) -> dict[str, Any]:
    """What a message carries or costs beside its texts."""
    segments = segments_of(message.text) if template.channel == "sms" else None
    carried = {"push": message.push, "inApp": message.in_app, "segments": segments}
    return {name: msgspec.to_builtins(said) for name, said in carried.items() if said is not None}


@app.command("test-send")
def send_sample(  # noqa: PLR0917 - a command line has many options
    context: typer.Context,
    key: Key,
    to: Annotated[str, typer.Option(help="The address of the channel, such as you@example.org.")],
    channel: Annotated[str, typer.Option(help="The channel.")] = "email",
    locale: Locale = None,
    data: DataFile = None,
    url: Url = HERE,
    token: Token = None,
    token_file: TokenFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Send a stored template with its sample to yourself, through a running Carillon."""
    headers = {**bearer(token_of(context, token, token_file)), "Content-Type": "application/json"}
    values = _values(data)
    values = _sample(url, headers, key, channel, locale) if values is None else values
    body = {"templateKey": key, "channel": channel, "recipient": to, "data": values, "locale": locale}
    answer = call(
        f"{url}/api/v1/notifications/send", headers, {name: value for name, value in body.items() if value is not None}
    )
    typer.echo(json.dumps(answer) if as_json else f"{key} goes to {to}: {answer['notificationId']}")


@app.command()
def examples(
    folder: Annotated[Path, typer.Argument(help="The folder to write into; files that are there stay.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Copy example templates in two languages into a folder: order, password, code, receipt, digest, incident."""
    with as_file(files("carillon.cli") / "examples") as source:
        written = template_folder.copy(source, folder)
    typer.echo(json.dumps({"files": written}) if as_json else f"{written} files written into {folder}")


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
    """List the templates in the ledger, each in the version in use, and those in the folders of the settings."""
    given = {"template_key": key, "channel": channel, "locale": locale, "tenant_id": tenant}
    filters = {name: value for name, value in given.items() if value is not None}
    settings = load(blueprint, config, needs="ledger")
    found, total = read_ledger(settings, lambda ledger: ledger.list_templates(filters, MOST, 0)) or ([], 0)
    files = [] if tenant else _in_folders(settings, (key, channel, locale))
    if as_json:
        held = [dict(zip(("templateKey", "channel", "locale"), name, strict=True)) for name in files]
        told = {"items": [msgspec.to_builtins(one) for one in found], "total": total, "inFolders": held}
        print_json(told)
        return
    table = Table(title=f"{len(found)} of {total} in the ledger, {len(files)} in folders", title_justify="left")
    for heading in ("key", "channel", "locale", "version", "tenant", "in use"):
        table.add_column(heading, overflow="fold")
    for one in found:
        used = "yes" if one.is_active else "no"
        table.add_row(one.template_key, one.channel, one.locale, str(one.version), one.tenant_id or "", used)
    for name in files:
        table.add_row(*name, "folder", "", "yes")
    print_table(table)


def _in_folders(settings: Settings, asked: tuple[str | None, ...]) -> list[tuple[str, str, str]]:
    """Key, channel and locale of the templates that come from folders."""
    return [
        name
        for name in file_templates(settings).all()
        if all(wanted in {None, held} for wanted, held in zip(asked, name, strict=True))
    ]


def _sample(url: str, headers: dict[str, str], key: str, channel: str, locale: str | None) -> dict[str, Any]:
    """The sample of the template that a send chooses; nothing if it has none."""
    asked = {"templateKey": key, "channel": channel, "locale": locale}
    given = {name: value for name, value in asked.items() if value is not None}
    return dict(call(f"{url}/api/v1/templates/render", headers, given)["sample"] or {})


def _values(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigurationError(f"--data {file}: the file cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--data {file}: {error}") from None


def _chosen(
    found: FileTemplates, key: str, channel: str | None, wished: str, settings: Settings, *, strict: bool
) -> Template:
    """The template that a send chooses, else any; with `strict` in no other language."""
    own = {(there, spoken): one for (code, there, spoken), one in found.all().items() if code == key}
    if not own:
        raise UnfitTemplates(f"the folder has no template {key}")
    channels = sorted({there for there, _ in own})
    chosen = channel or ("email" if "email" in channels else channels[0])
    locales = sorted(spoken for there, spoken in own if there == chosen)
    rules = LocaleRules(settings.locale.default, settings.locale.on_missing)
    spoken, language = resolve_locale(wished, locales, rules), wished.partition("-")[0]
    if not locales or (strict and (spoken or "").partition("-")[0] != language):
        raise UnfitTemplates(f"{key} exists for {', '.join(f'{spoken}/{there}' for there, spoken in sorted(own))}")
    return own[chosen, spoken or next(one for one in (language, *locales) if one in locales)]


def _messages(found: FileTemplates) -> list[tuple[str, str, str]]:
    """Key, channel and locale of every message: one that does not compile is not missing."""
    return [name for name, template in found.everything().items() if template.kind == "message"]


def _drafts(folder: Path, settings: Settings, tenant: str | None) -> list[Draft]:
    beneath = read_ledger(settings, lambda ledger: _shared(ledger, tenant))
    found, complaints = template_folder.read(folder, settings, beneath, tenant=tenant)
    if complaints:
        raise UnfitTemplates("; ".join(complaints))
    by = f"cli:{who()}"
    drafts = [Draft.of(template, tenant) for template in found.everything().values()]
    return [msgspec.structs.replace(draft, created_by=by) for draft in drafts]


async def _stored(ledger: Ledger, tenant: str | None) -> list[StoredTemplate]:
    """The templates in use of one tenant, or of all."""
    found: list[StoredTemplate] = []
    filters = {"is_active": True} if tenant is None else {"is_active": True, "tenant_id": tenant}
    while True:
        page, total = await ledger.list_templates(filters, MOST, len(found))
        found += page
        if len(found) >= total or not page:
            return [one for one in found if one.tenant_id == tenant]


async def _shared(ledger: Ledger, tenant: str | None) -> template_folder.Shared:
    """The layouts, partials and catalogues of the ledger that templates of a folder may use."""
    found = [one for whose in dict.fromkeys((None, tenant)) for one in await _stored(ledger, whose)]
    return {(one.template_key, one.channel, one.locale): one.template() for one in found if one.kind != "message"}


async def _push(ledger: Ledger | None, drafts: list[Draft], locale: str, *, dry_run: bool) -> list[dict[str, Any]]:
    names = [(draft.tenant_id, draft.template_key) for draft in drafts]
    current = [] if ledger is None else await ledger.current_templates(names)
    tenant = drafts[0].tenant_id if drafts else None
    held = {(one.template_key, one.channel, one.locale): one for one in current if one.tenant_id == tenant}
    pairs = [_with_names(draft, held.get((draft.template_key, draft.channel, draft.locale))) for draft in drafts]
    # What makes the same files is the same: a diff shows nothing else either.
    changed = [
        draft
        for draft, there in pairs
        if there is None or template_folder.files_of(there, locale) != template_folder.files_of(draft, locale)
    ]
    made = [] if dry_run or ledger is None else await ledger.add_templates(changed, new_id)
    versions = {(one.template_key, one.channel, one.locale): one.version for one in made}
    return [
        {
            "templateKey": draft.template_key,
            "channel": draft.channel,
            "locale": draft.locale,
            "version": versions.get(
                (draft.template_key, draft.channel, draft.locale), (there.version if there else 0) + (draft in changed)
            ),
            "written": draft in changed,
        }
        for draft, there in pairs
    ]


def _with_names(draft: Draft, there: StoredTemplate | None) -> tuple[Draft, StoredTemplate | None]:
    """A folder knows no name and no description of a template: those that the ledger has stay."""
    if there is None:
        return draft, None
    return msgspec.structs.replace(draft, name=there.name, description=there.description), there
