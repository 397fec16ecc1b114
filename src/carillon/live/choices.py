"""What a person chooses inside the inbox: which categories come on which channels, without contacts and quiet hours.

A ticket may show and change these, and nothing else of a person's preferences: it stands in a URL.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from carillon.domain.people import PreferenceChange, PreferenceLedger, Preferences
from carillon.live import wire
from carillon.upkeep.api.preferences import MOST_CATEGORIES, CategoryName, CategoryWishes, wishes
from carillon.upkeep.consent.api import PageRules, category_rows, shown_channels
from carillon.upkeep.consent.page import CategoryRow
from carillon.upkeep.consent.words import read_locale, spoken
from carillon.web import Answer, Endpoint, Reply, Request

_ANSWERS = "What holds now"


class ChoicesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which language."""

    locale: Annotated[str, Meta(max_length=35, examples=["de"])] = ""
    """The language of titles and texts; without it the person's own, then the browser's."""
    ticket: wire.TicketText = ""


class ChoicesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What changes; what is not named stays."""

    categories: Annotated[
        dict[CategoryName, CategoryWishes],
        Meta(description="By category and channel; null forgets the choice.", max_length=MOST_CATEGORIES),
    ]


class Choices(msgspec.Struct, frozen=True):
    """A person's choices, category by category."""

    user_id: str
    channels: list[str]
    """The channels that a person may choose between."""
    categories: list[CategoryRow]


class InboxChoices:
    """The same categories and the same rules as on the page of `/u/{token}`."""

    def __init__(self, ledger: PreferenceLedger, rules: PageRules) -> None:
        self._ledger = ledger
        self._rules = rules

    async def show(self, request: Request) -> Reply:
        tenant_id, user_id = request.reach.tenant_id, request.reach.user_id or ""
        (held,) = await self._ledger.preferences([(tenant_id, user_id)])
        return self._reply(request, held or Preferences(tenant_id=tenant_id, user_id=user_id))

    async def change(self, request: Request) -> Reply:
        tenant_id, user_id = request.reach.tenant_id, request.reach.user_id or ""
        body = request.json(ChoicesBody)
        change = PreferenceChange(categories=wishes(self._rules.categories.of(tenant_id), body.categories))
        return self._reply(request, await self._ledger.change_preferences(tenant_id, user_id, change))

    def _reply(self, request: Request, held: Preferences) -> Reply:
        query, rules = request.query(ChoicesQuery), self._rules
        # Titles may be in languages that the page itself does not speak.
        locale = read_locale(query.locale) or spoken(
            held.preferred_locale,
            rules.tenant_locales.get(held.tenant_id or ""),
            rules.default_locale,
            header=request.header(b"accept-language"),
        )
        channels = shown_channels(rules)
        rows = category_rows(rules.categories.of(held.tenant_id), held, channels, locale)
        return Reply(200, Choices(held.user_id, channels, rows))


def choice_endpoints(choices: InboxChoices, path: str, shared: dict[str, Any]) -> list[Endpoint]:
    """Show and change; `shared` says whose they are and who may call."""
    answers = (Answer(status=200, description=_ANSWERS, kind=Choices),)
    return [
        Endpoint(
            method="GET",
            path=path,
            call=choices.show,
            name="showInboxChoices",
            summary="Show which categories a person gets on which channels",
            query=ChoicesQuery,
            answers=answers,
            **shared,
        ),
        Endpoint(
            method="PATCH",
            path=path,
            call=choices.change,
            name="changeInboxChoices",
            summary="Choose categories and channels; what is left out stays",
            query=ChoicesQuery,
            body=ChoicesBody,
            body_examples={"no mail": {"categories": {"orders": {"email": False}}}},
            answers=answers,
            **shared,
        ),
    ]
