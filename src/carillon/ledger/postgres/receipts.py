"""Receipts in PostgreSQL: each is written once, changes its route, and may suppress its address."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.people import PreferenceChange
from carillon.domain.ports import Signal
from carillon.domain.receipts import Effect, Receipt, ReceiptRules, TakenReceipt
from carillon.domain.store import Ask, Row
from carillon.ledger.chains import changed
from carillon.ledger.people import preference_values, suppression_rows
from carillon.ledger.postgres.engine import PostgresEngine
from carillon.ledger.postgres.pools import Connection, Pools
from carillon.ledger.receipts import (
    WAITING_SECONDS,
    ReceiptBatch,
    ReceiptRow,
    RouteKey,
    RouteMatch,
    answers,
    found_routes,
    our_key,
    read_row,
    receipt_values,
    route_values,
    rows_of,
    struck_addresses,
)
from carillon.ledger.sealing import Codec


class PostgresReceipts:
    """Satisfies ReceiptLedger."""

    _engine: PostgresEngine
    _pools: Pools
    _sql: Mapping[str, str]
    _codec: Codec
    _alert_from: int | None = None
    _recovery_hint: str
    signal: Signal

    async def take_receipts(self, receipts: Sequence[Receipt], rules: ReceiptRules) -> list[TakenReceipt]:
        rows = rows_of([self._codec.receipt(receipt) for receipt in receipts])
        if not rows:
            return []
        found = await self._pools.intake.run(lambda c: self._take(c, rows, rules), repeatable=True)
        self._ring(found)
        return answers(receipts, found)

    async def take_waiting_receipts(self, rules: ReceiptRules, limit: int) -> list[TakenReceipt]:
        found = await self._pools.intake.run(lambda c: self._take_waiting(c, rules, limit), repeatable=True)
        self._ring(found)
        return [taken for taken in found.values() if taken.effect != Effect.WAITING]

    async def _take(
        self, connection: Connection, rows: dict[str, ReceiptRow], rules: ReceiptRules
    ) -> dict[str, TakenReceipt]:
        async with connection.transaction():
            columns = _columns([receipt_values(row, self._codec) for row in rows.values()])
            written = await connection.fetch(self._sql["receipts_write"], *columns)
            new = {row["receipt_key"] for row in written}
            return await self._apply(connection, [row for key, row in rows.items() if key in new], rules)

    async def _take_waiting(self, connection: Connection, rules: ReceiptRules, limit: int) -> dict[str, TakenReceipt]:
        async with connection.transaction():
            waiting = await connection.fetch(self._sql["receipts_waiting"], WAITING_SECONDS, limit)
            return await self._apply(connection, [read_row(self._codec.row(dict(row))) for row in waiting], rules)

    async def _apply(
        self, connection: Connection, rows: list[ReceiptRow], rules: ReceiptRules
    ) -> dict[str, TakenReceipt]:
        if not rows:
            return {}
        findings = await self._find(connection, rows)
        keys = sorted({finding.route for finding in findings.values()})
        routes = await connection.fetch(self._sql["receipts_routes"], *_columns(keys, 2)) if keys else []
        known = [self._codec.row(dict(row)) for row in routes]
        batch = ReceiptBatch(rules, known, await self._strikes(connection, rows, known))
        for row in rows:
            batch.apply(row, findings.get(row.key))
        await self._write(connection, batch)
        return batch.taken

    async def _find(self, connection: Connection, rows: list[ReceiptRow]) -> dict[str, RouteMatch]:
        named = [(place, row.receipt.provider, row.receipt.provider_message_id) for place, row in enumerate(rows)]
        messages = [each for each in named if each[2] is not None]
        sent: dict[int, RouteKey] = {}
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

    async def _strikes(self, connection: Connection, rows: list[ReceiptRow], routes: Sequence[Any]) -> list[Row]:
        gone = [row for row in rows if row.receipt.recipient_gone]
        if not gone:
            return []
        addresses = struck_addresses(gone, routes)
        found = await connection.fetch(
            self._sql["receipts_strikes"],
            [self._codec.address(each) for each in addresses if each],
            [row.key for row in gone],
        )
        return [self._codec.row(dict(row)) for row in found]

    async def _write(self, connection: Connection, batch: ReceiptBatch) -> None:
        if batch.changed:
            values = [route_values(route, self._codec) for route in batch.changed]
            await connection.execute(
                self._sql["receipts_change"], self._recovery_hint, *_columns(values), self._alert_from
            )
        await self._engine.ask(connection, Ask("suppress", each=suppression_rows(batch.suppressions)))
        for tenant_id, user_id, channel in sorted(batch.unsubscribed):
            off = preference_values(tenant_id, user_id, PreferenceChange(channels={channel: False}))
            await self._engine.ask(connection, Ask("change_preferences", off))
        if batch.chains:
            batch.note_reached(await self._engine.drive(connection, changed(batch.chains)))
        effects = batch.effects(self._codec)
        if effects:
            await connection.execute(self._sql["receipts_effects"], *_columns(effects))

    def _ring(self, found: Mapping[str, TakenReceipt]) -> None:
        # A dead letter may let the next channel of its chain go.
        if any(taken.effect in (Effect.FAILED_OVER, Effect.RETRIED, Effect.BURIED) for taken in found.values()):
            self.signal.ring()


def _columns(rows: Sequence[tuple[Any, ...]], width: int = 0) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
