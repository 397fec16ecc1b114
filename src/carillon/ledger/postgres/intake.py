"""Acceptance in PostgreSQL: records, their routes, and what could not be accepted."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Accepted, Enrolled, Enrolment, Notification
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.rows import (
    RECORD_FIELDS,
    ROUTE_FIELDS,
    answer_for_loser,
    malformed_values,
    record_values,
    route_rows,
)
from carillon.ledger.sealing import Codec

_ROUNDS = 3


class PostgresIntake:
    """Satisfies IntakeLedger and LookupLedger."""

    _pools: Pools
    _sql: Mapping[str, str]
    _codec: Codec

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        batch = self._codec.named(batch)
        answers: dict[int, Enrolled] = {}
        # A winner that was pruned between our two statements leaves neither of us in the ledger: then we try again.
        for _ in range(_ROUNDS):
            open_places = [place for place in range(len(batch)) if place not in answers]
            if not open_places:
                break
            found, _ = await self._pools.intake.run(partial(self._enrol, batch, open_places), repeatable=True)
            answers |= found
        if len(answers) < len(batch):
            raise LedgerUnavailable("idempotency keys were taken and given up again faster than they could be read")
        return [answers[place] for place in range(len(batch))]

    async def foresee(self, notification: Notification) -> Enrolled | None:
        """What `enrol` would answer by what is written down; None where nothing stands in the way."""
        if notification.idempotency_key is None:
            return None
        asked = ([notification.notification_id], [notification.producer], [notification.idempotency_key])
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["winners"], *asked), repeatable=True)
        return answer_for_loser(notification, dict(rows[0])) if rows else None

    async def park(self, malformed: Sequence[Malformed]) -> None:
        if not malformed:
            return
        values = (malformed_values(each, self._codec) for each in reversed(malformed))
        rows = sorted({row[0]: row for row in values}.values())
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._pools.intake.run(lambda c: c.execute(self._sql["park"], *columns), repeatable=True)

    async def _enrol(
        self,
        batch: Sequence[Enrolment],
        places: list[int],
        connection: Connection,
        owner: str | None = None,
        seconds: float | None = None,
    ) -> tuple[dict[int, Enrolled], list[asyncpg.Record]]:
        """Answers by place, and a row for each route that `owner` holds from now on."""
        order = _first_of_each_id(batch, places)
        first = [batch[place] for place in order]
        rows = [(*record_values(batch[place].notification, self._codec), place) for place in order]
        routes = [(*row, place) for place in order for row in route_rows(batch[place], self._codec)]
        records = _columns(rows, len(RECORD_FIELDS) + 1)
        laid = _columns(routes, len(ROUTE_FIELDS) + 4)
        found = await connection.fetch(self._sql["enrol"], *records, *laid, owner, seconds)
        written = {row[0] for row in found}
        answers: dict[int, Enrolled] = {}
        lost: list[int] = []
        contents = {each.notification.notification_id: each.notification.request_fingerprint for each in first}
        for place in places:
            notification = batch[place].notification
            key = notification.notification_id
            if key in written and contents[key] == notification.request_fingerprint:
                answers[place] = Accepted(key)
            else:
                lost.append(place)
        held = [] if owner is None else [row for row in found if row["token"] is not None]
        return answers | await self._answer_losers(connection, batch, lost), held

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
                answers[place] = answer_for_loser(loser, winner) or Accepted(loser.notification_id)
        return answers


def _winner(
    loser: Notification, by_id: Mapping[str, Any], by_key: Mapping[tuple[str, str | None], Any]
) -> Mapping[str, Any] | None:
    return by_id.get(loser.notification_id) or by_key.get((loser.producer, loser.idempotency_key))


def _first_of_each_id(batch: Sequence[Enrolment], places: list[int]) -> list[int]:
    """Without repeats of an id, and in the order of the keys: the order in which rivals wait for each other."""
    seen: dict[str, int] = {}
    for place in places:
        seen.setdefault(batch[place].notification.notification_id, place)
    return sorted(seen.values(), key=lambda place: _lock_order(batch[place].notification))


def _lock_order(notification: Notification) -> tuple[str, str]:
    return (notification.producer, notification.idempotency_key or "")


def _columns(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """One array a column; where nobody says anything it is empty, and `unnest` fills it up with NULLs by itself."""
    return [[] if _is_unsaid(column) else list(column) for column in zip(*rows, strict=True)] or [[]] * width


def _is_unsaid(column: tuple[Any, ...]) -> bool:
    return column[0] is None and column.count(None) == len(column)
