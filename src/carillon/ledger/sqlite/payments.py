"""Payments, refunds, and messages on their way to a queue, in SQLite."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from carillon.domain.billing import Outgoing, Payment, Refund
from carillon.ledger import billing_rows as rows
from carillon.ledger.sqlite.file import SqliteFile


class SqlitePayments:
    """Satisfies PaymentLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def payment_by_key(self, subscription_id: str, idempotency_key: str) -> Payment | None:
        return await self._one_payment("payment_by_key", subscription_id, idempotency_key)

    async def payment(self, transaction_id: str) -> Payment | None:
        return await self._one_payment("payment", transaction_id)

    async def _one_payment(self, statement: str, *values: str) -> Payment | None:
        row = await self._file.read(lambda connection, _: connection.execute(self._sql[statement], values).fetchone())
        return None if row is None else rows.payment(dict(row))

    async def add_payment(self, payment: Payment, messages: Sequence[Outgoing]) -> Payment | None:
        values = [str(value) if value is payment.amount else value for value in rows.payment_values(payment)]

        def work(connection: sqlite3.Connection, now: int) -> Payment | None:
            row = connection.execute(self._sql["add_payment"], (*values, now)).fetchone()
            if row is None:
                return None
            self._enter_outgoing(connection, now, messages)
            return rows.payment(dict(row))

        return await self._file.write(work)

    async def add_refund(self, refund: Refund) -> bool:
        values = [str(value) if value is refund.amount else value for value in rows.refund_values(refund)]
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["add_refund"], (*values, now)).fetchone()
        )
        return row is not None

    async def refunds(self, transaction_id: str) -> list[Refund]:
        found = await self._file.read(
            lambda connection, _: connection.execute(self._sql["refunds"], (transaction_id,)).fetchall()
        )
        return [rows.refund(dict(row)) for row in found]

    async def add_outgoing(self, messages: Sequence[Outgoing]) -> None:
        await self._file.write(lambda connection, now: self._enter_outgoing(connection, now, messages))

    def _enter_outgoing(self, connection: sqlite3.Connection, now: int, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            values = (*rows.outgoing_values(message), rows.OUTGOING_LEASE_SECONDS, now)
            connection.execute(self._sql["add_outgoing"], values)

    async def due_outgoing(self, limit: int, lease_seconds: float) -> list[Outgoing]:
        found = await self._file.write_if(
            lambda connection, now: bool(connection.execute(self._sql["any_outgoing_due"], (now,)).fetchone()[0]),
            lambda connection, now: connection.execute(
                self._sql["due_outgoing"], (limit, lease_seconds, now)
            ).fetchall(),
        )
        return rows.outgoing([dict(row) for row in found or ()])

    async def drop_outgoing(self, message_ids: Sequence[str]) -> None:
        ids = json.dumps(sorted(message_ids))
        await self._file.write(lambda connection, _: connection.execute(self._sql["drop_outgoing"], (ids,)))
