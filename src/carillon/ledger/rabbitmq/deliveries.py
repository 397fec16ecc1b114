"""Deliveries of a queue as claims, and the rows and bodies they end in."""

import datetime as dt

import msgspec

from carillon.domain.audit import AuditRow
from carillon.domain.claims import Claim
from carillon.domain.intents import Intent
from carillon.ledger.rabbitmq.acks import Delivery


class Held(msgspec.Struct, kw_only=True):
    """One delivery in this process's hands."""

    message: Delivery
    intent: Intent
    claim: Claim
    mark: str
    """The name under which its mark is held."""
    taken_at: float
    lost: bool = False
    """Its channel is gone: the broker gives it to somebody again, and it can no longer be acknowledged."""

    @property
    def key(self) -> str:
        return self.intent.idempotency_key or ""


class ClaimRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a message becomes a claim."""

    channel: str
    provider: str
    policy: str
    lane: int
    max_attempts: int


def claim_of(intent: Intent, token: int, rules: ClaimRules, accepted_at_ms: int) -> Claim:
    """The first claim of a message."""
    person = intent.recipients[0]
    return Claim(
        notification_id=intent.idempotency_key or "",
        route_id=rules.channel,
        token=token,
        channel=rules.channel,
        recipient_ref=person.ref,
        lane=rules.lane,
        provider=rules.provider,
        policy=rules.policy,
        attempt=1,
        attempts_before=0,
        max_attempts=rules.max_attempts,
        age_seconds=0.0,
        notification_type=intent.notification_type,
        producer=intent.producer,
        payload_json=msgspec.json.encode(intent.payload).decode(),
        accepted_at_ms=accepted_at_ms,
        address=person.addresses.get(rules.channel),
        user_id=person.user_id,
        resolved_locale=intent.locale,
        metadata_json=msgspec.json.encode(intent.metadata).decode(),
        trace_id=intent.trace_id,
        intent_key=intent.idempotency_key,
    )


def sent_row(intent: Intent, mark: str) -> AuditRow:
    """The row of a delivered message; every copy that finds the same mark writes the same row."""
    return _row(intent, "sent", f"sent:{intent.idempotency_key}:{mark}", {})


def failed_row(intent: Intent, mark: str, reason: str) -> AuditRow:
    """The row of a message that was given up."""
    return _row(intent, "failed", f"failed:{intent.idempotency_key}:{mark}", {"failure_reason": reason})


def _row(intent: Intent, status: str, audit_key: str, more: dict[str, str]) -> AuditRow:
    return AuditRow(
        audit_key=audit_key,
        trace_id=intent.trace_id or "",
        user_id=intent.recipients[0].user_id or "",
        notification_type=intent.channels[0],
        template_id=intent.notification_type,
        status=status,
        metadata_json=msgspec.json.encode({**intent.metadata, **more}).decode(),
    )


def dead_letter(body: bytes, reason: str, now: float) -> bytes:
    """Document 000's body for the failed queue: what was received stays as it was received, byte by byte."""
    try:
        msgspec.json.decode(body)
        original: msgspec.Raw | str = msgspec.Raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        original = body.decode("utf-8", "replace")
    moment = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.json.encode({"original_message": original, "failure_reason": reason, "failed_at": moment})
