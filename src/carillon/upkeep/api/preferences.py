"""Preferences over HTTP: people read and write their own, administrators anybody's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.addresses import unfit
from carillon.domain.consent import NAME, Categories, Category, refusal, switched_off
from carillon.domain.people import (
    CONTACTS,
    WEEKDAYS,
    PreferenceChange,
    PreferenceLedger,
    Preferences,
    QuietHours,
    under_api_names,
)
from carillon.web import LONGEST_PERSON, About, Answer, Callers, Endpoint, Problem, Reply, Request, in_path, in_query
from carillon.web.problems import Detail, rfc3339_ms
from carillon.web.request import convert

CHANNELS = ("email", "sms", "push", "inApp", "webhook")
Locale = Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}\Z", examples=["en-US"])]
Contact = Annotated[str, Meta(min_length=1, max_length=2000)]
Time = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\Z", examples=["22:00"])]
Zone = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_+/-]{1,64}\Z", examples=["Europe/Berlin"])]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CategoryName = Annotated[str, Meta(pattern=NAME)]
CategoryWishes = dict[Literal["email", "sms", "push", "inApp", "webhook", "sse"], bool | None]
MOST_CATEGORIES = 200
TenantId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]
_PATH = "/api/v1/preferences"
_OWN = About(callers=Callers.KNOWN, oneself="needed")
_OF_A_USER = About(callers=Callers.KNOWN, person=(in_path("userId"),), tenant=in_query("tenantId"))
_EXAMPLE: dict[str, Any] = {
    "preferredLocale": "es-MX",
    "channels": {"sms": {"isEnabled": False}},
    "contacts": {"email": "ada@example.org"},
    "timeZone": "America/Mexico_City",
    "quietHours": {"startTime": "22:00", "endTime": "07:00", "days": ["mon", "tue", "wed", "thu"]},
}
_DOES = {
    "GET": ("show", "Show {whose} preferences"),
    "PUT": ("replace", "Replace {whose} preferences"),
    "PATCH": ("change", "Change {whose} preferences; what is left out stays"),
}


class ChannelWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whether a channel may be used."""

    is_enabled: bool


class ChannelWishes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Channels to switch on or off; what is not named stays."""

    email: ChannelWish | UnsetType = UNSET
    sms: ChannelWish | UnsetType = UNSET
    push: ChannelWish | UnsetType = UNSET
    in_app: ChannelWish | UnsetType = UNSET
    webhook: ChannelWish | UnsetType = UNSET


class ContactWishes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where to be reached; null removes."""

    email: Contact | UnsetType | None = UNSET
    phone: Contact | UnsetType | None = UNSET
    push_token: Contact | UnsetType | None = UNSET


class QuietBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """When to be left alone; the end may be on the next day."""

    enabled: bool = True
    start_time: Time | None = None
    end_time: Time | None = None
    from_: Annotated[Time, Meta(description="Another name for startTime.")] | None = msgspec.field(
        default=None, name="from"
    )
    to: Annotated[Time, Meta(description="Another name for endTime.")] | None = None
    timezone: Annotated[Zone, Meta(description="Without one, the person's timeZone, else UTC.")] | None = None
    days: Annotated[
        list[Weekday], Meta(max_length=7, description="The days on which they begin; all without any.")
    ] = []
    holidays: (
        Annotated[
            str,
            Meta(
                pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z",
                description="A calendar of `preferences.holidays`: its days are quiet from midnight to midnight.",
                examples=["DE"],
            ),
        ]
        | None
    ) = None


class PreferencesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a person wants."""

    preferred_locale: Locale | UnsetType | None = UNSET
    channels: ChannelWishes | UnsetType = UNSET
    categories: (
        Annotated[
            dict[CategoryName, CategoryWishes],
            Meta(description="By category and channel; null forgets the choice.", max_length=MOST_CATEGORIES),
        ]
        | UnsetType
    ) = UNSET
    contacts: ContactWishes | UnsetType = UNSET
    time_zone: Zone | UnsetType | None = UNSET
    quiet_hours: QuietBody | UnsetType | None = UNSET


class TenantQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The user's tenant; only for administrators without a tenant."""

    tenant_id: TenantId | UnsetType = UNSET


class QuietView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """When a person is left alone."""

    enabled: bool = False
    start_time: str | None = None
    end_time: str | None = None
    timezone: str = "UTC"
    days: list[str] = []
    holidays: str | None = None


class PreferencesView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The preferences of a person, or the defaults."""

    user_id: str
    tenant_id: str | None
    preferred_locale: str | None
    channels: dict[str, ChannelWish]
    categories: dict[str, dict[str, bool]]
    """What holds for every category on every channel, choices and defaults alike."""
    required: list[str]
    """The categories that cannot be switched off."""
    contacts: dict[str, str]
    time_zone: str | None
    quiet_hours: QuietView
    updated_at: str | None


def in_force(held: Preferences, category: Category, channels: Iterable[str]) -> dict[str, bool]:
    """Whether the person gets the category, channel by channel."""
    off = switched_off(held.channels)
    return {channel: refusal(category, channel, held.categories, off) is None for channel in channels}


def preferences_view(held: Preferences, categories: Categories) -> PreferencesView:
    """What holds for a person now."""
    known = categories.of(held.tenant_id)
    return PreferencesView(
        user_id=held.user_id,
        tenant_id=held.tenant_id,
        preferred_locale=held.preferred_locale,
        channels={channel: ChannelWish(held.channels.get(channel, True)) for channel in CHANNELS},
        categories={name: in_force(held, category, CHANNELS) for name, category in sorted(known.items())},
        required=sorted(name for name, category in known.items() if category.required),
        contacts=held.contacts,
        time_zone=held.time_zone,
        quiet_hours=quiet_view(held),
        updated_at=None if held.updated_at is None else rfc3339_ms(held.updated_at),
    )


def quiet_view(held: Preferences) -> QuietView:
    """The quiet hours of a person, in the zone that holds for them."""
    quiet = held.quiet_hours
    if quiet is None:
        return QuietView()
    return QuietView(
        enabled=quiet.enabled,
        start_time=quiet.start_time or None,
        end_time=quiet.end_time or None,
        timezone=quiet.timezone or held.time_zone or "UTC",
        days=list(quiet.days),
        holidays=quiet.holidays,
    )


def endpoints(ledger: PreferenceLedger, categories: Categories, holidays: Sequence[str] = ()) -> list[Endpoint]:
    """The preference endpoints, once for oneself and once by user; `holidays` names the calendars of the settings."""
    preferences = _Preferences(ledger, categories, holidays)
    found: list[Endpoint] = []
    for method, (does, summary) in _DOES.items():
        shared: dict[str, Any] = {
            "method": method,
            "tag": "Preferences",
            "body": None if method == "GET" else PreferencesBody,
            "body_examples": {} if method == "GET" else {"spanish": _EXAMPLE},
            "answers": (Answer(status=200, description="What holds now", kind=PreferencesView),),
        }
        found += [
            Endpoint(
                path=_PATH,
                call=getattr(preferences, does),
                name=f"{does}OwnPreferences",
                summary=summary.format(whose="one's own"),
                description="One's own are those of the token's `sub`.",
                about=_OWN,
                problems=("VALIDATION_ERROR",),
                **shared,
            ),
            Endpoint(
                path=f"{_PATH}/user/{{userId}}",
                call=getattr(preferences, does),
                name=f"{does}Preferences",
                summary=summary.format(whose="a user's"),
                description="For administrators, and for the user.",
                query=TenantQuery,
                path_examples={"userId": "ada"},
                longest=LONGEST_PERSON,
                about=_OF_A_USER,
                problems=("FORBIDDEN",),
                **shared,
            ),
        ]
    return found


class _Preferences:
    def __init__(self, ledger: PreferenceLedger, categories: Categories, holidays: Sequence[str]) -> None:
        self._ledger = ledger
        self._categories = categories
        self._holidays = holidays

    async def show(self, request: Request) -> Reply:
        tenant_id, user_id = _whose(request)
        (held,) = await self._ledger.preferences([(tenant_id, user_id)])
        held = held or Preferences(tenant_id=tenant_id, user_id=user_id)
        return Reply(200, preferences_view(held, self._categories))

    async def replace(self, request: Request) -> Reply:
        return await self._write(request, replace=True)

    async def change(self, request: Request) -> Reply:
        return await self._write(request, replace=False)

    async def _write(self, request: Request, *, replace: bool) -> Reply:
        tenant_id, user_id = _whose(request)
        body = request.json(PreferencesBody)
        wish = change_of(body, self._categories.of(tenant_id), self._holidays, replace=replace)
        held = await self._ledger.change_preferences(tenant_id, user_id, wish)
        return Reply(200, preferences_view(held, self._categories))


def change_of(
    body: PreferencesBody, known: Mapping[str, Category], holidays: Sequence[str], *, replace: bool = False
) -> PreferenceChange:
    """What a body asks for, checked against a tenant's categories and the calendars; raises Problem."""
    zone, quiet = body.time_zone, body.quiet_hours
    return PreferenceChange(
        preferred_locale=body.preferred_locale,
        channels={} if body.channels is UNSET else _channels(body),
        categories={} if body.categories is UNSET else wishes(known, body.categories),
        contacts={} if body.contacts is UNSET else _contacts(body.contacts),
        time_zone=_zone("timeZone", zone) if isinstance(zone, str) else zone,
        quiet_hours=_quiet(quiet, holidays) if isinstance(quiet, QuietBody) else quiet,
        replace=replace,
    )


def said_in_python(said: Mapping[str, Any]) -> PreferencesBody:
    """The body of the same wishes under their names in Python; raises Problem."""
    return convert(msgspec.to_builtins(under_api_names(said)), PreferencesBody)


def wishes(known: Mapping[str, Category], given: Mapping[str, CategoryWishes]) -> dict[str, dict[str, bool | None]]:
    """A person's choices, checked; 400 for a category that does not exist or that nobody can switch off."""
    for name, channels in given.items():
        field = f"categories.{name}"
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            said = f"there is no category {name}; known are {listed}"
            raise Problem("VALIDATION_ERROR", said, details=[Detail("not known", field)])
        if known[name].required and False in channels.values():
            said = f"{name} is required: nobody can switch it off"
            raise Problem("VALIDATION_ERROR", said, details=[Detail("required", field)])
    return {name: {str(channel): wanted for channel, wanted in said.items()} for name, said in given.items()}


def _whose(request: Request) -> tuple[str | None, str]:
    if request.params:
        request.query(TenantQuery)
    return request.reach.tenant_id, request.reach.user_id or ""


def _channels(body: PreferencesBody) -> dict[str, bool]:
    named: dict[str, Any] = msgspec.to_builtins(body.channels)
    return {channel: wish["isEnabled"] for channel, wish in named.items()}


def _contacts(given: ContactWishes) -> dict[str, str | None]:
    named: dict[str, str | None] = msgspec.to_builtins(given)
    for kind, address in named.items():
        wanted = None if address is None else unfit(CONTACTS[kind], address)
        if wanted is not None:
            field = f"contacts.{kind}"
            raise Problem("VALIDATION_ERROR", f"{field} must be {wanted}", details=[Detail(f"not {wanted}", field)])
    return named


def _quiet(given: QuietBody, holidays: Sequence[str]) -> QuietHours:
    if given.holidays is not None and given.holidays not in holidays:
        said = f"there is no calendar {given.holidays}; known are {', '.join(sorted(holidays)) or 'none'}"
        raise Problem("VALIDATION_ERROR", said, details=[Detail("not known", "quietHours.holidays")])
    begins, ends = given.start_time or given.from_, given.end_time or given.to
    if given.enabled and (begins is None or ends is None):
        raise Problem("VALIDATION_ERROR", "quiet hours need startTime and endTime")
    return QuietHours(
        enabled=given.enabled,
        start_time=begins or "",
        end_time=ends or "",
        timezone=None if given.timezone is None else _zone("quietHours.timezone", given.timezone),
        days=tuple(day for day in WEEKDAYS if day in given.days),
        holidays=given.holidays,
    )


def is_zone(name: str) -> bool:
    """Whether there is a time zone of this name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone(field: str, name: str) -> str:
    if not is_zone(name):
        raise Problem("VALIDATION_ERROR", f"{field} is not known", details=[Detail("not known", field)])
    return name
