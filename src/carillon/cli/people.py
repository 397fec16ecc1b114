"""`carillon people`: preferences, when a person's messages go, everything about them, and their erasure."""

import datetime as dt
import json
import time
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import typer

from carillon.border import strict_loads
from carillon.cli.by_hand import confirmed, settings_of_ledger, who, with_ledger
from carillon.cli.options import AsJson, Blueprint, Config, print_json
from carillon.cli.rehearse import spelled
from carillon.cli.remote import NOT_FOUND, addresses_in, status_of
from carillon.compose import Ledger
from carillon.compose.erasure import places_beside, places_outside
from carillon.compose.from_settings import categories, links
from carillon.compose.ledger import parts_needed
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain.errors import BadIntent, ConfigurationError
from carillon.domain.people import Preferences, QuietHours, next_off_days, quiet_until
from carillon.intake.people import profile_of
from carillon.ledger.opening import address_file
from carillon.system import SystemClock
from carillon.upkeep.api.preferences import PreferencesBody, QuietView, change_of, preferences_view, quiet_view
from carillon.upkeep.consent.rights import erase as erase_person
from carillon.upkeep.consent.rights import erasure_view, exported
from carillon.web.request import convert

app = typer.Typer(
    help="A person's preferences and page, when messages go; export or erase everything.", no_args_is_help=True
)

PersonId = Annotated[str, typer.Argument(metavar="ID", help="A user's id, or email:ADDRESS for a person without one.")]
_TOLD_EACH = 5000
_NEXT_DAYS = 5
At = Annotated[
    str | None, typer.Option("--at", help="As if it were this time; without an offset on the person's clock.")
]
Tenant = Annotated[str | None, typer.Option(help="The person's tenant.")]


def _settings_with_people(blueprint: str | None, config: Any) -> Settings:  # noqa: ANN401 - the option's own type
    settings = settings_of_ledger(blueprint, config)
    if "api" not in parts_needed(settings):
        raise ConfigurationError(f"the blueprint {settings.blueprint} keeps no preferences of people: nothing waits")
    return settings


class PersonQuiet(msgspec.Struct, kw_only=True, rename="camel"):
    """When a message to a person goes, and why not at once."""

    user_id: str
    tenant_id: str | None
    time_zone: str
    quiet_hours: QuietView
    counts: bool
    """Whether quiet hours delay messages in these settings."""
    holidays: list[str]
    """The next days of the person's calendar."""
    at: str
    goes_at: str
    because: str
    never_waits: list[str]


@app.command()
def quiet(
    person: PersonId,
    tenant: Tenant = None,
    at: At = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show a person's quiet hours and holidays, and when a message sent now would go."""
    settings = _settings_with_people(blueprint, config)
    found = with_ledger(settings, lambda ledger: ledger.preferences([(tenant, person)]))[0]
    view = person_quiet(settings, found or Preferences(tenant_id=tenant, user_id=person), at)
    if as_json:
        return print_json(msgspec.to_builtins(view))
    return _say_quiet(view, settings)


def person_quiet(settings: Settings, said: Preferences, at: str | None) -> PersonQuiet:
    """The answer for a person's preferences, by the rule that acceptance follows."""
    profile = profile_of(said, settings.preferences.holidays)
    hours = profile.quiet_hours
    zone = ZoneInfo(said.time_zone or (hours.timezone if hours else None) or "UTC")
    now = _moment(at, zone)
    # Where a directory says how people are reached, it alone does.
    counts = settings.preferences.quiet_hours and settings.directory is None
    until = quiet_until(hours, now) if counts and hours is not None else None
    off = () if hours is None or not hours.enabled else hours.off_days
    urgent = [f"the category {name}" for name, one in settings.categories.items() if one.urgent]
    return PersonQuiet(
        user_id=said.user_id,
        tenant_id=said.tenant_id,
        time_zone=str(zone),
        quiet_hours=quiet_view(said),
        counts=counts,
        holidays=[day.isoformat() for day in next_off_days(off, _day(now, zone), _NEXT_DAYS)],
        at=_spelled(now, zone),
        goes_at=_spelled(now if until is None else until, zone),
        because=_because(settings, hours, counts=counts, waits=until is not None),
        never_waits=["the priority high", "synchronous sends", *urgent],
    )


def _because(settings: Settings, hours: QuietHours | None, *, counts: bool, waits: bool) -> str:
    if hours is None or not hours.enabled:
        return "the person has no quiet hours"
    if not counts and settings.directory is not None:
        return "a directory says how people are reached: their quiet hours do not count"
    if not counts:
        return "preferences.quiet_hours is false: nothing waits"
    return "quiet hours or a holiday" if waits else "it is not quiet now"


def _moment(at: str | None, zone: ZoneInfo) -> float:
    """Unix seconds; a time without an offset is on the person's clock."""
    if at is None:
        return time.time()
    try:
        moment = dt.datetime.fromisoformat(at)
    except ValueError:
        raise ConfigurationError(f"--at: {at!r} is not a time such as 2026-12-24T22:30 or 2026-12-24T22:30Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _day(unix_seconds: float, zone: ZoneInfo) -> dt.date:
    return dt.datetime.fromtimestamp(unix_seconds, zone).date()


def _spelled(unix_seconds: float, zone: ZoneInfo) -> str:
    return dt.datetime.fromtimestamp(unix_seconds, zone).isoformat(timespec="minutes")


def _say_quiet(view: PersonQuiet, settings: Settings) -> None:
    hours = view.quiet_hours
    if not hours.enabled:
        typer.echo("quiet hours  none")
    else:
        days = f", beginning on {', '.join(hours.days)}" if hours.days else ", every day"
        typer.echo(f"quiet hours  {hours.start_time} to {hours.end_time} {hours.timezone}{days}")
        if hours.holidays is not None:
            known = hours.holidays in settings.preferences.holidays
            nothing = "no day is left" if known else "the settings have no such calendar: no holiday counts"
            typer.echo(f"holidays     {hours.holidays}: {', '.join(view.holidays) or nothing}")
    typer.echo(f"time zone    {view.time_zone}")
    seconds = dt.datetime.fromisoformat(view.goes_at).timestamp() - dt.datetime.fromisoformat(view.at).timestamp()
    when = f"at {view.goes_at}, after {spelled(seconds)}" if seconds else "at once"
    typer.echo(f"A message sent at {view.at} would go {when}: {view.because}.")
    typer.echo(f"Never waiting: {', '.join(view.never_waits)}.")


@app.command()
def preferences(
    person: PersonId,
    change: Annotated[str | None, typer.Option(help="A JSON object as PATCH /api/v1/preferences takes it.")] = None,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="With --change: forget everything else.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a person has chosen and what holds: categories, channels, contacts, language; or change it."""
    if replace and change is None:
        raise ConfigurationError("--replace goes with --change")
    settings = _settings_with_people(blueprint, config)
    known = categories(settings)
    calendars = tuple(settings.preferences.holidays)

    async def work(ledger: Ledger) -> Preferences:
        if change is None:
            (held,) = await ledger.preferences([(tenant, person)])
            return held or Preferences(tenant_id=tenant, user_id=person)
        body = convert(_json(change), PreferencesBody)
        wish = change_of(body, known.of(tenant), calendars, replace=replace)
        return await ledger.change_preferences(tenant, person, wish)

    view = msgspec.to_builtins(preferences_view(with_ledger(settings, work), known))
    if as_json:
        return print_json(view)
    return _say_preferences(view)


def _json(change: str) -> object:
    try:
        return strict_loads(change)
    except BadIntent as error:
        raise ConfigurationError(f"--change: {str(error).removeprefix('body ')}") from None


def _say_preferences(view: dict[str, Any]) -> None:
    for name, ways in view["categories"].items():
        on = ", ".join(channel for channel, wanted in ways.items() if wanted) or "nothing"
        typer.echo(f"category  {name}: {on}{' (required)' if name in view['required'] else ''}")
    off = [channel for channel, wish in view["channels"].items() if not wish["isEnabled"]]
    typer.echo(f"off       {', '.join(off) or 'no channel'}")
    for kind, address in view["contacts"].items():
        typer.echo(f"contact   {kind}: {address}")
    typer.echo(f"language  {view['preferredLocale'] or 'none'}")
    typer.echo(f"time zone {view['timeZone'] or 'none'}")
    typer.echo("`carillon people quiet` shows the quiet hours.")


@app.command()
def link(
    person: PersonId,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Make a link to a person's page, for that person only: who has it can change the preferences there."""
    # Without the ledger of these settings nobody serves the page: the key would be another one's.
    settings = settings_of_ledger(blueprint, config)
    made = links(settings)
    if not made.works:
        raise ConfigurationError("consent.keys: a link needs a key; openssl rand -hex 32")
    if settings.consent.url is None and not settings.http.port:
        raise ConfigurationError("consent.url: write the public URL of the program, which links begin with")
    url, until = made.page(tenant, person, time.time(), "")
    _warn_of_other_keys(settings, url)
    expires_at = dt.datetime.fromtimestamp(until, dt.UTC).isoformat().replace("+00:00", "Z")
    if as_json:
        return print_json({"url": url, "expiresAt": expires_at})
    return typer.echo(url)


def _warn_of_other_keys(settings: Settings, url: str) -> None:
    """Say that the process on this ledger does not open the link, for example because of a file that it was given."""
    file = address_file(settings.ledger.url)
    address = next(iter(addresses_in(file) if file else []), None)
    if address is None:
        return
    if status_of(f"{address}/u/{url.rpartition('/')[2]}") == NOT_FOUND:
        said = f"warning: {address} does not open this link: make it with the settings of that process (--config)"
        typer.echo(said, err=True)


@app.command()
def holidays(blueprint: Blueprint = None, config: Config = None, *, as_json: AsJson = False) -> None:
    """List the calendars of holidays of the settings, which people name in their quiet hours."""
    settings = load(blueprint, config, needs="nothing")
    calendars = settings.preferences.holidays
    today = dt.datetime.now(dt.UTC).date()
    coming = {
        name: [day.isoformat() for day in next_off_days(days, today, _NEXT_DAYS)] for name, days in calendars.items()
    }
    if as_json:
        return print_json(
            {"items": [{"name": name, "days": calendars[name], "next": coming[name]} for name in calendars]}
        )
    if not calendars:
        return typer.echo("The settings have no calendar: preferences.holidays is empty.")
    for name, days in calendars.items():
        typer.echo(f"{name}: {', '.join(days)}")
        typer.echo(f"  next: {', '.join(coming[name]) or 'none'}")
    return None


@app.command()
def export(person: PersonId, tenant: Tenant = None, blueprint: Blueprint = None, config: Config = None) -> None:
    """Print everything about a person as lines of JSON; the last line is `end`. Progress goes to stderr."""

    async def work(ledger: Ledger) -> None:
        count = 0
        async for thing in exported(ledger, tenant, person):
            typer.echo(json.dumps(thing, ensure_ascii=False))
            count += 1
            if count % _TOLD_EACH == 0:
                typer.echo(f"{count:,} lines", err=True)
        typer.echo(f"{count:,} lines, whole", err=True)

    with_ledger(settings_of_ledger(blueprint, config), work)


@app.command()
def erase(
    person: PersonId,
    tenant: Tenant = None,
    blueprint: Blueprint = None,
    config: Config = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person: notifications, preferences, streams, history; exit 1 if something could not be reached."""
    settings = settings_of_ledger(blueprint, config, "everything")
    if not confirmed(2, f"Erase everything about {person}? Nobody can take that back.", yes=yes or as_json):
        raise typer.Exit(1)
    places = places_beside(settings)
    clock = SystemClock()
    found = with_ledger(
        settings, lambda ledger: erase_person(ledger, clock, tenant, person, actor=who(), places=places)
    )
    outside = places_outside(settings)
    view = msgspec.to_builtins(erasure_view(found, outside))
    if as_json:
        print_json(view)
    else:
        for table, rows in sorted(found.removed.items()):
            if rows:
                typer.echo(f"{table}: {rows}")
        typer.echo(f"suppressions kept as salted hashes: {found.suppressions_kept}")
        for one in outside:
            typer.echo(f"outside: {one.place} may still hold {one.holds}, {one.kept}")
        typer.echo("finished" if found.finished else f"unfinished: {', '.join(found.unfinished)}; run it again")
    if not found.finished:
        raise typer.Exit(1)
