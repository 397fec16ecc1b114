"""Subscriptions, what payments made of them, and usage, in PostgreSQL."""

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
from carillon.ledger.postgres.payments import PostgresPayments
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import plain


class PostgresSubscriptions(PostgresPayments):
    """Satisfies SubscriptionLedger, and PaymentLedger, with which it shares the messages on their way."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def add_subscription(
        self, subscription_id: str, user_id: str, plan_id: str, messages: Sequence[Outgoing], *, trial: bool
    ) -> tuple[Subscription, bool]:
        async def work(connection: Connection) -> tuple[Subscription, bool]:
            async with connection.transaction():
                made = await connection.fetchrow(
                    self._sql["add_subscription"], subscription_id, user_id, plan_id, trial
                )
                if made is not None:
                    await self._enter_outgoing(connection, messages)
                (found,) = [made] if made else await connection.fetch(self._sql["subscription"], subscription_id)
                return rows.subscription(plain(found.items())), made is not None

        # Not repeated: a commit whose answer was lost would look like somebody else's.
        return await self._pools.intake.run(work, repeatable=False)

    async def subscription(self, subscription_id: str) -> Subscription | None:
        found = await self._pools.reads.run(
            lambda c: c.fetchrow(self._sql["subscription"], subscription_id), repeatable=True
        )
        return None if found is None else rows.subscription(plain(found.items()))

    async def change_plan(self, subscription_id: str, plan_id: str) -> bool:
        found = await self._pools.intake.run(
            lambda c: c.fetchrow(self._sql["change_plan"], subscription_id, plan_id), repeatable=True
        )
        return found is not None

    async def take_payment_event(self, event: PaymentEvent, payload: str, plans: Plans) -> Taken:
        async def work(connection: Connection) -> Taken:
            async with connection.transaction():
                if await connection.fetchval(self._sql["enter_payment_event"], event.event_id, payload):
                    return "duplicate"
                found = await connection.fetchrow(self._sql["lock_subscription"], event.subscription_id)
                if found is None:
                    return UnknownSubscription(event.subscription_id)
                made = change(rows.subscription(plain(found.items())), event, plans)
                values = (made.status, made.plan_id, made.trial, made.days)
                await connection.execute(self._sql["change_subscription"], event.subscription_id, *values)
                await connection.execute(self._sql["finish_payment_event"], event.event_id)
                return "processed"

        # Repeating is harmless: the row says whether the first time was carried out.
        return await self._pools.intake.run(work, repeatable=True)

    async def fail_payment_event(self, event_id: str, payload: str, error: str) -> None:
        await self._pools.intake.run(
            lambda c: c.execute(self._sql["fail_payment_event"], event_id, payload, error), repeatable=False
        )

    async def payment_event(self, event_id: str) -> EventRow | None:
        found = await self._pools.reads.run(lambda c: c.fetchrow(self._sql["payment_event"], event_id), repeatable=True)
        return None if found is None else rows.event(plain(found.items()))

    async def add_usage(
        self, message_id: str, user_id: str, feature_name: str, delta: int, reset_at: float | None
    ) -> None:
        values = (message_id, user_id, feature_name, delta, reset_at)
        await self._pools.intake.run(lambda c: c.execute(self._sql["add_usage"], *values), repeatable=True)

    async def usage_of(self, user_id: str) -> list[Usage]:
        found = await self._pools.reads.run(lambda c: c.fetch(self._sql["usage_of"], user_id), repeatable=True)
        return [rows.usage(plain(row.items())) for row in found]
