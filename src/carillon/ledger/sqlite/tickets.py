"""Tickets that open a stream, in SQLite."""

import sqlite3
from collections.abc import Mapping

from carillon.domain.live import Ticket
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.ticket_rows import ticket_of


class SqliteTickets:
    """Satisfies TicketLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        values = (digest, ticket.user_id, ticket.tenant_id, ticket.expires_at_ms, ticket.token_id, seconds)

        def work(connection: sqlite3.Connection, now: int) -> None:
            connection.execute(self._sql["forget_tickets"], (now,))
            connection.execute(self._sql["add_ticket"], (*values, now))

        await self._file.write(work)

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["open_ticket"], (digest, seconds, now)).fetchone()
        )
        return None if row is None else ticket_of(row)

    async def ticket(self, digest: str) -> Ticket | None:
        row = await self._file.read(
            lambda connection, now: connection.execute(self._sql["ticket"], (digest, now)).fetchone()
        )
        return None if row is None else ticket_of(row)
