"""Delivery while the caller waits, in PostgreSQL: routes that are leased in the commit that writes them down."""

from collections.abc import Sequence

from carillon.domain.claims import Claim, held_claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.notifications import Accepted, Enrolment
from carillon.domain.synchronous import HeldEnrolment
from carillon.ledger.postgres.intake import PostgresIntake
from carillon.ledger.postgres.pools import Connection


class PostgresHolding(PostgresIntake):
    """Satisfies HoldingLedger."""

    async def enrol_held(self, batch: Sequence[Enrolment], owner: str, seconds: float) -> list[HeldEnrolment]:
        if not batch:
            return []
        named = self._codec.named(batch)
        return await self._pools.intake.run(lambda c: self._enrol_held(c, named, owner, seconds), repeatable=True)

    async def queue_unheld(self, lane: int, instead: int) -> int:
        said = await self._pools.settlements.run(
            lambda c: c.execute(self._sql["queue_unheld"], lane, instead), repeatable=True
        )
        return int(said.rpartition(" ")[2])

    async def _enrol_held(
        self, connection: Connection, batch: Sequence[Enrolment], owner: str, seconds: float
    ) -> list[HeldEnrolment]:
        answers, rows = await self._enrol(batch, list(range(len(batch))), connection, owner, seconds)
        if len(answers) < len(batch):
            raise LedgerUnavailable("an idempotency key was taken and given up again while it was read")
        held = {row["notification_id"] for row in rows}
        ours = {answer.notification_id for answer in answers.values() if isinstance(answer, Accepted)}
        if not ours <= held:
            # Dead addresses, and what an earlier try of this very call has written.
            rows += await connection.fetch(self._sql["hold"], list(ours - held), owner, seconds)
        claims: dict[str, list[Claim]] = {key: [] for key in ours}
        enrolments = {enrolment.notification.notification_id: enrolment for enrolment in batch}
        for key, *held_as in rows:
            claims[key].append(held_claim(enrolments[key], *held_as))
        return [
            HeldEnrolment(answers[place], tuple(claims.pop(enrolment.notification.notification_id, ())))
            for place, enrolment in enumerate(batch)
        ]
