"""The billing services with exactly one guard switched off: `python -m tests.support.billing_mutant NAME serve …`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from carillon import cli
from carillon.blueprints.billing import store
from carillon.blueprints.billing.domain import LifeRules, Outgoing, Refund, Taken
from carillon.blueprints.billing.store import BillingStore
from carillon.compose.queues import QueueParts
from carillon.domain.store import Ask
from carillon.ledger.postgres.engine import PostgresEngine
from carillon.ledger.sealing import Codec
from tests.support.ending import LATE
from tests.support.mutant import answered, nothing_is_paused, vars_of


def no_outbox() -> None:
    """Messages go straight to the queue after the commit, and nobody remembers them."""

    def forget(_messages: Sequence[Outgoing]) -> Ask:
        return Ask("add_outgoing", each=[])

    vars(store).update(_add_outgoing=forget)


def no_event_memory() -> None:
    """Every delivery of an event is carried out."""
    take = BillingStore.take_payment_event

    async def anew(self: Any, event: Any, payload: str, plans: Any, life: LifeRules) -> Taken:
        await _execute(self, "UPDATE payment_webhook_requests SET processed = FALSE")
        return await take(self, event, payload, plans, life)

    vars_of(BillingStore, take_payment_event=anew)


def refund_per_attempt() -> None:
    """Stores a refund for every request, also for a repeat."""
    add_refund = BillingStore.add_refund

    async def none(_self: Any, _transaction_id: str) -> list[Refund]:
        return []

    async def add(self: Any, refund: Refund) -> bool:
        await _execute(self, "ALTER TABLE refunds DROP CONSTRAINT IF EXISTS refunds_transaction_id_key")
        engine = self._engine
        sql = dict(engine._sql)  # noqa: SLF001 - the guard itself
        sql["add_refund"] = sql["add_refund"].replace("ON CONFLICT (transaction_id) DO NOTHING", "")
        unguarded = PostgresEngine(engine._pools, sql, Codec())  # noqa: SLF001 - as above
        return await add_refund(BillingStore(unguarded), refund)

    vars_of(BillingStore, refunds=none, add_refund=add)


async def _execute(billing: Any, statement: str) -> None:
    pools = billing._engine._pools  # noqa: SLF001 - no statement of ours says this
    await pools.reads.run(lambda c: c.execute(statement), repeatable=True)


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
    each.__name__: each
    for each in (no_outbox, no_event_memory, refund_per_attempt, left_late, nothing_told_last, nothing_is_paused)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
