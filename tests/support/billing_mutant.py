"""The billing services with exactly one guard switched off: `python -m tests.support.billing_mutant NAME serve …`."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from carillon import cli
from carillon.compose.deadline import Deadline
from carillon.compose.queues import QueueParts
from carillon.domain.billing import Outgoing, Refund, Taken
from carillon.ledger import billing_rows, postgres_payments, postgres_pools, postgres_subscriptions
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


def silence_waited_out() -> None:
    """At its end a process waits for whatever a silent PostgreSQL owes it, its callers and its job logs."""
    vars_of(postgres_pools.Pools, cut_off=lambda _self: None)
    vars_of(Deadline, left=lambda _self: math.inf)
    vars_of(QueueParts, tell_last=lambda self: answered(self.ledger))


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (no_outbox, no_event_memory, refund_per_attempt, silence_waited_out)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
