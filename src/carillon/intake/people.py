"""Adds what the directory and people's own preferences say: addresses, language, channels and quiet hours."""

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from zoneinfo import ZoneInfo

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.addresses import canonical
from carillon.domain.consent import bare_address, person_of, switched_off
from carillon.domain.errors import BadIntent, DirectoryUnavailable
from carillon.domain.explain import Tell
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.people import (
    CONTACTS,
    Found,
    NoSuchPerson,
    NotAnswered,
    PreferenceLedger,
    Preferences,
    Profile,
    QuietHours,
    quiet_until,
)
from carillon.domain.ports import Clock
from carillon.domain.timing import LATEST_MS, QUIET_HOURS


def people(intent: Intent) -> list[str]:
    """The user ids of the recipients."""
    return [recipient.user_id for recipient in intent.recipients if recipient.user_id is not None]


def everybody(intent: Intent) -> list[str]:
    """The ids of the recipients, of bare addresses too."""
    return [_name(recipient) for recipient in intent.recipients]


def _name(recipient: Recipient) -> str:
    """The person's id; of a bare address as it was spelled, for choices from before there was a canonical spelling."""
    person = person_of(recipient.ref)
    kind, address = bare_address(person)
    return person if kind != "email" else f"{kind}:{recipient.addresses.get(kind, address)}"


def to_oneself(intent: Intent, found: Mapping[str, Profile]) -> Intent:
    """The intent as its caller's own, if the address that it names is one of the caller's contacts.

    Every other address is somebody else's: what its caller has chosen does not count for it.
    """
    asker = intent.asked_by
    if asker is None or asker not in found:
        return intent
    (given,) = intent.recipients
    contacts = {canonical(channel, address) for channel, address in found[asker].addresses.items()}
    if given.user_id is not None or not all(canonical(*each) in contacts for each in given.addresses.items()):
        return intent
    # The inbox inside the application is kept per user, so its address is the user.
    known = Recipient(ref=f"user:{asker}", user_id=asker, addresses={"inApp": asker, **given.addresses})
    return msgspec.structs.replace(intent, recipients=(known,), asked_by=None)


def with_choices(intent: Intent, found: Mapping[str, Profile]) -> Intent:
    """The intent with what its recipients chose by category and channel, and nothing else of their preferences."""
    nobody = Profile()
    said = [(one, found.get(_name(one), nobody)) for one in intent.recipients]
    return msgspec.structs.replace(
        intent,
        recipients=tuple(
            msgspec.structs.replace(
                one, refused=profile.refused, chosen=profile.chosen, time_zone=one.time_zone or zone_of(profile)
            )
            for one, profile in said
        ),
    )


def enrich(intent: Intent, found: Mapping[str, Found]) -> Intent:
    """The intent with the directory's answers; raises BadIntent for an unknown person, DirectoryUnavailable."""
    return msgspec.structs.replace(
        intent, recipients=tuple(_known(recipient, found) for recipient in intent.recipients)
    )


def with_preferences(intent: Intent, found: Mapping[str, Profile], now: float | None) -> Intent:
    """The intent with the preferences of its recipients; values of the producer override them.

    With `now`, in Unix seconds, quiet hours delay notifications that are not urgent.
    """
    asker = found.get(intent.asked_by or "")
    known = tuple(_with_profile(one, found, asker) for one in intent.recipients)
    told = at_local_time(msgspec.structs.replace(intent, recipients=known))
    if now is None or intent.priority is Priority.HIGH or intent.synchronous or intent.urgent:
        return told
    hours = {ref: profile.quiet_hours for ref, profile in found.items()}
    held = tuple(msgspec.structs.replace(one, quiet_hours=hours.get(_name(one))) for one in told.recipients)
    told = msgspec.structs.replace(told, recipients=held)
    if told.timing.digest is not None:
        # The digest meets them when it closes.
        return told
    due = now if told.scheduled_for_ms is None else max(now, told.scheduled_for_ms / 1000)
    profiles = [found[name] for name in everybody(told) if name in found]
    ends = [quiet_until(profile.quiet_hours, due) for profile in profiles if profile.quiet_hours is not None]
    latest = max((end for end in ends if end is not None), default=None)
    if latest is None:
        return told
    ends_ms = round(latest * 1000)
    timing = msgspec.structs.replace(told.timing, quiet_until_ms=ends_ms)
    return msgspec.structs.replace(told, scheduled_for_ms=ends_ms, timing=timing)


def timed(intent: Intent, tell: Tell | None) -> Intent:
    """The intent with its schedule as a moment; tells of quiet hours that move it."""
    ends_ms = intent.timing.quiet_until_ms
    if tell is not None and ends_ms is not None:
        tell(QUIET_HOURS, {"notBefore": ends_ms, "because": "quiet hours"})
    return at_local_time(intent)


def zone_of(profile: Profile) -> str | None:
    """The person's time zone; without one, that of the quiet hours."""
    return profile.time_zone or (None if profile.quiet_hours is None else profile.quiet_hours.timezone)


def at_local_time(intent: Intent) -> Intent:
    """The intent with its schedule as a moment, if it names a time on the recipient's clock; UTC without a zone.

    A time that a change of clocks skips is moved by the length of the gap; of a time that comes twice, the first one
    counts.
    """
    said = intent.timing.local_time
    if said is None:
        return intent
    if len({one.time_zone for one in intent.recipients}) > 1:
        wanted = "timeZone: the recipients live in several time zones; send to each of them"
        raise BadIntent("VALIDATION_ERROR", wanted, field="timeZone")
    zone = next((one.time_zone for one in intent.recipients), None) or "UTC"
    moment = dt.datetime.fromisoformat(said).replace(tzinfo=ZoneInfo(zone)).timestamp()
    timing = msgspec.structs.replace(intent.timing, local_time=None)
    at_ms = min(max(0, round(moment * 1000)), LATEST_MS)
    return msgspec.structs.replace(intent, scheduled_for_ms=at_ms, timing=timing)


def _with_profile(recipient: Recipient, found: Mapping[str, Profile], asker: Profile | None) -> Recipient:
    profile = found.get(_name(recipient))
    language = None if asker is None else asker.locale
    if profile is None:
        return msgspec.structs.replace(recipient, locale=recipient.locale or language)
    return msgspec.structs.replace(
        recipient,
        addresses=profile.addresses | recipient.addresses,
        locale=recipient.locale or profile.locale or language,
        time_zone=recipient.time_zone or zone_of(profile),
        refused=profile.refused,
        chosen=profile.chosen,
        given=recipient,
    )


def _known(recipient: Recipient, found: Mapping[str, Found]) -> Recipient:
    if recipient.user_id is None:
        return recipient
    match found[recipient.user_id]:
        case Profile() as profile:
            return Recipient(
                ref=recipient.ref,
                user_id=recipient.user_id,
                addresses=recipient.addresses | profile.addresses,
                locale=profile.locale or recipient.locale,
                unreachable=recipient.unreachable | profile.unreachable,
                time_zone=profile.time_zone or recipient.time_zone,
            )
        case NoSuchPerson():
            raise BadIntent(
                "recipient_not_found", f"the directory knows no {recipient.user_id}", field="recipient_user_ids"
            )
        case NotAnswered(error):
            raise DirectoryUnavailable(error)


class StoredPeople:
    """Reads stored preferences; concurrent requests share one query."""

    def __init__(
        self,
        ledger: PreferenceLedger,
        holidays: Mapping[str, Sequence[str]] = MappingProxyType({}),
        *,
        max_batch: int = 500,
        max_pending: int = 10_000,
    ) -> None:
        """`holidays` are the calendars that people may name in their quiet hours."""
        self._ledger = ledger
        self._holidays = holidays
        self._questions: Coalescer[tuple[str | None, str], Preferences | None] = Coalescer(
            self._ask, max_batch=max_batch, max_pending=max_pending
        )

    async def profile(self, tenant_id: str | None, user_id: str) -> Profile | None:
        said = await self._questions.add((tenant_id, user_id))
        return None if said is None else profile_of(said, self._holidays)

    async def profiles(self, tenant_id: str | None, users: Sequence[str]) -> dict[str, Profile]:
        """The profiles of those who have one, by id."""
        profiles = await asyncio.gather(*(self.profile(tenant_id, user) for user in users))
        return {user: profile for user, profile in zip(users, profiles, strict=True) if profile is not None}

    async def _ask(self, asked: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        return await self._ledger.preferences(asked)


class PreferenceLookup:
    """Adds the stored preferences of its recipients to an intent."""

    def __init__(self, stored: "StoredPeople", clock: Clock, *, quiet_hours: bool = False) -> None:
        self._stored = stored
        self._clock = clock
        self._quiet_hours = quiet_hours

    async def __call__(self, intent: Intent) -> Intent:
        # A bare address has no preferences but the categories that its owner has left.
        users = people(intent) if intent.category is None else everybody(intent)
        users += [] if intent.asked_by is None else [intent.asked_by]
        found = await self._stored.profiles(intent.tenant_id, users) if users else {}
        if not found:
            return intent
        return with_preferences(to_oneself(intent, found), found, self._clock.wall() if self._quiet_hours else None)

    async def choices(self, intent: Intent) -> Intent:
        """Add only what people chose by category and channel, where others say how people are reached."""
        timing = intent.timing
        if intent.category is None and timing.local_time is None and timing.digest is None:
            return intent
        users = everybody(intent) + ([] if intent.asked_by is None else [intent.asked_by])
        found = await self._stored.profiles(intent.tenant_id, users)
        return with_choices(to_oneself(intent, found), found) if found else intent


def profile_of(said: Preferences, holidays: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Profile:
    """The part of a person's preferences that acceptance needs."""
    quiet = said.quiet_hours
    return Profile(
        addresses={CONTACTS[kind]: address for kind, address in said.contacts.items() if kind in CONTACTS},
        locale=said.preferred_locale,
        refused=switched_off(said.channels),
        chosen=said.categories,
        time_zone=said.time_zone,
        quiet_hours=None if quiet is None else _zoned(quiet, said.time_zone, holidays),
    )


def _zoned(hours: QuietHours, time_zone: str | None, holidays: Mapping[str, Sequence[str]]) -> QuietHours:
    """Quiet hours in a zone, their own or the person's, with the days of their calendar."""
    off = holidays.get(hours.holidays or "", ())
    return msgspec.structs.replace(hours, timezone=hours.timezone or time_zone or "UTC", off_days=tuple(off))
