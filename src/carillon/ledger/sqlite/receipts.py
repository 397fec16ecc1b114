"""Vendors' later words in SQLite: receipts meet their routes, addresses fall silent."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.people import Wish
from carillon.domain.ports import Signal
from carillon.domain.receipt_effect import Amending, Effect
from carillon.domain.receipts import Amended, AmendRules, Receipt
from carillon.domain.store import Ask
from carillon.ledger.preferences import wish_values
from carillon.ledger.receipt_effects import (
    RECEIPT_FIELDS,
    ROUTE_FIELDS,
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
from carillon.ledger.sqlite.engine import SqliteEngine
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.suppressions import silence_rows


class SqliteReceipts:
    """Satisfies ReceiptLedger."""

    _engine: SqliteEngine
    _file: SqliteFile
    _sql: Mapping[str, str]
    _codec: Codec
    _alert_from: int | None = None
    _recovery_hint: str
    signal: Signal

    async def amend(self, receipts: Sequence[Receipt], rules: AmendRules) -> list[Amended]:
        rows = rows_of([self._codec.receipt(receipt) for receipt in receipts])
        if not rows:
            return []

        def work(connection: sqlite3.Connection, now: int) -> dict[str, Amended]:
            new = [row for row in rows.values() if self._is_new(connection, now, row)]
            return self._amend(connection, now, new, rules)

        found = await self._file.write(work)
        self._ring(found)
        return answers(receipts, found)

    async def amend_waiting(self, rules: AmendRules, limit: int) -> list[Amended]:
        found = await self._file.write_if(
            lambda connection, now: bool(self._waiting(connection, now, 1)),
            lambda connection, now: self._amend(connection, now, self._waiting(connection, now, limit), rules),
        )
        self._ring(found or {})
        return [amended for amended in (found or {}).values() if amended.effect != Effect.WAITING]

    def _is_new(self, connection: sqlite3.Connection, now: int, row: Row) -> bool:
        values = dict(zip(RECEIPT_FIELDS, receipt_values(row, self._codec), strict=True))
        return connection.execute(self._sql["receipts_write"], {**values, "now": now}).rowcount > 0

    def _waiting(self, connection: sqlite3.Connection, now: int, limit: int) -> list[Row]:
        asked = {"before": now - round(WAITING_SECONDS * 1000), "most": limit}
        return [
            read_row(self._codec.row(dict(row))) for row in connection.execute(self._sql["receipts_waiting"], asked)
        ]

    def _amend(
        self, connection: sqlite3.Connection, now: int, rows: list[Row], rules: AmendRules
    ) -> dict[str, Amended]:
        findings = self._find(connection, rows)
        keys = sorted({finding.route for finding in findings.values()})
        found = [row for key in keys for row in connection.execute(self._sql["receipts_routes"], key)]
        routes = [self._codec.row(dict(row)) for row in found]
        batch = Amendments(rules, routes, self._strikes(connection, rows, routes))
        for row in rows:
            batch.apply(row, findings.get(row.key))
        self._write(connection, now, batch)
        return batch.amended

    def _find(self, connection: sqlite3.Connection, rows: list[Row]) -> dict[str, Finding]:
        sent: dict[int, Key] = {}
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
        self, connection: sqlite3.Connection, rows: list[Row], routes: Sequence[Mapping[str, Any]]
    ) -> dict[str, int]:
        gone = [row for row in rows if row.receipt.recipient_gone]
        if not gone:
            return {}
        addresses = {row["address"] for row in routes} | {row.receipt.address for row in gone}
        keys = json.dumps([row.key for row in gone])
        return {
            each: connection.execute(
                self._sql["receipts_strikes"], {"address": self._codec.address(each), "receipt_keys": keys}
            ).fetchone()[0]
            for each in addresses
            if each
        }

    def _write(self, connection: sqlite3.Connection, now: int, batch: Amendments) -> None:
        for route in batch.changed:
            self._rewrite(connection, now, route)
        self._engine.ask(connection, now, Ask("suppress", each=silence_rows(batch.silences.values())))
        for tenant_id, user_id, channel in sorted(batch.unsubscribed):
            off = wish_values(tenant_id, user_id, Wish(channels={channel: False}))
            self._engine.ask(connection, now, Ask("wish", off))
        connection.executemany(self._sql["receipts_effects"], batch.effects(self._codec))

    def _rewrite(self, connection: sqlite3.Connection, now: int, route: Amending) -> None:
        values = {**dict(zip(ROUTE_FIELDS, route_values(route, self._codec), strict=True)), "now": now}
        connection.execute(self._sql["amend"], values)
        if route.buried:
            connection.execute(self._sql["amend_bury"], {**values, "recovery_hint": self._recovery_hint})
            connection.execute(self._sql["amend_tell"], {**values, "alert_from": self._alert_from})

    def _ring(self, found: Mapping[str, Amended]) -> None:
        if any(amended.effect in (Effect.FAILED_OVER, Effect.RETRIED) for amended in found.values()):
            self.signal.ring()
