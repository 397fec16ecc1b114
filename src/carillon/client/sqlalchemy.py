"""A transactional outbox for programs with SQLAlchemy: the notification commits with the caller's own rows.

session.execute(outbox.send("order.shipped", user_id="u-1", data={...}))      # or: await session.execute(...)
session.commit()
OutboxRelay(SqlAlchemyStore(engine), Client(url)).run(stop)                    # in one process of yours, or in several
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, DateTime, Engine, Index, Insert, MetaData, String, Table, Text, bindparam, func, select

from carillon.client.outbox import TABLE, OutboxRow, Told, row

metadata = MetaData()
table = Table(
    TABLE,
    metadata,
    Column("id", String(255), primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("sent_at", DateTime(timezone=True)),
    Column("notification_id", String(255)),
    Column("refused", Text),
)
Index("carillon_outbox_waiting", table.c.created_at, postgresql_where=table.c.sent_at.is_(None))


def send(template_key: str, /, **about: Any) -> Insert:  # noqa: ANN401 - fields of Item
    """The statement that writes the row of one notification; `about` is what carillon.client.Item takes."""
    new = row(template_key, about)
    return table.insert().values(id=new.id, body=new.body)


class SqlAlchemyStore:
    """The rows behind an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def waiting(self, limit: int) -> Sequence[OutboxRow]:
        """The oldest rows that were not sent yet."""
        asked = select(table.c.id, table.c.body).where(table.c.sent_at.is_(None))
        with self._engine.connect() as connection:
            found = connection.execute(asked.order_by(table.c.created_at, table.c.id).limit(limit))
            return [OutboxRow(each.id, each.body) for each in found]

    def tell(self, told: Sequence[Told]) -> None:
        """Save the results of rows."""
        if not told:
            return
        change = table.update().where(table.c.id == bindparam("row_id")).values(sent_at=func.now())
        change = change.values(notification_id=bindparam("named"), refused=bindparam("why"))
        with self._engine.begin() as connection:
            connection.execute(
                change, [{"row_id": one.id, "named": one.notification_id, "why": one.refused} for one in told]
            )
