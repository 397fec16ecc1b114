"""Consent: the categories of messages, and the one decision whether a person gets a message on a channel."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from carillon.domain.addresses import spellings
from carillon.domain.digests import ThrottleRule

GATE = "category"
"""The word for this gate in answers, stories, explanations and metrics."""
UNGATED = "skipped"
"""The word on routes that nobody could have been reached on: no address, or no such channel."""
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}\Z"
ADDRESS_KINDS = {"email": "email", "phone": "sms", "token": "push", "url": "webhook"}
"""The kinds of addresses in the ids of people without a user id, and their channels."""
_USER = "user:"
_NAME = re.compile(NAME)

Chosen = Mapping[str, Mapping[str, bool]]
"""What a person chose: for a category, the channels switched on or off."""


class Category(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of messages that people may want or not."""

    name: str
    required: bool = False
    """Nobody can switch it off."""
    channels: dict[str, bool] = {}
    """Whether a person who chose nothing gets it on a channel; on channels that are not named, yes."""
    titles: dict[str, str] = {}
    """What people read, by language."""
    texts: dict[str, str] = {}
    """One sentence that says what comes with it, by language."""

    urgent: bool = False
    """Quiet hours do not delay it."""
    throttle: ThrottleRule | None = None
    """At most so many in a time for each person."""

    def title(self, locale: str) -> str:
        """The title in this language, else in English, else the name."""
        return _spoken(self.titles, locale) or self.name.replace("_", " ").replace("-", " ").capitalize()

    def text(self, locale: str) -> str:
        return _spoken(self.texts, locale)


class Categories(msgspec.Struct, frozen=True, kw_only=True):
    """The categories that everybody has, and those of single tenants, which add to them and replace them by name."""

    shared: dict[str, Category] = {}
    tenants: dict[str, dict[str, Category]] = {}

    def of(self, tenant_id: str | None) -> dict[str, Category]:
        """A tenant's categories by name."""
        return self.shared | self.tenants.get(tenant_id or "", {})

    def find(self, name: str, tenant_id: str | None) -> Category | None:
        own = self.tenants.get(tenant_id or "", {}).get(name)
        return self.shared.get(name) if own is None else own

    def longest_throttle(self) -> float:
        """The longest time, in seconds, in which notifications of one category are counted."""
        known = [one for group in (self.shared, *self.tenants.values()) for one in group.values()]
        return max((one.throttle.seconds for one in known if one.throttle is not None), default=0.0)


NO_CATEGORIES = Categories()


def is_name(text: str) -> bool:
    """Whether a category may have this name."""
    return _NAME.match(text) is not None


def refusal(category: Category, channel: str, chosen: Chosen, off: Collection[str]) -> str | None:
    """Why a person gets no message of the category on the channel; None if the message may go.

    `off` are the channels that the person switched off altogether: they count where the category has no choice.
    """
    if category.required:
        return None
    said = chosen.get(category.name, {}).get(channel)
    if said is not None:
        return None if said else f"the person switched {category.name} off for {channel}"
    if channel in off:
        return f"the person switched {channel} off"
    if not category.channels.get(channel, True):
        return f"{category.name} goes to {channel} only if the person switches it on"
    return None


def person_of(recipient_ref: str) -> str:
    """The id under which a recipient's preferences are kept: the user's, or `email:` and the like with the address."""
    return recipient_ref.removeprefix(_USER)


def bare_address(person_id: str) -> tuple[str | None, str]:
    """The kind and the address of a person who is known by an address only; (None, id) of a user."""
    kind, found, address = person_id.partition(":")
    return (kind, address) if found and kind in ADDRESS_KINDS else (None, person_id)


def person_spellings(person_id: str) -> list[str]:
    """The id of a person; of an address the canonical spelling, then the given one if it differs."""
    kind, address = bare_address(person_id)
    if kind is None:
        return [person_id]
    return [f"{kind}:{each}" for each in spellings(ADDRESS_KINDS[kind], address)]


class Wishes(msgspec.Struct, frozen=True):
    """The part of a person's preferences that decides at an attempt."""

    channels: dict[str, bool] = {}
    categories: dict[str, dict[str, bool]] = {}

    def refusal(self, category: Category, channel: str) -> str | None:
        """As `refusal`, with what the person has chosen by now."""
        return refusal(category, channel, self.categories, switched_off(self.channels))


def switched_off(channels: Mapping[str, bool]) -> frozenset[str]:
    """The channels that a person has switched off altogether."""
    return frozenset(channel for channel, wanted in channels.items() if not wanted)


def shown(category: Category | None, because: str | None) -> dict[str, Any]:
    """What `explain` says at this gate."""
    detail: dict[str, Any] = {"category": None if category is None else category.name}
    if category is not None:
        detail["required"] = category.required
    return detail if because is None else {**detail, "because": because}


def _spoken(said: Mapping[str, str], locale: str) -> str:
    for tag in (locale, locale.partition("-")[0], "en"):
        if tag in said:
            return said[tag]
    return next(iter(said.values()), "")
