"""Brings committed messages to their queues: at once where that works, again and again where it does not."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from carillon.blueprints.billing.domain import Outgoing
from carillon.blueprints.billing.store import OutgoingStore
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint

_BATCH = 100
_LEASE_SECONDS = 5.0
_SEND_SECONDS = 2.0
"""Shorter than the lease a message is born with, so that nobody else brings it at the same time."""
_LONGEST_WAIT_SECONDS = 5.0


class Enqueue(Protocol):
    """Puts one message into a queue."""

    async def __call__(
        self,
        queue: str,
        payload: Mapping[str, Any],
        *,
        action: str,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        id: str | None = None,  # noqa: A002 - the envelope's own word
    ) -> str: ...


class Relay:
    """A message may reach its queue twice, when we die between the queue's answer and our note: under one id."""

    def __init__(
        self, ledger: OutgoingStore, enqueue: Enqueue, *, clock: Clock, observer: Observer, poll_seconds: float
    ) -> None:
        self._ledger = ledger
        self._enqueue = enqueue
        self._clock = clock
        self._observe = observer
        self._poll_seconds = poll_seconds

    async def bring(self, messages: Sequence[Outgoing]) -> None:
        """Right after the commit; whatever fails here is brought later by `run`, of whichever process."""
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._bring(messages)
        except Exception as error:  # noqa: BLE001 - the commit stands, so whoever waits for it is answered
            self._observe(Trouble(where="outbox", error=_said(error), retry_in_seconds=_LEASE_SECONDS))

    async def run(self) -> None:
        """Until cancelled, bring what was left behind."""
        wait = self._poll_seconds
        while True:
            try:
                found = await self._ledger.due_outgoing(_BATCH, _LEASE_SECONDS)
                async with asyncio.timeout(_LEASE_SECONDS):
                    await self._bring(found)
            except Exception as error:  # noqa: BLE001 - Redis, the ledger or the network: all of them come back
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
                self._observe(Trouble(where="outbox", error=_said(error), retry_in_seconds=wait))
            else:
                wait = self._poll_seconds
                if len(found) == _BATCH:
                    continue
            await self._clock.sleep(wait)

    async def _bring(self, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            await self._enqueue(
                message.queue,
                message.payload,
                action=message.action,
                correlation_id=message.correlation_id,
                idempotency_key=message.idempotency_key,
                id=message.message_id,
            )
        if messages:
            faultpoint("after_outgoing_enqueued")
            await self._ledger.drop_outgoing([message.message_id for message in messages])


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, LedgerUnavailable) else f"{type(error).__name__}: {error}"
