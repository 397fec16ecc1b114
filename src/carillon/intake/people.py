"""People as they described themselves: their contacts, language, channels and quiet hours."""

import asyncio
from collections.abc import Sequence

from carillon.coalesce import Coalescer
from carillon.domain.intents import Intent
from carillon.domain.people import CONTACTS, PreferenceLedger, Preferences, Profile
from carillon.domain.ports import Clock, People
from carillon.intake.enrich import acquaint, people


class StoredPeople:
    """Satisfies People; questions that arise together are one query."""

    def __init__(self, ledger: PreferenceLedger, *, max_batch: int = 500, max_pending: int = 10_000) -> None:
        self._ledger = ledger
        self._questions: Coalescer[tuple[str | None, str], Preferences | None] = Coalescer(
            self._ask, max_batch=max_batch, max_pending=max_pending
        )

    async def profile(self, tenant_id: str | None, user_id: str) -> Profile | None:
        said = await self._questions.add((tenant_id, user_id))
        return None if said is None else profile_of(said)

    async def _ask(self, asked: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        return await self._ledger.preferences(asked)


class Acquaintance:
    """Adds to an intent what its people said about themselves."""

    def __init__(self, known: People, clock: Clock, *, quiet_hours: bool = False) -> None:
        self._known = known
        self._clock = clock
        self._quiet_hours = quiet_hours

    async def __call__(self, intent: Intent) -> Intent:
        users = people(intent)
        if not users:
            return intent
        profiles = await asyncio.gather(*(self._known.profile(intent.tenant_id, user) for user in users))
        found = {user: profile for user, profile in zip(users, profiles, strict=True) if profile is not None}
        if not found:
            return intent
        return acquaint(intent, found, self._clock.wall() if self._quiet_hours else None)


def profile_of(said: Preferences) -> Profile:
    """What acceptance needs of somebody's preferences."""
    return Profile(
        addresses={CONTACTS[kind]: address for kind, address in said.contacts.items() if kind in CONTACTS},
        locale=said.preferred_locale,
        refused=frozenset(channel for channel, wanted in said.channels.items() if not wanted),
        quiet_hours=said.quiet_hours,
    )
