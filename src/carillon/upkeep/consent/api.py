"""A person's page over HTTP: GET shows it, only POST changes something, and one click leaves a category."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from babel import Locale
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.consent import Categories, Category
from carillon.domain.people import WEEKDAYS, PreferenceChange, PreferenceLedger, Preferences, QuietHours
from carillon.domain.ports import Clock
from carillon.links import LONGEST_TOKEN, Link, Links
from carillon.upkeep.api.preferences import TenantId, in_force, is_zone
from carillon.upkeep.consent.page import SHOWN_CHANNELS, CategoryRow, PageContent, Theme, over_page, shown_page
from carillon.upkeep.consent.words import read_locale, spoken, words_of
from carillon.web import EVERYBODY, About, Answer, Callers, Endpoint, Reply, Request, in_path, in_query
from carillon.web.problems import rfc3339_ms
from carillon.web.request import RawBody

LONGEST_FORM = 64 * 1024
ONE_CLICK = ("List-Unsubscribe", "One-Click")
_FORM, _PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
_MOST_FIELDS = 2000
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_ONE_CLICK_PART = re.compile(rb'name="?List-Unsubscribe"?[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\nOne-Click', re.IGNORECASE)
_PATH = "/u/{token}"
_PAGE = Answer(status=200, description="The page", media_type="text/html")


class LinkQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The person's tenant; only for callers without a tenant."""

    tenant_id: TenantId | UnsetType = UNSET


class PreferenceLink(msgspec.Struct, frozen=True, rename="camel"):
    """The address of a person's page: everybody who has it can change that person's preferences."""

    url: Annotated[str, Meta(examples=["https://example.org/u/3q2-7w"])]
    expires_at: str


class PageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What every page of a process needs."""

    categories: Categories
    channels: Sequence[str]
    locales: Sequence[str] = ()
    """The languages that a person may choose."""
    holidays: Sequence[str] = ()
    """The calendars of holidays that a person may choose."""
    default_locale: str = "en-US"
    tenant_locales: Mapping[str, str] = {}
    theme: Theme = Theme()
    themes: Mapping[str, Theme] = {}
    """By tenant."""


class PersonPage:
    """Shows and changes the preferences of the person that a link names."""

    def __init__(self, ledger: PreferenceLedger, links: Links, rules: PageRules, clock: Clock) -> None:
        self._ledger = ledger
        self._links = links
        self._rules = rules
        self._clock = clock

    async def show(self, request: Request) -> Reply:
        link = self._link(request)
        if link is None:
            return self._over(request)
        held = await self._held(link)
        note = words_of(self._locale(request, link, held))["saved"] if request.pairs().get("saved") == "1" else ""
        return self._page(request, link, held, note=note)

    async def change(self, request: Request) -> Reply:
        link = self._link(request)
        if link is None:
            return self._over(request)
        fields = _fields(request)
        if ONE_CLICK in fields or ("do", "leave") in fields:
            return await self._leave(request, link)
        held = await self._held(link)
        known = self._known(link)
        if ("do", "nothing") in fields:
            shown = [(name, channel) for name in known for channel in self._channels()]
            change = PreferenceChange(categories=_changed(known, held, shown, wanted=set()))
        else:
            wrong = _wrong(fields, self._rules.holidays)
            if wrong is not None:
                words = words_of(self._locale(request, link, held))
                return self._page(request, link, held, note=words["wrong"].format(what=words[wrong]), bad=True)
            change = self._chosen(fields, known, held)
        await self._ledger.change_preferences(link.tenant_id or None, link.person, change)
        # A reload of the answer to a POST would send the form again.
        # The way back is relative: a proxy may serve the page under a path of its own.
        return Reply(303, b"", {"Location": "?saved=1", "Referrer-Policy": "no-referrer"})

    async def link(self, request: Request) -> Reply:
        request.query(LinkQuery)
        base = f"http://{request.header(b'host') or ''}"
        person = request.params["id"]
        url, until = self._links.page(request.reach.tenant_id, person, self._clock.wall(), base)
        return Reply(201, PreferenceLink(url, rfc3339_ms(until * 1000)))

    async def _leave(self, request: Request, link: Link) -> Reply:
        """One click: repeated by a mail program, it changes nothing more, and it is answered without a redirect."""
        category = self._known(link).get(link.category)
        held = await self._held(link)
        if category is None or category.required:
            return self._page(request, link, held)
        change = PreferenceChange(categories={link.category: {link.channel: False}})
        held = await self._ledger.change_preferences(link.tenant_id or None, link.person, change)
        locale = self._locale(request, link, held)
        words = words_of(locale)
        said = words["left"].format(category=category.title(str(locale)), channel=words.get(link.channel, link.channel))
        return self._page(request, link, held, note=said)

    def _chosen(
        self, fields: Sequence[tuple[str, str]], known: Mapping[str, Category], held: Preferences
    ) -> PreferenceChange:
        said = dict(fields)
        shown = [_pair(value) for name, value in fields if name == "shown"]
        wanted = {_pair(value) for name, value in fields if name == "wanted"}
        offered = {(name, channel) for name in known for channel in self._channels()}
        return PreferenceChange(
            categories=_changed(known, held, [pair for pair in shown if pair in offered], wanted=wanted),
            preferred_locale=said["locale"] or None if "locale" in said else UNSET,
            time_zone=said["zone"] or None if "zone" in said else UNSET,
            quiet_hours=_quiet(fields, held) if "from" in said else UNSET,
        )

    def _page(self, request: Request, link: Link, held: Preferences, *, note: str = "", bad: bool = False) -> Reply:
        locale = self._locale(request, link, held)
        known = self._known(link)
        rows = category_rows(known, held, self._channels(), locale)
        leaves = known.get(link.category)
        still = leaves is not None and not leaves.required and in_force(held, leaves, [link.channel])[link.channel]
        content = PageContent(
            locale=locale,
            theme=self._theme(link.tenant_id),
            held=held,
            rows=rows,
            locales=self._rules.locales,
            holidays=self._rules.holidays,
            note=note,
            bad=bad,
            leave=(leaves.title(_tag(locale)), link.channel) if leaves is not None and still else None,
        )
        return shown_page(content, 400 if bad else 200)

    def _over(self, request: Request) -> Reply:
        locale = spoken(None, self._rules.default_locale, header=request.header(b"accept-language"))
        return over_page(locale, self._theme(""))

    def _link(self, request: Request) -> Link | None:
        return self._links.read(request.params["token"], self._clock.wall())

    def _locale(self, request: Request, link: Link, held: Preferences) -> Locale:
        tenant = self._rules.tenant_locales.get(link.tenant_id)
        header = request.header(b"accept-language")
        return spoken(held.preferred_locale, tenant, self._rules.default_locale, header=header)

    def _theme(self, tenant_id: str) -> Theme:
        return self._rules.themes.get(tenant_id, self._rules.theme)

    def _known(self, link: Link) -> dict[str, Category]:
        return self._rules.categories.of(link.tenant_id or None)

    def _channels(self) -> list[str]:
        return shown_channels(self._rules)

    async def _held(self, link: Link) -> Preferences:
        tenant_id = link.tenant_id or None
        (held,) = await self._ledger.preferences([(tenant_id, link.person)])
        return held or Preferences(tenant_id=tenant_id, user_id=link.person)


def shown_channels(rules: PageRules) -> list[str]:
    """The channels that a person may choose between."""
    return [channel for channel in SHOWN_CHANNELS if channel in rules.channels]


def category_rows(
    known: Mapping[str, Category], held: Preferences, channels: Sequence[str], locale: Locale
) -> list[CategoryRow]:
    """What holds for a person, category by category, in the words of a language."""
    return [
        CategoryRow(
            name=name,
            title=category.title(_tag(locale)),
            text=category.text(_tag(locale)),
            required=category.required,
            ways=in_force(held, category, channels),
        )
        for name, category in known.items()
    ]


def endpoints(page: PersonPage) -> list[Endpoint]:
    """The page, and the endpoint that makes links to it."""
    served: dict[str, Any] = {
        "path": _PATH,
        "about": EVERYBODY,
        "by_address": True,
        "hidden": True,
        "longest": LONGEST_TOKEN,
    }
    return [
        Endpoint(
            method="GET", call=page.show, name="showPersonPage", summary="A person's page", answers=(_PAGE,), **served
        ),
        Endpoint(
            method="POST",
            call=page.change,
            name="changePersonPage",
            summary="Choose, or leave with one click",
            raw=RawBody(limit=LONGEST_FORM, media_types=(_FORM, _PARTS)),
            answers=(_PAGE,),
            **served,
        ),
        Endpoint(
            method="POST",
            path="/api/v1/people/{id}/preference-link",
            call=page.link,
            name="makePreferenceLink",
            summary="Make a link to a person's page",
            description=(
                "The page shows and changes the person's categories, language, time zone and quiet hours, without a "
                "login. Give the link to that person only."
            ),
            tag="Preferences",
            path_examples={"id": "ada"},
            query=LinkQuery,
            about=About(callers=Callers.SERVICES, person=(in_path("id"),), tenant=in_query("tenantId"), shared=True),
            answers=(Answer(status=201, description="The link", kind=PreferenceLink),),
        ),
    ]


def _fields(request: Request) -> list[tuple[str, str]]:
    body = request.body
    if (request.header(b"content-type") or "").partition(";")[0].strip().lower() == _PARTS:
        return [ONE_CLICK] if _ONE_CLICK_PART.search(body) else []
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return []


def _pair(value: str) -> tuple[str, str]:
    name, _, channel = value.rpartition("/")
    return name, channel


def _changed(
    known: Mapping[str, Category], held: Preferences, shown: Iterable[tuple[str, str]], *, wanted: set[tuple[str, str]]
) -> dict[str, dict[str, bool | None]]:
    """Only what differs from what holds: a default that nobody touched stays a default."""
    changed: dict[str, dict[str, bool | None]] = {}
    for name, channel in shown:
        category = known[name]
        if category.required:
            continue
        before = in_force(held, category, [channel])[channel]
        if before != ((name, channel) in wanted):
            changed.setdefault(name, {})[channel] = not before
    return changed


def _wrong(fields: Sequence[tuple[str, str]], holidays: Sequence[str]) -> str | None:
    """The word for the first field that cannot be right; a browser's form sends none."""
    said = dict(fields)
    if said.get("locale") and read_locale(said["locale"]) is None:
        return "language"
    if said.get("zone") and not is_zone(said["zone"]):
        return "time_zone"
    times = [said.get("from", ""), said.get("to", "")]
    if any(times) and not all(_TIME.fullmatch(time) for time in times):
        return "quiet"
    return "holidays" if said.get("holidays") and said["holidays"] not in holidays else None


def _quiet(fields: Sequence[tuple[str, str]], held: Preferences) -> QuietHours | None:
    said = dict(fields)
    if not said.get("from"):
        return None
    days = tuple(day for day in WEEKDAYS if ("day", day) in fields)
    zone = None if held.quiet_hours is None or said.get("zone") else held.quiet_hours.timezone
    return QuietHours(
        enabled=True,
        start_time=said["from"],
        end_time=said["to"],
        timezone=zone,
        days=() if len(days) == len(WEEKDAYS) else days,
        # A page without calendars leaves what was chosen elsewhere.
        holidays=(said["holidays"] or None) if "holidays" in said else _kept(held),
    )


def _kept(held: Preferences) -> str | None:
    return None if held.quiet_hours is None else held.quiet_hours.holidays


def _tag(locale: Locale) -> str:
    return str(locale).replace("_", "-")
