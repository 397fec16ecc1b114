"""Subscriptions, what payments made of them, and usage, in SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence

from carillon.domain.billing import (
    EventRow,
    Outgoing,
    PaymentEvent,
    Plans,
    Subscription,
    Taken,
    UnknownSubscription,
    Usage,
    change,
)
from carillon.ledger import billing_rows as rows
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.sqlite.payments import SqlitePayments


class SqliteSubscriptions(SqlitePayments):
    """Satisfies SubscriptionLedger, and PaymentLedger, with which it shares the messages on their way."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def add_subscription(
        self, subscription_id: str, user_id: str, plan_id: str, messages: Sequence[Outgoing], *, trial: bool
    ) -> tuple[Subscription, bool]:
        def work(connection: sqlite3.Connection, now: int) -> tuple[Subscription, bool]:
            values = (subscription_id, user_id, plan_id, trial, now)
            made = connection.execute(self._sql["add_subscription"], values).fetchone()
            if made is not None:
                self._enter_outgoing(connection, now, messages)
            found = made or connection.execute(self._sql["subscription"], (subscription_id,)).fetchone()
            return rows.subscription(dict(found)), made is not None

        return await self._file.write(work)

    async def subscription(self, subscription_id: str) -> Subscription | None:
        row = await self._file.read(
            lambda connection, _: connection.execute(self._sql["subscription"], (subscription_id,)).fetchone()
        )
        return None if row is None else rows.subscription(dict(row))

    async def change_plan(self, subscription_id: str, plan_id: str) -> bool:
        row = await self._file.write(
            lambda connection, now: connection.execute(
                self._sql["change_plan"], (subscription_id, plan_id, now)
            ).fetchone()
        )
        return row is not None

    async def take_payment_event(self, event: PaymentEvent, payload: str, plans: Plans) -> Taken:
        def work(connection: sqlite3.Connection, now: int) -> Taken:
            if connection.execute(self._sql["enter_payment_event"], (event.event_id, payload)).fetchone()[0]:
                return "duplicate"
            found = connection.execute(self._sql["subscription"], (event.subscription_id,)).fetchone()
            if found is None:
                return UnknownSubscription(event.subscription_id)
            made = change(rows.subscription(dict(found)), event, plans)
            values = (event.subscription_id, made.status, made.plan_id, made.trial, made.days, now)
            connection.execute(self._sql["change_subscription"], values)
            connection.execute(self._sql["finish_payment_event"], (event.event_id, now))
            return "processed"

        return await self._file.write(work)

    async def fail_payment_event(self, event_id: str, payload: str, error: str) -> None:
        values = (event_id, payload, error)
        await self._file.write(lambda connection, _: connection.execute(self._sql["fail_payment_event"], values))

    async def payment_event(self, event_id: str) -> EventRow | None:
        row = await self._file.read(
            lambda connection, _: connection.execute(self._sql["payment_event"], (event_id,)).fetchone()
        )
        return None if row is None else rows.event(dict(row))

    async def add_usage(
        self, message_id: str, user_id: str, feature_name: str, delta: int, reset_at: float | None
    ) -> None:
        def work(connection: sqlite3.Connection, now: int) -> None:
            entry = (message_id, user_id, feature_name, delta, now)
            if connection.execute(self._sql["enter_usage"], entry).fetchone() is not None:
                connection.execute(self._sql["add_usage"], (user_id, feature_name, delta, reset_at, now))

        await self._file.write(work)

    async def usage_of(self, user_id: str) -> list[Usage]:
        found = await self._file.read(
            lambda connection, _: connection.execute(self._sql["usage_of"], (user_id,)).fetchall()
        )
        return [rows.usage(dict(row)) for row in found]
