"""One-use tickets that open a stream."""

from carillon.domain.live import Ticket
from carillon.domain.store import Ask, Engine, Row, Steps


class TicketStore:
    """Satisfies TicketLedger."""

    engine: Engine

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        values = {
            "digest": digest,
            "user_id": ticket.user_id,
            "tenant_id": ticket.tenant_id,
            "token_until_ms": ticket.expires_at_ms,
            "token_id": ticket.token_id,
            "seconds": seconds,
        }

        def steps() -> Steps[None]:
            yield Ask("forget_tickets")
            yield Ask("add_ticket", values)

        await self.engine.change(steps, repeatable=False)

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        rows = await self.engine.write("open_ticket", {"digest": digest, "seconds": seconds}, repeatable=False)
        return _ticket(rows[0]) if rows else None

    async def ticket(self, digest: str) -> Ticket | None:
        row = await self.engine.one("ticket", {"digest": digest})
        return None if row is None else _ticket(row)


def _ticket(row: Row) -> Ticket:
    return Ticket(
        user_id=row["user_id"],
        tenant_id=row["tenant_id"],
        expires_at_ms=row["token_until_ms"],
        token_id=row["token_id"],
    )
