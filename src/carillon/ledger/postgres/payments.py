"""Payments, refunds, and messages on their way to a queue, in PostgreSQL."""

from collections.abc import Mapping, Sequence

from carillon.domain.billing import Outgoing, Payment, Refund
from carillon.ledger import billing_rows as rows
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.questions import plain


class PostgresPayments:
    """Satisfies PaymentLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def payment_by_key(self, subscription_id: str, idempotency_key: str) -> Payment | None:
        return await self._one_payment("payment_by_key", subscription_id, idempotency_key)

    async def payment(self, transaction_id: str) -> Payment | None:
        return await self._one_payment("payment", transaction_id)

    async def _one_payment(self, statement: str, *values: str) -> Payment | None:
        found = await self._pools.reads.run(lambda c: c.fetchrow(self._sql[statement], *values), repeatable=True)
        return None if found is None else rows.payment(plain(found.items()))

    async def add_payment(self, payment: Payment, messages: Sequence[Outgoing]) -> Payment | None:
        async def work(connection: Connection) -> Payment | None:
            async with connection.transaction():
                found = await connection.fetchrow(self._sql["add_payment"], *rows.payment_values(payment))
                if found is None:
                    return None
                await self._enter_outgoing(connection, messages)
                return rows.payment(plain(found.items()))

        # Not repeated: a commit whose answer was lost would look like somebody else's payment.
        return await self._pools.intake.run(work, repeatable=False)

    async def add_refund(self, refund: Refund) -> bool:
        found = await self._pools.intake.run(
            lambda c: c.fetchrow(self._sql["add_refund"], *rows.refund_values(refund)), repeatable=True
        )
        return found is not None

    async def refunds(self, transaction_id: str) -> list[Refund]:
        found = await self._pools.reads.run(lambda c: c.fetch(self._sql["refunds"], transaction_id), repeatable=True)
        return [rows.refund(plain(row.items())) for row in found]

    async def add_outgoing(self, messages: Sequence[Outgoing]) -> None:
        await self._pools.intake.run(lambda c: self._enter_outgoing(c, messages), repeatable=True)

    async def _enter_outgoing(self, connection: Connection, messages: Sequence[Outgoing]) -> None:
        columns = [list(column) for column in zip(*map(rows.outgoing_values, messages), strict=True)]
        if columns:
            await connection.execute(self._sql["add_outgoing"], *columns, rows.OUTGOING_LEASE_SECONDS)

    async def due_outgoing(self, limit: int, lease_seconds: float) -> list[Outgoing]:
        # Not repeated when the connection breaks: what was taken unheard comes back by itself when its lease ends.
        found = await self._pools.claims.run(
            lambda c: c.fetch(self._sql["due_outgoing"], limit, lease_seconds), repeatable=False
        )
        return rows.outgoing([plain(row.items()) for row in found])

    async def drop_outgoing(self, message_ids: Sequence[str]) -> None:
        ids = sorted(message_ids)
        await self._pools.settlements.run(lambda c: c.execute(self._sql["drop_outgoing"], ids), repeatable=True)
