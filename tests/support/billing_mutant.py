"""The billing services with exactly one guard switched off: `python -m tests.support.billing_mutant NAME serve …`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from carillon import cli
from carillon.compose.queues import QueueParts
from carillon.domain.billing import Outgoing, Refund, Taken
from carillon.ledger import billing_rows
from carillon.ledger.postgres import payments as postgres_payments
from carillon.ledger.postgres import subscriptions as postgres_subscriptions
from tests.support.ending import LATE
from tests.support.mutant import answered, vars_of


def no_outbox() -> None:
    """Messages go straight to the queue after the commit, and nobody remembers them."""

    async def forget(_self: Any, _connection: Any, _messages: Sequence[Outgoing]) -> None:
        return

    vars_of(postgres_payments.PostgresPayments, _enter_outgoing=forget)


def no_event_memory() -> None:
    """Every delivery of an event is carried out."""
    take = postgres_subscriptions.PostgresSubscriptions.take_payment_event

    async def anew(self: Any, event: Any, payload: str, plans: Any) -> Taken:
        await self._pools.reads.run(
            lambda c: c.execute("UPDATE payment_webhook_requests SET processed = FALSE"), repeatable=True
        )
        return await take(self, event, payload, plans)

    vars_of(postgres_subscriptions.PostgresSubscriptions, take_payment_event=anew)


def refund_per_attempt() -> None:
    """A refund is written down for whoever asks."""

    async def none(_self: Any, _transaction_id: str) -> list[Refund]:
        return []

    async def add(self: Any, refund: Refund) -> bool:
        await self._pools.reads.run(
            lambda c: c.execute("ALTER TABLE refunds DROP CONSTRAINT IF EXISTS refunds_transaction_id_key"),
            repeatable=True,
        )
        statement = self._sql["add_refund"].replace("ON CONFLICT (transaction_id) DO NOTHING", "")
        values = billing_rows.refund_values(refund)
        await self._pools.reads.run(lambda c: c.execute(statement, *values), repeatable=True)
        return True

    vars_of(postgres_payments.PostgresPayments, refunds=none, add_refund=add)


def left_late() -> None:
    """At its end a process waits for a silent PostgreSQL longer than it may."""
    tell_last = QueueParts.tell_last

    async def late(self: QueueParts) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(answered(self.ledger), LATE)
        await tell_last(self)

    vars_of(QueueParts, tell_last=late)


def nothing_told_last() -> None:
    """At its end a process waits for no job log that is being written."""

    async def leave(_self: QueueParts) -> None:
        return

    vars_of(QueueParts, tell_last=leave)


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_outbox, no_event_memory, refund_per_attempt, left_late, nothing_told_last)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
