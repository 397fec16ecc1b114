"""The page as HTML: plain, without script, for every width and in the dark too."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from zoneinfo import available_timezones

import msgspec
from babel import Locale

from carillon.domain.people import WEEKDAYS, Preferences
from carillon.upkeep.consent.words import Words, language_name, weekdays, words_of
from carillon.web import Reply

SHOWN_CHANNELS = ("email", "sms", "push", "inApp", "sse")
"""The channels that people know; a webhook is a program's."""
_CHECKED = {True: " checked", False: ""}
_DARK = 0.18
"""On colours up to this luminance white can be read better than black."""

STYLE = files(__package__).joinpath("static", "page.css").read_text(encoding="utf-8")


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant's page looks."""

    name: str = ""
    accent: str = "#1f5fbf"
    accent_dark: str = "#8ab4ff"
    logo: str | None = None
    home: str | None = None


class CategoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One category on the page."""

    name: str
    title: str
    text: str
    required: bool
    ways: dict[str, bool]
    """Channels and whether it comes there."""


class PageContent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a page shows."""

    locale: Locale
    theme: Theme
    held: Preferences
    rows: Sequence[CategoryRow]
    locales: Sequence[str]
    holidays: Sequence[str] = ()
    """The calendars whose days may be quiet."""
    note: str = ""
    bad: bool = False
    leave: tuple[str, str] | None = None
    """The category and the channel that one click leaves."""


def shown_page(content: PageContent, status: int = 200) -> Reply:
    """A person's page."""
    words = words_of(content.locale)
    note = f'<p class="note{" bad" if content.bad else ""}" role="status">{escape(content.note)}</p>'
    parts = [
        f"<h1>{escape(words['title'])}</h1><p class=soft>{escape(words['lead'])}</p>",
        note if content.note else "",
        _leave_form(content, words),
        '<form method="post">',
        f"<section><h2>{escape(words['choices'])}</h2>{_choices(content.rows, words)}</section>",
        f"<section>{_about(content, words)}</section>",
        f'<div class=row><button name="do" value="save">{escape(words["save"])}</button></div></form>',
        _everything(content.rows, words),
    ]
    return _document(content.locale, content.theme, words["title"], "".join(parts), status)


def over_page(locale: Locale, theme: Theme) -> Reply:
    """The page of a link that is over or was never one; it does not say which."""
    words = words_of(locale)
    body = f"<section><h1>{escape(words['over_title'])}</h1><p>{escape(words['over'])}</p></section>"
    return _document(locale, theme, words["over_title"], body, 404)


def _leave_form(content: PageContent, words: Words) -> str:
    if content.leave is None:
        return ""
    category, channel = content.leave
    asked = words["leave_title"].format(category=category, channel=words.get(channel, channel))
    return (
        f'<form method="post"><section><h2>{escape(asked)}</h2>'
        f'<button name="do" value="leave">{escape(words["leave"])}</button></section></form>'
    )


def _choices(rows: Sequence[CategoryRow], words: Words) -> str:
    if not rows:
        return f"<p class=soft>{escape(words['nothing'])}</p>"
    return "".join(_fieldset(row, words) for row in rows)


def _fieldset(row: CategoryRow, words: Words) -> str:
    # The words of categories may be in another language than the page: they have a direction of their own.
    text = f"<p class=text><bdi>{escape(row.text)}</bdi></p>" if row.text else ""
    if row.required:
        ways = f"<p class=always>{escape(words['always'])}</p>"
    else:
        ways = f"<div class=ways>{''.join(_way(row, channel, on, words) for channel, on in row.ways.items())}</div>"
    return f"<fieldset><legend><bdi>{escape(row.title)}</bdi></legend>{text}{ways}</fieldset>"


def _way(row: CategoryRow, channel: str, on: bool, words: Words) -> str:  # noqa: FBT001 - from a mapping
    name = escape(f"{row.name}/{channel}")
    return (
        f'<label><input type="hidden" name="shown" value="{name}">'
        f'<input type="checkbox" name="wanted" value="{name}"{_CHECKED[on]}>{escape(words[channel])}</label>'
    )


def _about(content: PageContent, words: Words) -> str:
    held, locale = content.held, content.locale
    languages = [(tag, language_name(tag, locale)) for tag in content.locales]
    zones = [(zone, zone.replace("_", " ")) for zone in sorted(available_timezones()) if _is_place(zone)]
    fields = (
        _select("locale", words["language"], words["any_language"], languages, held.preferred_locale)
        if languages
        else ""
    )
    fields += _select("zone", words["time_zone"], words["any_zone"], zones, held.time_zone)
    quiet = held.quiet_hours if held.quiet_hours is not None and held.quiet_hours.enabled else None
    begins, ends = ("", "") if quiet is None else (quiet.start_time, quiet.end_time)
    days = () if quiet is None else quiet.days or WEEKDAYS
    ticks = "".join(
        f'<label><input type="checkbox" name="day" value="{day}"{_CHECKED[day in days]}>{escape(name)}</label>'
        for day, name in zip(WEEKDAYS, weekdays(locale), strict=True)
    )
    return (
        f"<div class=fields>{fields}</div><fieldset><legend>{escape(words['quiet'])}</legend>"
        f"<p class=text>{escape(words['quiet_help'])}</p><div class=times>{_time('from', words, begins)}"
        f"{_time('to', words, ends)}</div><p class=text id=days>{escape(words['days'])}</p>"
        f"<div class=ways role=group aria-labelledby=days>{ticks}</div>{_holidays(content, words)}</fieldset>"
    )


def _holidays(content: PageContent, words: Words) -> str:
    if not content.holidays:
        return ""
    quiet = content.held.quiet_hours
    chosen = None if quiet is None else quiet.holidays
    calendars = [(name, _place(name, content.locale)) for name in sorted(content.holidays)]
    return f"<div class=fields>{_select('holidays', words['holidays'], words['no_holidays'], calendars, chosen)}</div>"


def _place(name: str, locale: Locale) -> str:
    """A calendar that is named after a country, by the country's name."""
    return str(locale.territories.get(name, name))


def _time(name: str, words: Words, value: str) -> str:
    return f'<label>{escape(words[name])}<input type="time" name="{name}" value="{escape(value)}"></label>'


def _select(name: str, label: str, none: str, options: Iterable[tuple[str, str]], chosen: str | None) -> str:
    offered = list(options)
    if chosen is not None and chosen not in {value for value, _ in offered}:
        offered.insert(0, (chosen, chosen))
    inside = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
        for value, text in offered
    )
    return (
        f'<label>{escape(label)}<select name="{name}"><option value="">{escape(none)}</option>{inside}</select></label>'
    )


def _is_place(zone: str) -> bool:
    return "/" in zone and not zone.startswith(("Etc/", "SystemV/", "US/", "posix/", "right/"))


def _everything(rows: Sequence[CategoryRow], words: Words) -> str:
    if all(row.required for row in rows):
        return ""
    return (
        f'<form method="post"><footer><p id=all>{escape(words["all_help"])}</p><button class="quiet" name="do" '
        f'value="nothing" aria-describedby=all>{escape(words["nothing_else"])}</button></footer></form>'
    )


def _document(locale: Locale, theme: Theme, title: str, body: str, status: int) -> Reply:
    colours = f":root {{ --day: {theme.accent}; --night: {theme.accent_dark}; --on-accent: {_ink_on(theme.accent)}; }}"
    night = f"@media (prefers-color-scheme: dark) {{ :root {{ --on-accent: {_ink_on(theme.accent_dark)}; }} }}"
    style = f"{STYLE}{colours}{night}"
    whose = "".join(
        [
            f'<img src="{escape(theme.logo)}" alt="">' if theme.logo else "",
            f'<a href="{escape(theme.home)}" rel="noreferrer">{escape(theme.name)}</a>'
            if theme.home
            else escape(theme.name),
        ]
    )
    html = (
        f'<!doctype html><html lang="{str(locale).replace("_", "-")}" dir="{locale.text_direction}"><head>'
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f"{f'<header>{whose}</header>' if whose else ''}{body}</main></body></html>"
    )
    return Reply(status, html.encode(), _headers(style, theme), "text/html; charset=utf-8")


def _headers(style: str, theme: Theme) -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    images = f"img-src {theme.logo.partition('://')[0]}://{_host(theme.logo)}; " if theme.logo else ""
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; {images}"
    return {
        "Content-Security-Policy": f"{policy}base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow",
    }


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _ink_on(colour: str) -> str:
    """Black or white, whichever can be read better on the colour."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return "#ffffff" if luminance <= _DARK else "#000000"
