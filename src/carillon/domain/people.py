"""People: their profiles and preferences."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, UnsetType

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_YEARLY, _ONCE = len("12-25"), len("2027-12-25")
_LATEST_SECONDS = 253_402_300_800.0 - 3 * 86_400.0
_MOST_ENDS = 800
"""A calendar of holidays all the year round is a mistake; more than two years are not waited for."""
CONTACTS = {"email": "email", "phone": "sms", "pushToken": "push"}
"""The channel that uses each kind of contact."""


class QuietHours(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hours in which a person gets no messages; times are `HH:MM` in the zone, and may cross midnight."""

    enabled: bool
    start_time: str
    end_time: str
    timezone: str | None = "UTC"
    """None is the person's own time zone, or UTC."""
    days: tuple[str, ...] = ()
    """The weekdays on which they begin, as `mon`; empty is every day."""
    holidays: str | None = None
    """The calendar of the settings whose days are quiet from midnight to midnight."""
    off_days: tuple[str, ...] = ()
    """The days of that calendar, `MM-DD` for every year or `YYYY-MM-DD`; never stored with a person."""


_CAMEL = {
    "preferred_locale": "preferredLocale",
    "time_zone": "timeZone",
    "quiet_hours": "quietHours",
    "start_time": "startTime",
    "end_time": "endTime",
}


def under_api_names(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Preferences under their names in Python as the API writes them.

    A channel may be a bool, and quiet hours may be `QuietHours`.
    """
    given = {_CAMEL.get(name, name): wanted for name, wanted in wishes.items()}
    if isinstance(given.get("channels"), Mapping):
        on = given["channels"].items()
        given["channels"] = {name: {"isEnabled": wish} if isinstance(wish, bool) else wish for name, wish in on}
    quiet = given.get("quietHours")
    if isinstance(quiet, QuietHours):
        # The days of a calendar are the settings' and not the person's.
        quiet = {name: wish for name, wish in msgspec.structs.asdict(quiet).items() if name != "off_days"}
    if isinstance(quiet, Mapping):
        given["quietHours"] = {_CAMEL.get(name, name): wish for name, wish in quiet.items()}
    return given


def quiet_until(hours: QuietHours, unix_seconds: float) -> float | None:
    """The end of the quiet time that this moment lies in, holidays that follow included; None outside of it."""
    ends, moment = None, unix_seconds
    for _ in range(_MOST_ENDS):
        # At the end of the last year that a date has, nobody's clock can be read.
        end = _quiet_once(hours, moment) if moment < _LATEST_SECONDS else None
        if end is None:
            return ends
        ends = moment = end
    return ends


def _quiet_once(hours: QuietHours, unix_seconds: float) -> float | None:
    if not hours.enabled:
        return None
    now = dt.datetime.fromtimestamp(unix_seconds, ZoneInfo(hours.timezone or "UTC"))
    day = now.date()
    if hours.off_days and (f"{day:%m-%d}" in hours.off_days or day.isoformat() in hours.off_days):
        return dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), now.tzinfo).timestamp()
    begins, ends = dt.time.fromisoformat(hours.start_time), dt.time.fromisoformat(hours.end_time)
    at = now.time()
    if begins <= ends:
        days = 0 if begins <= at < ends else None
    elif at >= begins:
        days = 1
    else:
        days = 0 if at < ends else None
    if days is None:
        return None
    # They begin on a day and may end on the next one: the morning after belongs to the evening before.
    first = day - dt.timedelta(days=int(begins > ends and days == 0))
    if hours.days and WEEKDAYS[first.weekday()] not in hours.days:
        return None
    end = dt.datetime.combine(day + dt.timedelta(days=days), ends, now.tzinfo).timestamp()
    # When clocks go back, an end that comes twice counts the first time.
    return end if end > unix_seconds else None


def is_off_day(text: str) -> bool:
    """Whether this is a day of a calendar: `MM-DD`, or `YYYY-MM-DD`."""
    try:
        dt.date.fromisoformat(text if len(text) > _YEARLY else f"2000-{text}")
    except ValueError:
        return False
    return len(text) in (_YEARLY, _ONCE)


def next_off_days(days: Sequence[str], first: dt.date, most: int) -> list[dt.date]:
    """The next days of a calendar from this one on, at most so many."""
    years = range(first.year, first.year + most + 1)
    found = {day for text in days for day in _dates(text, years)}
    return sorted(day for day in found if day >= first)[:most]


def _dates(text: str, years: range) -> list[dt.date]:
    """A day of a calendar in each of these years; the 29th of February only where there is one."""
    found = []
    for spelled in [text] if len(text) > _YEARLY else [f"{year}-{text}" for year in years]:
        try:
            found.append(dt.date.fromisoformat(spelled))
        except ValueError:
            continue
    return found


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A person whom the directory knows."""

    addresses: dict[str, str] = {}
    """The address of each channel."""
    unreachable: dict[str, str] = {}
    """For each channel without a usable address, the reason."""
    locale: str | None = None
    refused: frozenset[str] = frozenset()
    """Channels that the person has switched off."""
    chosen: dict[str, dict[str, bool]] = {}
    """Choices by category and channel."""
    time_zone: str | None = None
    quiet_hours: QuietHours | None = None


class NoSuchPerson(msgspec.Struct, frozen=True):
    """The directory has no person with this id."""


class NotAnswered(msgspec.Struct, frozen=True):
    """The directory did not answer; it may answer the same question later."""

    error: str


Found = Profile | NoSuchPerson | NotAnswered


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """The preferences of one person."""

    tenant_id: str | None
    user_id: str
    preferred_locale: str | None = None
    channels: dict[str, bool] = {}
    """Only channels with an explicit choice."""
    categories: dict[str, dict[str, bool]] = {}
    """By category and channel; only explicit choices."""
    contacts: dict[str, str] = {}
    time_zone: str | None = None
    quiet_hours: QuietHours | None = None
    updated_at: int | None = None
    """Unix milliseconds; None if the person has no stored preferences."""


class PreferenceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of preferences: fields that are not given keep their value, unless the change replaces all."""

    preferred_locale: str | UnsetType | None = UNSET
    channels: dict[str, bool] = {}
    categories: dict[str, dict[str, bool | None]] = {}
    """None removes the choice."""
    contacts: dict[str, str | None] = {}
    """None removes."""
    time_zone: str | UnsetType | None = UNSET
    quiet_hours: QuietHours | UnsetType | None = UNSET
    replace: bool = False


class PreferenceLedger(Protocol):
    """Where preferences are kept."""

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        """The preferences of each (tenant, user), in order; None where none are stored."""
        ...

    async def change_preferences(self, tenant_id: str | None, user_id: str, change: PreferenceChange) -> Preferences:
        """Store a change; returns the preferences after it."""
        ...

    async def disable(self, tenant_id: str | None, user_id: str, channel: str) -> None:
        """Switch a channel off, as an unsubscribe does."""
        ...
