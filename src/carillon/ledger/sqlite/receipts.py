"""Receipts in SQLite: each is written once, changes its route, and may suppress its address."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.notifications import Status
from carillon.domain.people import PreferenceChange
from carillon.domain.ports import Signal
from carillon.domain.receipts import ChangingRoute, Effect, Receipt, ReceiptRules, TakenReceipt
from carillon.domain.store import Ask, Row
from carillon.ledger.chains import changed
from carillon.ledger.people import preference_values, suppression_rows
from carillon.ledger.receipts import (
    RECEIPT_FIELDS,
    ROUTE_FIELDS,
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
from carillon.ledger.sqlite.engine import SqliteEngine
from carillon.ledger.sqlite.file import SqliteFile


class SqliteReceipts:
    """Satisfies ReceiptLedger."""

    _engine: SqliteEngine
    _file: SqliteFile
    _sql: Mapping[str, str]
    _codec: Codec
    _alert_from: int | None = None
    _recovery_hint: str
    signal: Signal

    async def take_receipts(self, receipts: Sequence[Receipt], rules: ReceiptRules) -> list[TakenReceipt]:
        rows = rows_of([self._codec.receipt(receipt) for receipt in receipts])
        if not rows:
            return []

        def work(connection: sqlite3.Connection, now: int) -> dict[str, TakenReceipt]:
            new = [row for row in rows.values() if self._is_new(connection, now, row)]
            return self._apply(connection, now, new, rules)

        found = await self._file.write(work)
        self._ring(found)
        return answers(receipts, found)

    async def take_waiting_receipts(self, rules: ReceiptRules, limit: int) -> list[TakenReceipt]:
        found = await self._file.write_if(
            lambda connection, now: bool(self._waiting(connection, now, 1)),
            lambda connection, now: self._apply(connection, now, self._waiting(connection, now, limit), rules),
        )
        self._ring(found or {})
        return [taken for taken in (found or {}).values() if taken.effect != Effect.WAITING]

    def _is_new(self, connection: sqlite3.Connection, now: int, row: ReceiptRow) -> bool:
        values = dict(zip(RECEIPT_FIELDS, receipt_values(row, self._codec), strict=True))
        return connection.execute(self._sql["receipts_write"], {**values, "now": now}).rowcount > 0

    def _waiting(self, connection: sqlite3.Connection, now: int, limit: int) -> list[ReceiptRow]:
        asked = {"before": now - round(WAITING_SECONDS * 1000), "most": limit}
        return [
            read_row(self._codec.row(dict(row))) for row in connection.execute(self._sql["receipts_waiting"], asked)
        ]

    def _apply(
        self, connection: sqlite3.Connection, now: int, rows: list[ReceiptRow], rules: ReceiptRules
    ) -> dict[str, TakenReceipt]:
        findings = self._find(connection, rows)
        keys = sorted({finding.route for finding in findings.values()})
        found = [row for key in keys for row in connection.execute(self._sql["receipts_routes"], key)]
        routes = [self._codec.row(dict(row)) for row in found]
        batch = ReceiptBatch(rules, routes, self._strikes(connection, rows, routes))
        for row in rows:
            batch.apply(row, findings.get(row.key))
        self._write(connection, now, batch)
        return batch.taken

    def _find(self, connection: sqlite3.Connection, rows: list[ReceiptRow]) -> dict[str, RouteMatch]:
        sent: dict[int, RouteKey] = {}
        meant: dict[int, str] = {}
        for place, row in enumerate(rows):
            receipt = row.receipt
            asked: dict[str, Any] = {
                "provider": receipt.provider,
                "provider_message_id": receipt.provider_message_id,
                "address": self._codec.address(receipt.address),
            }
            message = connection.execute(self._sql["receipts_messages"], asked).fetchone()
            key = our_key(receipt)
            if message is not None:
                sent[place] = (message["notification_id"], message["route_id"])
            elif key is not None and not key[1]:
                asked["notification_id"] = key[0]
                route = connection.execute(self._sql["receipts_notifications"], asked).fetchone()
                meant |= {} if route is None else {place: route["route_id"]}
        return found_routes(rows, sent, meant)

    def _strikes(
        self, connection: sqlite3.Connection, rows: list[ReceiptRow], routes: Sequence[Mapping[str, Any]]
    ) -> list[Row]:
        gone = [row for row in rows if row.receipt.recipient_gone]
        if not gone:
            return []
        addresses = struck_addresses(gone, routes)
        keys = json.dumps([row.key for row in gone])
        asked = [{"address": self._codec.address(each), "receipt_keys": keys} for each in addresses if each]
        found = [row for each in asked for row in connection.execute(self._sql["receipts_strikes"], each)]
        return [self._codec.row(dict(row)) for row in found]

    def _write(self, connection: sqlite3.Connection, now: int, batch: ReceiptBatch) -> None:
        for route in batch.changed:
            self._rewrite(connection, now, route)
        self._engine.ask(connection, now, Ask("suppress", each=suppression_rows(batch.suppressions)))
        for tenant_id, user_id, channel in sorted(batch.unsubscribed):
            off = preference_values(tenant_id, user_id, PreferenceChange(channels={channel: False}))
            self._engine.ask(connection, now, Ask("change_preferences", off))
        if batch.chains:
            batch.note_reached(self._engine.drive(connection, now, changed(batch.chains)))
        connection.executemany(self._sql["receipts_effects"], batch.effects(self._codec))

    def _rewrite(self, connection: sqlite3.Connection, now: int, route: ChangingRoute) -> None:
        values = {**dict(zip(ROUTE_FIELDS, route_values(route, self._codec), strict=True)), "now": now}
        if route.status is not Status.PUBLISHED:
            connection.execute(self._sql["receipts_keep"], values)
        connection.execute(self._sql["receipts_change"], values)
        if route.buried:
            connection.execute(self._sql["receipts_dead_letter"], {**values, "recovery_hint": self._recovery_hint})
            connection.execute(self._sql["receipts_alert"], {**values, "alert_from": self._alert_from})

    def _ring(self, found: Mapping[str, TakenReceipt]) -> None:
        # A dead letter may let the next channel of its chain go.
        if any(taken.effect in (Effect.FAILED_OVER, Effect.RETRIED, Effect.BURIED) for taken in found.values()):
            self.signal.ring()
