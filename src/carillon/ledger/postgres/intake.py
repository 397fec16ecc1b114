"""Acceptance in PostgreSQL: records and their routes, queued or claimed at once, and malformed intents."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from carillon.domain.claims import Claim, first_claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Accepted, Enrolled, Enrolment, Notification
from carillon.domain.suppressions import SuppressedRoute
from carillon.domain.synchronous import ClaimedEnrolment
from carillon.ledger.leases import LeaseBook
from carillon.ledger.postgres.engine import PostgresEngine
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.rows import (
    RECORD_FIELDS,
    ROUTE_FIELDS,
    answer_for_loser,
    malformed_values,
    record_values,
    route_rows,
    suppressed_route,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.statements import without
from carillon.ledger.throttles import counted
from carillon.ledger.timing import has_timing, stored, with_timing

_ROUNDS = 3


class _FirstClaims(msgspec.Struct, frozen=True):
    """Who gets the first claim of each route, for how long, and the places of the groups with a cap."""

    owner: str | None
    seconds: float | None
    groups: list[int]
    """In the order of locking."""
    calls: list[int]


_NO_CLAIMS = _FirstClaims(None, None, [], [])


class PostgresIntake:
    """Satisfies IntakeLedger, LookupLedger and SynchronousLedger."""

    _pools: Pools
    _engine: PostgresEngine
    _sql: Mapping[str, str]
    _codec: Codec
    _leases: LeaseBook

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        batch = self._codec.named(batch)
        answers: dict[int, Enrolled] = {}
        # If the winner was pruned between the two statements, neither row is in the ledger: try again.
        for _ in range(_ROUNDS):
            open_places = [place for place in range(len(batch)) if place not in answers]
            if not open_places:
                break
            found, _ = await self._pools.intake.run(partial(self._enrol, batch, open_places), repeatable=True)
            answers |= found
        if len(answers) < len(batch):
            raise LedgerUnavailable("retention deleted records of idempotency keys while they were read; try again")
        return [answers[place] for place in range(len(batch))]

    async def look_up_earlier(self, notification: Notification) -> Enrolled | None:
        """The answer of `enrol` if the idempotency key was used before; None if it would be accepted."""
        if notification.idempotency_key is None:
            return None
        asked = ([notification.notification_id], [notification.producer], [notification.idempotency_key])
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["winners"], *asked), repeatable=True)
        answer = answer_for_loser(notification, dict(rows[0])) if rows else None
        return None if isinstance(answer, Accepted) else answer

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        if not malformed:
            return
        values = (malformed_values(each, self._codec) for each in reversed(malformed))
        rows = sorted({row[0]: row for row in values}.values())
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._pools.intake.run(lambda c: c.execute(self._sql["keep_malformed"], *columns), repeatable=True)

    async def _enrol(
        self,
        batch: Sequence[Enrolment],
        places: list[int],
        connection: Connection,
        first_claims: _FirstClaims = _NO_CLAIMS,
    ) -> tuple[dict[int, Enrolled], list[asyncpg.Record]]:
        """The answers by position in the batch; a row for each record written here, and one for each route claimed."""
        if not any(has_timing(batch[place]) for place in places):
            answers, found, _ = await self._enrol_rows(batch, places, connection, first_claims)
            return answers, found
        async with connection.transaction():
            throttles = await self._engine.drive(connection, counted([batch[place] for place in places]))
            taken = set(places)
            judged = [throttles.judged(each) if at in taken else each for at, each in enumerate(batch)]
            answers, found, written = await self._enrol_rows(judged, places, connection, first_claims)
            steps = stored([judged[place] for place in places], written, throttles)
            gone = await self._engine.drive(connection, steps)
        return with_timing(answers, gone, throttles), found

    async def _enrol_rows(
        self, batch: Sequence[Enrolment], places: list[int], connection: Connection, first_claims: _FirstClaims
    ) -> tuple[dict[int, Enrolled], list[asyncpg.Record], set[str]]:
        """The same, and the ids of the notifications that were not in the ledger before."""
        order = _first_of_each_id(batch, places)
        first = [batch[place] for place in order]
        rows = [(*record_values(batch[place].notification, self._codec), place) for place in order]
        routes = [(*row, place) for place in order for row in route_rows(batch[place], self._codec)]
        records = _columns(rows, len(RECORD_FIELDS) + 1)
        laid = _columns(routes, len(ROUTE_FIELDS) + 4)
        enrol, holder = self._sql["enrol"], msgspec.structs.astuple(first_claims)
        if first_claims.groups:
            found = await connection.fetch(without(enrol, "no first claims"), *records, *laid, *holder)
        else:
            passage = "first claims" if first_claims.owner is None else "no first claims"
            found = await connection.fetch(without(without(enrol, "caps"), passage), *records, *laid, *holder[:2])
        written = {row[0] for row in found}
        suppressed = _suppressed(found)
        answers: dict[int, Enrolled] = {}
        lost: list[int] = []
        contents = {each.notification.notification_id: each.notification.request_fingerprint for each in first}
        for place in places:
            notification = batch[place].notification
            key = notification.notification_id
            if key in written and contents[key] == notification.request_fingerprint:
                answers[place] = Accepted(key, suppressed.get(key, ()))
            else:
                lost.append(place)
        return answers | await self._answer_losers(connection, batch, lost), found, written

    async def _answer_losers(
        self, connection: Connection, batch: Sequence[Enrolment], lost: list[int]
    ) -> dict[int, Enrolled]:
        if not lost:
            return {}
        losers = {place: batch[place].notification for place in lost}
        ids = [loser.notification_id for loser in losers.values()]
        keyed = [loser for loser in losers.values() if loser.idempotency_key is not None]
        rows = await connection.fetch(
            self._sql["winners"], ids, [loser.producer for loser in keyed], [loser.idempotency_key for loser in keyed]
        )
        by_id = {row["notification_id"]: row for row in rows}
        by_key = {(row["producer"], row["idempotency_key"]): row for row in rows if row["idempotency_key"] is not None}
        answers: dict[int, Enrolled] = {}
        for place, loser in losers.items():
            winner = _winner(loser, by_id, by_key)
            if winner is not None:
                answers[place] = answer_for_loser(loser, winner)
        return answers

    async def enrol_claimed(
        self, batch: Sequence[Enrolment], owner: str, seconds: float, caps: Mapping[int, int] | None = None
    ) -> list[ClaimedEnrolment]:
        if not batch:
            return []
        named = self._codec.named(batch)
        return await self._pools.intake.run(
            lambda c: self._enrol_claimed(c, named, owner, seconds, caps or {}), repeatable=True
        )

    async def queue_unclaimed(self, lane: int, instead: int) -> int:
        said = await self._pools.settlements.run(
            lambda c: c.execute(self._sql["queue_unclaimed"], lane, instead), repeatable=True
        )
        return int(said.rpartition(" ")[2])

    async def _enrol_claimed(
        self,
        connection: Connection,
        batch: Sequence[Enrolment],
        owner: str,
        seconds: float,
        caps: Mapping[int, int],
    ) -> list[ClaimedEnrolment]:
        places = list(range(len(batch)))
        numbers = sorted(caps)
        wanted = _FirstClaims(owner, seconds, numbers, [caps[number] for number in numbers])
        answers, found = await self._enrol(batch, places, connection, wanted)
        if len(answers) < len(batch):
            raise LedgerUnavailable("retention deleted the record of an idempotency key while it was read; try again")
        rows = [row for row in found if row["token"] is not None]
        ours = {answer.notification_id for answer in answers.values() if isinstance(answer, Accepted)}
        repeated = ours.difference(row["notification_id"] for row in found)
        if repeated:
            # An earlier try of this call has written and claimed them; or they came before, and are being sent.
            known = self._leases.known()
            rows += await connection.fetch(self._sql["claim_enrolled"], list(repeated), owner, seconds, known)
        claims: dict[str, list[Claim]] = {key: [] for key in ours}
        enrolments = {enrolment.notification.notification_id: enrolment for enrolment in batch}
        for row in rows:
            key, route_id, token, accepted_at_ms, place, lease = row[:6]
            claims[key].append(first_claim(enrolments[key], route_id, token, accepted_at_ms, place, lease=lease))
        self._leases.took(claim for each in claims.values() for claim in each)
        return [
            ClaimedEnrolment(answers[place], tuple(claims.pop(enrolment.notification.notification_id, ())))
            for place, enrolment in enumerate(batch)
        ]


def _suppressed(found: Sequence[asyncpg.Record]) -> dict[str, tuple[SuppressedRoute, ...]]:
    """The routes that are skipped because their address is suppressed, by notification; nearly always none."""
    routes: dict[str, tuple[SuppressedRoute, ...]] = {}
    for row in found:
        if row["suppression_id"] is not None:
            key = row["notification_id"]
            routes[key] = (*routes.get(key, ()), suppressed_route(dict(row)))
    return routes


def _winner(
    loser: Notification, by_id: Mapping[str, Any], by_key: Mapping[tuple[str, str | None], Any]
) -> Mapping[str, Any] | None:
    return by_id.get(loser.notification_id) or by_key.get((loser.producer, loser.idempotency_key))


def _first_of_each_id(batch: Sequence[Enrolment], places: list[int]) -> list[int]:
    """Without repeats of an id, in the order of the keys, which is the order of locking."""
    seen: dict[str, int] = {}
    for place in places:
        seen.setdefault(batch[place].notification.notification_id, place)
    return sorted(seen.values(), key=lambda place: _lock_order(batch[place].notification))


def _lock_order(notification: Notification) -> tuple[str, str]:
    return (notification.producer, notification.idempotency_key or "")


def _columns(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """One array a column; a column of NULLs becomes an empty array, which `unnest` fills with NULLs."""
    return [[] if _is_null(column) else list(column) for column in zip(*rows, strict=True)] or [[]] * width


def _is_null(column: tuple[Any, ...]) -> bool:
    return column[0] is None and column.count(None) == len(column)
