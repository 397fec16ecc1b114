"""Deliveries of a queue: how each becomes a claim, and how it ends."""

import asyncio
import datetime as dt
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from carillon.domain.admin import AuditLedger, AuditRow
from carillon.domain.claims import Claim
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import IntentMalformed, MessageFinished, Trouble
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint
from carillon.ledger.rabbitmq.connection import GONE, BrokerConnection, Delivery
from carillon.ledger.rabbitmq.marks import Marks, MarkStep


class ClaimedDelivery(msgspec.Struct, kw_only=True):
    """One delivery that this process has claimed."""

    message: Delivery
    intent: Intent
    claim: Claim
    mark: str
    """The holder's name in its mark."""
    taken_at: float
    renewed_at: float
    """When its worker claimed or renewed it last."""
    expires_at: float | None = None
    """Unix seconds after which it is not sent."""
    lost: bool = False
    """The channel is closed: the broker redelivers the message, and this delivery cannot be acknowledged."""
    failed: str | None = None
    """Why its last call failed, while it waits for the next one."""

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
    """The first claim of a message; its `ttl` counts from now, because a delivery does not say how long it waited."""
    expires_at_ms = intent.timing.expiry(accepted_at_ms / 1000)
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
        expires_in=None if expires_at_ms is None else (expires_at_ms - accepted_at_ms) / 1000,
    )


def sent_row(intent: Intent, mark: str) -> AuditRow:
    """The row of a delivered message; every copy that finds the same mark writes the same row."""
    return _row(intent, "sent", f"sent:{intent.idempotency_key}:{mark}", {})


def failed_row(intent: Intent, mark: str, reason: str) -> AuditRow:
    """The row of a dead letter."""
    return _row(intent, "failed", f"failed:{intent.idempotency_key}:{mark}", {"failure_reason": reason})


def skipped_row(intent: Intent, mark: str, gate: str) -> AuditRow:
    """The row of a message that was not sent, because a gate stopped it."""
    return _row(intent, "skipped", f"skipped:{intent.idempotency_key}:{mark}", {"skipped_because": gate})


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
    """The body for the failed queue of the blueprint push-worker: the received message stays the same, byte by byte."""
    try:
        msgspec.json.decode(body)
        original: msgspec.Raw | str = msgspec.Raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        original = body.decode("utf-8", "replace")
    moment = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.json.encode({"original_message": original, "failure_reason": reason, "failed_at": moment})


LEAVE_SECONDS = 5.0


class DeliveryEnds:
    """The ways in which deliveries end, each in a task of its own: a hanging broker delays no other settlement."""

    def __init__(
        self,
        *,
        connection: BrokerConnection,
        marks: Marks,
        audit: AuditLedger,
        clock: Clock,
        observer: Observer,
        pause_seconds: float,
    ) -> None:
        self._connection = connection
        self._marks = marks
        self._audit = audit
        self._clock = clock
        self._observe = observer
        self._pause = pause_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def ack(self, held: ClaimedDelivery) -> None:
        """Acknowledge a message that is done."""
        held.message.ack()

    def give_back(self, message: Delivery, seconds: float | None = None) -> None:
        """Return the message to the queue after a pause, which avoids busy redelivery."""
        self._spawn(self._given_back(message, self._pause if seconds is None else seconds))

    def give_up(self, held: ClaimedDelivery, reason: str) -> None:
        """Publish the message to the failed queue, and acknowledge it once the broker has confirmed."""
        self._spawn(self._ended(held.message, self._dead_lettered(held.message, reason)))

    def refuse(self, message: Delivery, read: Malformed) -> None:
        """Publish an invalid message to the failed queue, without a mark."""
        self._observe(
            IntentMalformed(
                stream_entry_id=str(message.message_id or message.tag),
                failure_code=read.failure_code,
                failure_message=read.failure_message,
                idempotency_key=read.idempotency_key,
            )
        )
        self._spawn(self._ended(message, self._dead_lettered(message, f"invalid message: {read.failure_message}")))

    def skip(self, held: ClaimedDelivery, sender: str) -> None:
        """Acknowledge a message that was sent before, and write its audit row if the sender did not."""
        self._spawn(self._ended(held.message, self._skipped(held, sender)))

    def release(self, held: ClaimedDelivery) -> None:
        """Release the mark of a message that the broker redelivers."""
        self._spawn(self._released(held))

    async def aclose(self, seconds: float) -> None:
        """Wait for the tasks in flight, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    async def _given_back(self, message: Delivery, seconds: float) -> None:
        if seconds > 0.0:
            await self._clock.sleep(seconds)
        with suppress(*GONE):
            await message.give_back()

    async def _ended(self, message: Delivery, work: Coroutine[Any, Any, None]) -> None:
        """Do the work that ends a message; after an error the message goes back to the queue instead of nowhere."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it was, the broker gives the message to nobody else
            self._observe(Trouble(where="end", error=f"{type(error).__name__}: {error}", retry_in_seconds=self._pause))
            await self._given_back(message, self._pause)

    async def _dead_lettered(self, message: Delivery, reason: str) -> None:
        body = dead_letter(message.body, reason, self._clock.wall())
        while not message.lost:
            try:
                await self._connection.publish_failed(body)
            except GONE as error:
                self._observe(
                    Trouble(where="park", error=f"{type(error).__name__}: {error}", retry_in_seconds=self._pause)
                )
                await self._clock.sleep(self._pause)
            else:
                faultpoint("after_park")
                message.ack()
                return

    async def _skipped(self, held: ClaimedDelivery, sender: str) -> None:
        try:
            await self._audit.write_audit([sent_row(held.intent, sender)])
        except LedgerUnavailable as error:
            self._observe(Trouble(where="audit", error=str(error), retry_in_seconds=self._pause))
            await self._given_back(held.message, self._pause)
            return
        self._observe(finished(held, "skipped", 0, self._clock.monotonic()))
        held.message.ack()

    async def _released(self, held: ClaimedDelivery) -> None:
        # If the release fails, this process takes the mark over at redelivery, or another one after its age limit.
        with suppress(LedgerUnavailable):
            await self._marks.run([MarkStep("release", held.key, held.mark)])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def finished(held: ClaimedDelivery, status: str, attempts: int, now: float) -> MessageFinished:
    """The event of a finished message."""
    claim = held.claim
    return MessageFinished(
        trace_id=claim.trace_id or "",
        idempotency_key=held.key,
        user_id=claim.user_id or "",
        template_code=claim.notification_type,
        status=status,
        attempts=attempts,
        duration_ms=(now - held.taken_at) * 1000,
    )
