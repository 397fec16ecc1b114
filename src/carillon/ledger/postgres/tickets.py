"""Tickets that open a stream, in PostgreSQL."""

from collections.abc import Mapping

from carillon.domain.live import Ticket
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.ticket_rows import ticket_of


class PostgresTickets:
    """Satisfies TicketLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        values = (digest, ticket.user_id, ticket.tenant_id, ticket.expires_at_ms, ticket.token_id, seconds)

        async def work(connection: Connection) -> None:
            await connection.execute(self._sql["forget_tickets"])
            await connection.execute(self._sql["add_ticket"], *values)

        await self._pools.reads.run(work, repeatable=False)

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["open_ticket"], digest, seconds), repeatable=False
        )
        return ticket_of(rows[0]) if rows else None

    async def ticket(self, digest: str) -> Ticket | None:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["ticket"], digest), repeatable=True)
        return ticket_of(rows[0]) if rows else None
