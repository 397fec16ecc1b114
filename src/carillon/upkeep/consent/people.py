"""One person and all categories over HTTP, for administrators: what they wait for, and who has left what."""

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from carillon.domain.consent import Categories, Category, person_spellings
from carillon.domain.digests import recent
from carillon.domain.people import PreferenceLedger, Preferences
from carillon.domain.ports import Clock
from carillon.domain.rights import KnownPerson
from carillon.domain.store import Row
from carillon.upkeep.api.digests import DigestView, digest_view
from carillon.upkeep.api.preferences import CHANNELS, PreferencesView, TenantId, preferences_view
from carillon.web import LONGEST_PERSON, About, Answer, Callers, Endpoint, Reply, Request, in_query

MOST_DIGESTS = 50
MOST_PEOPLE = 100_000
"""At most so many people are counted: a page that reads a million rows would not be one."""
_ABOUT = About(callers=Callers.ADMINISTRATORS, tenant=in_query("tenantId"))


class PersonLedger(PreferenceLedger, Protocol):
    """What is looked up about one person, each by its key."""

    async def person_digests(self, tenant_id: str | None, audience: str, limit: int) -> list[Row]: ...

    async def throttle_times(self, tenant_id: str | None, audience: str, category: str) -> list[int]: ...

    async def category_choices(self, tenant_id: str | None, limit: int) -> tuple[list[Row], int]: ...


class TenantOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The tenant; only for administrators without one."""

    tenant_id: TenantId | UnsetType = UNSET


class ThrottleView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How much of a category a person got of late."""

    category: str
    at_most: str
    sent: int
    full: bool
    """True: the next one is skipped or told in a digest."""


class PersonView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A person as Carillon knows them; somebody who is not known has the defaults."""

    id: str
    tenant_id: str | None
    known: bool
    """Whether preferences are kept for this person."""
    preferences: PreferencesView
    digests: list[DigestView]
    """Those that still gather events."""
    throttles: list[ThrottleView]
    preference_links: bool
    """Whether links to the person's own page can be made here."""


class CategoryView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One category as people have it without a choice of their own, and what they chose."""

    name: str
    title: str
    text: str
    required: bool
    urgent: bool
    throttle: str | None
    overflow: str | None
    defaults: dict[str, bool]
    """By channel."""
    left: dict[str, int]
    """How many people have switched it off, by channel."""
    joined: dict[str, int]
    """How many people have switched it on, by channel."""


class CategoryList(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every category of a tenant, or those that all tenants share."""

    items: list[CategoryView]
    people: int
    """How many people's choices were counted."""
    truncated: bool
    """There are more people than were counted."""


class PeopleReader:
    """Answers the endpoints."""

    def __init__(self, ledger: PersonLedger, categories: Categories, clock: Clock, *, links: bool) -> None:
        self._ledger = ledger
        self._categories = categories
        self._clock = clock
        self._links = links

    async def show(self, request: Request) -> Reply:
        request.query(TenantOf)
        tenant, person = request.reach.tenant_id, request.params["id"]
        (held,) = await self._ledger.preferences([(tenant, person)])
        audience = KnownPerson(tenant_id=tenant, person=person_spellings(person)[0]).recipient_ref
        digests = await self._ledger.person_digests(tenant, audience, MOST_DIGESTS)
        view = PersonView(
            id=person,
            tenant_id=tenant,
            known=held is not None,
            preferences=preferences_view(held or Preferences(user_id=person, tenant_id=tenant), self._categories),
            digests=[digest_view(row) for row in digests],
            throttles=[one async for one in self._throttles(tenant, audience)],
            preference_links=self._links,
        )
        return Reply(200, view)

    async def _throttles(self, tenant: str | None, audience: str) -> Any:  # noqa: ANN401 - an iterator of views
        now_ms = round(self._clock.wall() * 1000)
        for name, category in sorted(self._categories.of(tenant).items()):
            rule = category.throttle
            if rule is not None:
                times = await self._ledger.throttle_times(tenant, audience, name)
                sent = len(recent(times, rule, now_ms))
                yield ThrottleView(category=name, at_most=rule.said, sent=sent, full=sent >= rule.most)

    async def categories(self, request: Request) -> Reply:
        request.query(TenantOf)
        tenant = request.reach.tenant_id
        asked = None if request.reach.every_tenant else tenant or ""
        rows, people = await self._ledger.category_choices(asked, MOST_PEOPLE)
        known = self._categories.of(tenant)
        items = [
            _category(one, [row for row in rows if row["category"] == name]) for name, one in sorted(known.items())
        ]
        return Reply(200, CategoryList(items=items, people=people, truncated=people >= MOST_PEOPLE))


def _category(category: Category, rows: list[Row]) -> CategoryView:
    throttle = category.throttle
    return CategoryView(
        name=category.name,
        title=category.title("en"),
        text=category.text("en"),
        required=category.required,
        urgent=category.urgent,
        throttle=None if throttle is None else throttle.said,
        overflow=None if throttle is None else throttle.overflow,
        defaults={channel: category.required or category.channels.get(channel, True) for channel in CHANNELS},
        left={row["channel"]: row["unwanted"] for row in rows if row["unwanted"]},
        joined={row["channel"]: row["wanted"] for row in rows if row["wanted"]},
    )


def endpoints(ledger: PersonLedger, categories: Categories, clock: Clock, *, links: bool) -> list[Endpoint]:
    """The administrators' endpoints about one person and about categories."""
    reader = PeopleReader(ledger, categories, clock, links=links)
    shared: dict[str, Any] = {"tag": "People", "about": _ABOUT, "query": TenantOf}
    return [
        Endpoint(
            method="GET",
            path="/api/v1/people/{id}",
            call=reader.show,
            name="showPerson",
            summary="Show what a person wants and waits for",
            description="Preferences with what holds for every category, digests that gather events, and throttles.",
            path_examples={"id": "ada"},
            longest=LONGEST_PERSON,
            answers=(Answer(status=200, description="The person", kind=PersonView),),
            **shared,
        ),
        Endpoint(
            method="GET",
            path="/api/v1/categories",
            call=reader.categories,
            name="listCategories",
            summary="List categories with their defaults, and how many people have left them",
            answers=(Answer(status=200, description="The categories", kind=CategoryList),),
            **shared,
        ),
    ]
