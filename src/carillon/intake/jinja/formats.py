"""Numbers, money, days, times and phone numbers as people of a locale write them."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal, DecimalException
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_datetime, format_time, format_timedelta
from babel.numbers import (
    UnknownCurrencyError,
    format_currency,
    format_decimal,
    get_currency_precision,
    get_decimal_symbol,
    get_group_symbol,
)

from carillon.domain.errors import CarillonError

_LONGEST_PATTERN = 64
_AMOUNTS = frozenset({int, float, str})
_LARGEST = Decimal(10) ** 30
_FASTEST_GROUPS = (3, 3)
_EXACT = 1e11
"""Smaller floats tell amounts with four digits behind the point apart, and no currency has more."""
_PHONE = {"international": 1, "national": 2, "e164": 0}


Value = Any
"""What a template hands to a filter: of any kind, whatever the filter expects."""


class Unformattable(CarillonError):
    """A filter was given a value that it cannot show."""


class Person(NamedTuple):
    """For whom a message is rendered."""

    locale: str = "en-US"
    zone: str = "UTC"
    now: float = 0.0
    """Unix seconds, for relative times."""


@lru_cache(maxsize=512)
def known_locale(tag: str) -> Locale:
    """The locale of a tag such as `de-AT`, its language, or English."""
    for one in (tag, tag.partition("-")[0], "en"):
        try:
            return Locale.parse(one, sep="-")
        except (UnknownLocaleError, ValueError):
            continue
    return Locale("en")


@lru_cache(maxsize=512)
def known_zone(name: str) -> dt.tzinfo:
    """The time zone of a name; UTC for a name that does not exist."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return dt.UTC


def decimal(value: Value) -> Decimal:
    """A number, or a text that is one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise Unformattable(f"{_shown(value)} is not a number")
    try:
        # By way of text, so that 0.1 is a tenth.
        found = Decimal(str(value))
    except DecimalException:
        raise Unformattable(f"{_shown(value)} is not a number") from None
    if not found.is_finite() or abs(found) > _LARGEST:
        raise Unformattable(f"{_shown(value)} is not a number that can be shown")
    return found


def _shown(value: Value) -> str:
    return repr(str(value)[:40])


@lru_cache(maxsize=4096)
def _writer(tag: str, currency: str) -> Callable[[Value], str]:
    """Writes amounts of one currency as people of one locale do; raises UnknownCurrencyError.

    What the tables say is read once. Only where digits are not grouped by three does Babel write each amount.
    """
    if len(currency) != 3 or not currency.isalpha():  # noqa: PLR2004 - ISO 4217
        raise UnknownCurrencyError(currency)
    currency, locale = currency.upper(), known_locale(tag)
    digits = get_currency_precision(currency)
    group, point = get_group_symbol(locale), get_decimal_symbol(locale)
    core = _marked(f"{Decimal(1):,.{digits}f}", group, point)
    more, less = (format_currency(one, currency, locale=locale) for one in (Decimal(1), Decimal(-1)))
    if locale.currency_formats["standard"].grouping != _FASTEST_GROUPS or core not in more or core not in less:
        return lambda value: format_currency(decimal(value), currency, locale=locale)
    (before, _, behind), (before_less, _, behind_less) = more.partition(core), less.partition(core)
    shape = f",.{digits}f"

    def write(value: Value) -> str:
        amount = value
        if type(value) is not float or not -_EXACT < value < _EXACT or round(value, digits) != value:
            # A float with so few digits is not rounded; others are, and 2.675 as text lies between 2.67 and 2.68.
            amount = decimal(value)
        text = _marked(format(abs(amount), shape), group, point)
        return f"{before_less}{text}{behind_less}" if amount < 0 else f"{before}{text}{behind}"

    return write


def _marked(text: str, group: str, point: str) -> str:
    """`1,234.50` with the marks of a locale."""
    if point == ".":
        return text if group == "," else text.replace(",", group)
    if "," not in text:
        return text.replace(".", point)
    return text.replace(",", "\0").replace(".", point).replace("\0", group)


def money(value: Value, currency: Value, person: Person) -> str:
    """An amount in a currency such as EUR."""
    if type(value) not in _AMOUNTS or type(currency) is not str:
        decimal(value)
        raise Unformattable(f"{_shown(currency)} is not a currency such as EUR")
    try:
        return _writer(person.locale, currency)(value)
    except UnknownCurrencyError:
        raise Unformattable(f"{_shown(currency)} is not a currency such as EUR") from None


def number(value: Value, digits: Value, person: Person) -> str:
    """A number with the marks of the locale, and so many digits behind the point if asked for."""
    amount, locale = decimal(value), known_locale(person.locale)
    if digits is None:
        return format_decimal(amount, locale=locale)
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= 20:  # noqa: PLR2004 - enough
        raise Unformattable("number takes 0 to 20 digits")
    rounded = Decimal(f"{amount:.{digits}f}")
    behind = "0" * digits
    return format_decimal(rounded, format=f"#,##0.{behind}" if behind else "#,##0", locale=locale)


def moment(value: Value, person: Person) -> dt.datetime | dt.date:
    """A day or a time from ISO 8601 or Unix seconds, in the person's time zone."""
    zone = known_zone(person.zone)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return dt.datetime.fromtimestamp(value, dt.UTC).astimezone(zone)
        if isinstance(value, str):
            if len(value) <= len("2026-11-17"):
                # No time can be so short; a day is the same day in every time zone.
                return dt.date.fromisoformat(value)
            found = dt.datetime.fromisoformat(value)
            # A time without an offset is UTC, as everywhere in the API.
            return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        pass
    raise Unformattable(f"{_shown(value)} is not a time such as 2026-11-17T09:30:00Z")


def _timed(value: Value, person: Person) -> dt.datetime:
    found = moment(value, person)
    if isinstance(found, dt.datetime):
        return found
    return dt.datetime.combine(found, dt.time(), known_zone(person.zone))


def day_or_time(kind: Literal["date", "time", "datetime"], value: Value, style: Value, person: Person) -> str:
    """A day, a time, or both; `style` is short, medium, long, full or a CLDR pattern such as `d MMM`."""
    if not isinstance(style, str) or len(style) > _LONGEST_PATTERN:
        raise Unformattable(f"a {kind} is short, medium, long, full or a pattern such as 'd MMM y'")
    if type(value) is not str:
        return _day_or_time(kind, value, style, person.locale, person.zone)
    return _written_lately(kind, value, style, person.locale, person.zone)


def _day_or_time(kind: str, value: Value, style: str, tag: str, zone: str) -> str:
    locale, person = known_locale(tag), Person(tag, zone)
    try:
        if kind == "date":
            return format_date(moment(value, person), style, locale=locale)
        found = _timed(value, person)
        if kind == "time":
            return format_time(found, style, tzinfo=found.tzinfo, locale=locale)
        return format_datetime(found, style, tzinfo=found.tzinfo, locale=locale)
    except (AttributeError, KeyError, ValueError, NotImplementedError):
        raise Unformattable(f"{_shown(style)} is no pattern for a {kind}") from None


# The day of an order is in its subject, its text and its HTML, and tomorrow's delivery is in every mail of today.
_written_lately = lru_cache(maxsize=4096)(_day_or_time)


def relative(value: Value, person: Person) -> str:
    """How far a time is from now: `in 3 days`, `vor 2 Stunden`."""
    apart = _timed(value, person).timestamp() - person.now
    return format_timedelta(dt.timedelta(seconds=apart), add_direction=True, locale=known_locale(person.locale))


def phone(value: Value, style: str, person: Person) -> str:
    """A phone number as people write it; a text that is no number stays as it is."""
    import phonenumbers  # noqa: PLC0415 - its tables are large, and few templates show a number

    if style not in _PHONE:
        raise Unformattable("phone takes international, national or e164")
    text = str(value)
    try:
        parsed = phonenumbers.parse(text, known_locale(person.locale).territory)
    except phonenumbers.NumberParseException:
        return text
    if not phonenumbers.is_possible_number(parsed):
        return text
    return phonenumbers.format_number(parsed, _PHONE[style])
