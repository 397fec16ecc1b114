"""What PostgreSQL's ledger knows about a request that nobody has written down."""

from collections.abc import Mapping

from carillon.domain.notifications import Enrolled, Notification
from carillon.ledger.postgres.pools import Pools
from carillon.ledger.rows import answer_for_loser


class PostgresForesight:
    """Satisfies ForesightLedger, with the receipts' list of silences."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def foresee(self, notification: Notification) -> Enrolled | None:
        if notification.idempotency_key is None:
            return None
        rows = await self._pools.reads.run(
            lambda c: c.fetch(
                self._sql["winners"],
                [notification.notification_id],
                [notification.producer],
                [notification.idempotency_key],
            ),
            repeatable=True,
        )
        return answer_for_loser(notification, dict(rows[0])) if rows else None
