"""Messages between the two services: handlers read payloads, the relay brings committed messages to queues."""

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from carillon.blueprints.billing.domain import DECIMALS, Outgoing, Payment, Subscription, money
from carillon.blueprints.billing.store import OutgoingStore
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.jobs import Permanent
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint
from carillon.web.auth import fits_tenant

_LONGEST = 255
_BATCH = 100
_PIECE = 10
"""Messages that are dropped together: a slow Redis must not keep a whole batch from ever being done."""
_LEASE_SECONDS = 5.0
_SEND_SECONDS = 2.0
"""Shorter than the first lease of a message, so that no other process brings it at the same time."""
_LONGEST_WAIT_SECONDS = 5.0


class QueueJob(Protocol):
    """The message that a registered handler gets."""

    @property
    def id(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def payload(self) -> dict[str, Any]: ...
    @property
    def idempotency_key(self) -> str | None: ...


def text_in(payload: Mapping[str, Any], name: str) -> str:
    """A name or an id; numbers are accepted too."""
    found = payload.get(name)
    text = str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""
    if not 0 < len(text) <= _LONGEST or "\x00" in text:
        raise Permanent(f"the payload must name {name}, in at most {_LONGEST} characters")
    return text


def tenant_in(payload: Mapping[str, Any]) -> str | None:
    """The tenant that a message is about; None where it names none."""
    found = payload.get("tenant_id")
    if found is None:
        return None
    if not isinstance(found, str) or not fits_tenant(found):
        raise Permanent(f"tenant_id: {str(found)[:40]!r} is not the name of a tenant")
    return found


def owner_of(payload: Mapping[str, Any], found: Subscription | Payment | None) -> str | None:
    """The tenant of what a message names: the ledger knows it, and a message of another tenant is refused."""
    named = tenant_in(payload)
    if found is None:
        return named
    if named not in {None, found.tenant_id}:
        raise Permanent(f"the message is of the tenant {named}, what it names belongs to another one")
    return found.tenant_id


def amount_in(payload: Mapping[str, Any], name: str) -> Decimal | None:
    """An amount of money; None where none is named."""
    found = payload.get(name)
    if found is None:
        return None
    amount = money(found) if isinstance(found, int | float | str) and not isinstance(found, bool) else None
    if amount is None:
        raise Permanent(f"{name}: {str(found)[:40]} is not an amount with at most {DECIMALS} decimals")
    return amount


def whole_in(payload: Mapping[str, Any], name: str) -> int:
    """A whole number that fits every store."""
    found = payload.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) >= 10**15:
        raise Permanent(f"{name}: {str(found)[:40]} is not a whole number")
    return found


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


class OutgoingRelay:
    """A message may reach its queue twice, under one id: when a process dies after the queue has it."""

    def __init__(
        self, ledger: OutgoingStore, enqueue: Enqueue, *, clock: Clock, observer: Observer, poll_seconds: float
    ) -> None:
        self._ledger = ledger
        self._enqueue = enqueue
        self._clock = clock
        self._observe = observer
        self._poll_seconds = poll_seconds

    async def bring(self, messages: Sequence[Outgoing]) -> None:
        """Bring messages to their queues right after the commit; `run` of any process brings those that fail here."""
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._bring(messages)
        except Exception as error:  # noqa: BLE001 - the commit stands, so the caller gets its answer
            self._observe(Trouble(where="outbox", error=_said(error), retry_in_seconds=_LEASE_SECONDS))

    async def run(self) -> None:
        """Bring messages that were left behind, until cancelled."""
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
        """In pieces: if time runs out, what reached its queue before is not brought again."""
        for begin in range(0, len(messages), _PIECE):
            piece = messages[begin : begin + _PIECE]
            for message in piece:
                await self._enqueue(
                    message.queue,
                    message.payload,
                    action=message.action,
                    correlation_id=message.correlation_id,
                    idempotency_key=message.idempotency_key,
                    id=message.message_id,
                )
            faultpoint("after_outgoing_enqueued")
            await self._ledger.drop_outgoing([message.message_id for message in piece])


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, LedgerUnavailable) else f"{type(error).__name__}: {error}"
