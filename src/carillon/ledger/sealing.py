"""A ledger that seals what names a person on its way in and opens it on its way out; its engine sees only seals."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Enrolled, Enrolment, Route, Story
from carillon.domain.people import Preferences, Wish
from carillon.domain.receipts import Amended, AmendRules, Receipt
from carillon.domain.streams import Entry
from carillon.domain.suppressions import Silence
from carillon.domain.synchronous import HeldEnrolment
from carillon.domain.verdicts import Bury
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.rows import storable_json
from carillon.ledger.seal_rows import TABLES, again
from carillon.ledger.seals import Seals
from carillon.ledger.sqlite.ledger import SqliteLedger

if TYPE_CHECKING:
    _Engine = PostgresLedger
else:
    _Engine = object

HIDDEN = "(sealed)"
_BATCH = 500
_USER = "user:"
_SHORTEST = 5


class Sealing(_Engine):
    """Stands before an engine in the order of its bases."""

    seals: Seals

    async def _know_keys(self) -> None:
        """Refuse a ring that lacks a key in use; bring what is sealed otherwise, or not at all, under the first."""
        used = await self.seal_keys()
        missing = sorted(used - self.seals.key_ids)
        if missing:
            raise ConfigurationError(
                f"ledger.seal_keys: this ledger is sealed with the key {missing[0]}, and the keys given are "
                f"{', '.join(sorted(self.seals.key_ids))}; add that key behind the one that is to seal"
            )
        if used == {self.seals.first}:
            return
        await self.note_seal_key(self.seals.first)
        changed = 0
        for table in TABLES:
            while (count := await self.reseal(table, self.seals.pattern, again(self.seals, table), _BATCH)) > 0:
                changed += count
        # Another process may still seal with the old key: it is forgotten only when nothing of it is found any more.
        if not changed:
            await self.forget_seal_keys(self.seals.first)

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        return await super().enrol([self._enrolment(each) for each in batch])

    async def enrol_held(self, batch: Sequence[Enrolment], owner: str, seconds: float) -> list[HeldEnrolment]:
        held = await super().enrol_held([self._enrolment(each) for each in batch], owner, seconds)
        for each in held:
            self._open(each.claims)
        return held

    async def park(self, malformed: Sequence[Malformed]) -> None:
        await super().park(
            [
                replace(each, raw_fields={"sealed": self.seals.content(storable_json(each.raw_fields))})
                for each in malformed
            ]
        )

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        claims = await super().claim(wants, total, owner)
        self._open(claims)
        return claims

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await super().settle([_hidden(each) for each in settlements])

    async def amend(self, receipts: Sequence[Receipt], rules: AmendRules) -> list[Amended]:
        done = await super().amend([self._receipt(receipt) for receipt in receipts], rules)
        return [replace(each, receipt=receipt) for each, receipt in zip(done, receipts, strict=True)]

    async def amend_waiting(self, rules: AmendRules, limit: int) -> list[Amended]:
        done = await super().amend_waiting(rules, limit)
        return [
            replace(each, receipt=replace(each.receipt, address=self.seals.open(each.receipt.address))) for each in done
        ]

    async def suppress(self, silences: Sequence[Silence]) -> None:
        await super().suppress([replace(each, address=self.seals.address(each.address)) for each in silences])

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        return await super().unsuppress(channel, self.seals.address(address) or "", tenant_id)

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        rows, total = await super().suppressions(self._filters(filters, "address"), limit, offset)
        return [self.seals.opened(row) for row in rows], total

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        found = await super().story(notification_id, tenant_id)
        return None if found is None else self._story(found)

    async def search(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Story], int]:
        found, total = await super().search(self._filters(filters, "recipient"), limit, offset)
        return [self._story(each) for each in found], total

    async def preferences(self, people: Sequence[tuple[str | None, str]]) -> list[Preferences | None]:
        return [None if each is None else self._person(each) for each in await super().preferences(people)]

    async def wish(self, tenant_id: str | None, user_id: str, wish: Wish) -> Preferences:
        contacts = {kind: self.seals.content(value) for kind, value in wish.contacts.items()}
        return self._person(await super().wish(tenant_id, user_id, replace(wish, contacts=contacts)))

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        return self._unsealed(await super().append(claims))

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        return self._unsealed(await super().read(user_id, after, limit))

    async def newest_first(self, user_id: str, limit: int, before: int | None = None) -> list[Entry]:
        return self._unsealed(await super().newest_first(user_id, limit, before))

    async def waiting(self, user_id: str, limit: int) -> list[Entry]:
        return self._unsealed(await super().waiting(user_id, limit))

    def _unsealed(self, entries: Sequence[Entry]) -> list[Entry]:
        return [replace(entry, payload_json=self.seals.open(entry.payload_json)) for entry in entries]

    def _enrolment(self, enrolment: Enrolment) -> Enrolment:
        record = replace(
            enrolment.notification,
            payload_json=self.seals.content(enrolment.notification.payload_json),
            metadata_json=self.seals.content(enrolment.notification.metadata_json),
        )
        return Enrolment(record, tuple(self._route(route) for route in enrolment.routes))

    def _route(self, route: Route) -> Route:
        address, ref = route.address, route.recipient_ref
        if address and ref.endswith(address) and not ref.startswith(_USER):
            # Somebody known by the address alone: within the notification any other name does as well.
            ref = ref.removesuffix(address) + self.seals.name(address)
        return replace(
            route,
            route_id=f"{route.channel}:{ref}" if ref != route.recipient_ref else route.route_id,
            recipient_ref=ref,
            address=self.seals.address(address),
            message_json=self.seals.content(route.message_json),
        )

    def _open(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            claim.address = self.seals.open(claim.address)
            claim.payload_json = self.seals.open(claim.payload_json) or ""
            claim.message_json = self.seals.open(claim.message_json)
            claim.metadata_json = self.seals.open(claim.metadata_json)

    def _receipt(self, receipt: Receipt) -> Receipt:
        return replace(
            receipt, address=self.seals.address(receipt.address), reason=_without(receipt.reason, receipt.address)
        )

    def _filters(self, filters: Mapping[str, Any], name: str) -> dict[str, Any]:
        found = dict(filters)
        if found.get(name) is not None:
            found[name] = self.seals.address(found[name])
        return found

    def _story(self, story: Story) -> Story:
        routes = [self.seals.opened(row) for row in story.routes]
        return replace(story, notification=self.seals.opened(story.notification), routes=routes)

    def _person(self, said: Preferences) -> Preferences:
        return replace(said, contacts={kind: self.seals.open(value) for kind, value in said.contacts.items()})


def _hidden(settlement: Settlement) -> Settlement:
    """Vendors repeat the address in their errors."""
    address, note, verdict = settlement.claim.address, settlement.note, settlement.verdict
    if note is not None and note.error is not None:
        note = replace(note, error=_without(note.error, address))
    if isinstance(verdict, Bury):
        verdict = replace(verdict, reason=_without(verdict.reason, address))
    return replace(settlement, note=note, verdict=verdict)


def _without(text: str | None, address: str | None) -> str | None:
    """However it is spelled; what is too short to be somebody's address would only take the text apart."""
    named = (address or "").lstrip("+")
    if not text or len(named) < _SHORTEST:
        return text
    return re.sub(re.escape(named), HIDDEN, text, flags=re.IGNORECASE)


class SealedPostgres(Sealing, PostgresLedger):
    """PostgreSQL's ledger with sealed addresses."""


class SealedSqlite(Sealing, SqliteLedger):  # type: ignore[misc] # the two engines have the same methods
    """SQLite's ledger with sealed addresses."""
