"""The ways a delivery leaves our hands: acknowledged, given back, parked as failed, or skipped as done before."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from carillon.domain.audit import AuditLedger
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import IntentMalformed, MessageFinished, Trouble
from carillon.domain.intents import Malformed
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint
from carillon.ledger.rabbitmq.acks import GONE, Delivery
from carillon.ledger.rabbitmq.deliveries import Held, dead_letter, sent_row
from carillon.ledger.rabbitmq.line import Line
from carillon.ledger.rabbitmq.marks import Marks, Step

LEAVE_SECONDS = 5.0


class Partings:
    """Each parting is a task of its own: a broker that hangs delays nobody else's settlement."""

    def __init__(
        self, *, line: Line, marks: Marks, audit: AuditLedger, clock: Clock, observer: Observer, pause_seconds: float
    ) -> None:
        self._line = line
        self._marks = marks
        self._audit = audit
        self._clock = clock
        self._observe = observer
        self._pause = pause_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def ack(self, held: Held) -> None:
        """It is done."""
        held.message.ack()

    def give_back(self, message: Delivery, seconds: float | None = None) -> None:
        """Somebody else, or we ourselves later: not at once, so that it does not come round in a hot circle."""
        self._spawn(self._given_back(message, self._pause if seconds is None else seconds))

    def park(self, held: Held, reason: str) -> None:
        """Into the failed queue, and out of the other once the broker has confirmed it."""
        self._spawn(self._parked(held.message, reason))

    def refuse(self, message: Delivery, read: Malformed) -> None:
        """What can never become a message is parked without a mark."""
        self._observe(
            IntentMalformed(
                stream_entry_id=str(message.message_id or message.tag),
                failure_code=read.failure_code,
                failure_message=read.failure_message,
                idempotency_key=read.idempotency_key,
            )
        )
        self._spawn(self._parked(message, f"invalid message: {read.failure_message}"))

    def skip(self, held: Held, sender: str) -> None:
        """Sent before: its audit row is completed where whoever sent it did not come to that."""
        self._spawn(self._skipped(held, sender))

    def release(self, held: Held) -> None:
        """Its mark must keep nobody waiting: the broker gives the message to somebody again."""
        self._spawn(self._released(held))

    async def aclose(self, seconds: float) -> None:
        """Let what is under way come to its end, for a while."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    async def _given_back(self, message: Delivery, seconds: float) -> None:
        if seconds > 0.0:
            await self._clock.sleep(seconds)
        with suppress(*GONE):
            await message.give_back()

    async def _parked(self, message: Delivery, reason: str) -> None:
        body = dead_letter(message.body, reason, self._clock.wall())
        while not message.lost:
            try:
                await self._line.publish_failed(body)
            except GONE as error:
                self._observe(
                    Trouble(where="park", error=f"{type(error).__name__}: {error}", retry_in_seconds=self._pause)
                )
                await self._clock.sleep(self._pause)
            else:
                faultpoint("after_park")
                message.ack()
                return

    async def _skipped(self, held: Held, sender: str) -> None:
        try:
            await self._audit.write_audit([sent_row(held.intent, sender)])
        except LedgerUnavailable as error:
            self._observe(Trouble(where="audit", error=str(error), retry_in_seconds=self._pause))
            await self._given_back(held.message, self._pause)
            return
        self._observe(finished(held, "skipped", 0, self._clock.monotonic()))
        held.message.ack()

    async def _released(self, held: Held) -> None:
        # A mark that stays because Redis is away is taken over by this process, or by age.
        with suppress(LedgerUnavailable):
            await self._marks.run([Step("release", held.key, held.mark)])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def finished(held: Held, status: str, attempts: int, now: float) -> MessageFinished:
    """The one line about a message that came to its end here."""
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
