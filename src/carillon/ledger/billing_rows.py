"""Rows of the billing services and the values they are made of: the same for every engine."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from carillon.domain.billing import EventRow, Outgoing, Payment, Refund, Subscription, Usage

OUTGOING_LEASE_SECONDS = 5.0
"""How long whoever committed a message has to bring it to its queue before others do."""


def subscription(row: Mapping[str, Any]) -> Subscription:
    return msgspec.convert({**row, "trial": bool(row["trial"])}, Subscription)


def payment(row: Mapping[str, Any]) -> Payment:
    return msgspec.convert({**row, "amount": Decimal(row["amount"])}, Payment)


def refund(row: Mapping[str, Any]) -> Refund:
    return msgspec.convert({**row, "amount": Decimal(row["amount"])}, Refund)


def event(row: Mapping[str, Any]) -> EventRow:
    return msgspec.convert({**row, "processed": bool(row["processed"])}, EventRow)


def usage(row: Mapping[str, Any]) -> Usage:
    return msgspec.convert(dict(row), Usage)


def outgoing(rows: Sequence[Mapping[str, Any]]) -> list[Outgoing]:
    """Oldest first, as they were written."""
    ordered = sorted(rows, key=lambda row: (row["created_at"], row["message_id"]))
    return [msgspec.convert({**row, "payload": json.loads(row["payload_json"])}, Outgoing) for row in ordered]


def outgoing_values(message: Outgoing) -> tuple[str | None, ...]:
    text = json.dumps(message.payload, ensure_ascii=False, separators=(",", ":"))
    return (
        message.message_id,
        message.queue,
        message.action,
        message.correlation_id,
        message.idempotency_key,
        text,
    )


def payment_values(paid: Payment) -> tuple[Any, ...]:
    return (
        paid.transaction_id,
        paid.subscription_id,
        paid.status,
        paid.amount,
        paid.currency,
        paid.action,
        paid.event_id,
        paid.idempotency_key,
        paid.gateway_reference,
        paid.message,
    )


def refund_values(back: Refund) -> tuple[Any, ...]:
    return (back.refund_id, back.transaction_id, back.amount, back.reason, back.status, back.gateway_reference)
