"""Vendors' later words in PostgreSQL: receipts meet their routes, addresses fall silent."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.people import Wish
from carillon.domain.ports import Signal
from carillon.domain.receipt_effect import Effect
from carillon.domain.receipts import Amended, AmendRules, Receipt
from carillon.domain.store import Ask
from carillon.ledger.postgres.engine import PostgresEngine
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.preferences import wish_values
from carillon.ledger.receipt_effects import (
    WAITING_SECONDS,
    Amendments,
    Finding,
    Key,
    Row,
    answers,
    found_routes,
    our_key,
    read_row,
    receipt_values,
    route_values,
    rows_of,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.suppressions import silence_rows


class PostgresReceipts:
    """Satisfies ReceiptLedger."""

    _engine: PostgresEngine
    _pools: Pools
    _sql: Mapping[str, str]
    _codec: Codec
    _alert_from: int | None = None
    _recovery_hint: str
    signal: Signal

    async def amend(self, receipts: Sequence[Receipt], rules: AmendRules) -> list[Amended]:
        rows = rows_of([self._codec.receipt(receipt) for receipt in receipts])
        if not rows:
            return []
        found = await self._pools.intake.run(lambda c: self._take(c, rows, rules), repeatable=True)
        self._ring(found)
        return answers(receipts, found)

    async def amend_waiting(self, rules: AmendRules, limit: int) -> list[Amended]:
        found = await self._pools.intake.run(lambda c: self._take_waiting(c, rules, limit), repeatable=True)
        self._ring(found)
        return [amended for amended in found.values() if amended.effect != Effect.WAITING]

    async def _take(self, connection: Connection, rows: dict[str, Row], rules: AmendRules) -> dict[str, Amended]:
        async with connection.transaction():
            columns = _columns([receipt_values(row, self._codec) for row in rows.values()])
            written = await connection.fetch(self._sql["receipts_write"], *columns)
            new = {row["receipt_key"] for row in written}
            return await self._amend(connection, [row for key, row in rows.items() if key in new], rules)

    async def _take_waiting(self, connection: Connection, rules: AmendRules, limit: int) -> dict[str, Amended]:
        async with connection.transaction():
            waiting = await connection.fetch(self._sql["receipts_waiting"], WAITING_SECONDS, limit)
            return await self._amend(connection, [read_row(self._codec.row(dict(row))) for row in waiting], rules)

    async def _amend(self, connection: Connection, rows: list[Row], rules: AmendRules) -> dict[str, Amended]:
        if not rows:
            return {}
        findings = await self._find(connection, rows)
        keys = sorted({finding.route for finding in findings.values()})
        routes = await connection.fetch(self._sql["receipts_routes"], *_columns(keys, 2)) if keys else []
        known = [self._codec.row(dict(row)) for row in routes]
        batch = Amendments(rules, known, await self._strikes(connection, rows, known))
        for row in rows:
            batch.apply(row, findings.get(row.key))
        await self._write(connection, batch)
        return batch.amended

    async def _find(self, connection: Connection, rows: list[Row]) -> dict[str, Finding]:
        named = [(place, row.receipt.provider, row.receipt.provider_message_id) for place, row in enumerate(rows)]
        messages = [each for each in named if each[2] is not None]
        sent: dict[int, Key] = {}
        if messages:
            found = await connection.fetch(self._sql["receipts_messages"], *_columns(messages))
            sent = {row["place"]: (row["notification_id"], row["route_id"]) for row in found}
        vague = [
            (place, key[0], row.receipt.provider, self._codec.address(row.receipt.address))
            for place, row in enumerate(rows)
            if place not in sent and (key := our_key(row.receipt)) is not None and not key[1]
        ]
        meant: dict[int, str] = {}
        if vague:
            found = await connection.fetch(self._sql["receipts_notifications"], *_columns(vague))
            meant = {row["place"]: row["route_id"] for row in found}
        return found_routes(rows, sent, meant)

    async def _strikes(self, connection: Connection, rows: list[Row], routes: Sequence[Any]) -> dict[str, int]:
        gone = [row for row in rows if row.receipt.recipient_gone]
        if not gone:
            return {}
        addresses = {row["address"] for row in routes} | {row.receipt.address for row in gone}
        found = await connection.fetch(
            self._sql["receipts_strikes"],
            [self._codec.address(each) for each in addresses if each],
            [row.key for row in gone],
        )
        return {row["address"]: row["strikes"] for row in (self._codec.row(dict(row)) for row in found)}

    async def _write(self, connection: Connection, batch: Amendments) -> None:
        if batch.changed:
            values = [route_values(route, self._codec) for route in batch.changed]
            await connection.execute(self._sql["amend"], self._recovery_hint, *_columns(values), self._alert_from)
        await self._engine.ask(connection, Ask("suppress", each=silence_rows(batch.silences.values())))
        for tenant_id, user_id, channel in sorted(batch.unsubscribed):
            off = wish_values(tenant_id, user_id, Wish(channels={channel: False}))
            await self._engine.ask(connection, Ask("wish", off))
        effects = batch.effects(self._codec)
        if effects:
            await connection.execute(self._sql["receipts_effects"], *_columns(effects))

    def _ring(self, found: Mapping[str, Amended]) -> None:
        if any(amended.effect in (Effect.FAILED_OVER, Effect.RETRIED) for amended in found.values()):
            self.signal.ring()


def _columns(rows: Sequence[tuple[Any, ...]], width: int = 0) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
