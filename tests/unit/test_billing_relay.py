"""The relay of `billing`'s outbox: a queue that is slow keeps nothing from being done."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from carillon.blueprints.billing.domain import Outgoing
from carillon.blueprints.billing.messages import OutgoingRelay
from carillon.domain.events import Event
from tests.support.dispatches import LoopClock

PIECE = 10


class Outbox:
    """A hundred messages that wait, of which those that were brought are dropped."""

    def __init__(self) -> None:
        self.waiting = [
            Outgoing(queue="q:pay:refund", message_id=f"m{number:03}", action="refund", payload={})
            for number in range(100)
        ]

    async def due_outgoing(self, limit: int, _: float) -> list[Outgoing]:
        return self.waiting[:limit]

    async def drop_outgoing(self, ids: Sequence[str]) -> None:
        self.waiting = [message for message in self.waiting if message.message_id not in ids]


@pytest.mark.req("P-665")
async def test_what_reached_its_queue_is_dropped_although_the_next_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carillon.blueprints.billing.messages._LEASE_SECONDS", 0.2)
    outbox: Any = Outbox()
    brought: list[str] = []
    troubles: list[Event] = []
    told = asyncio.Event()

    async def enqueue(queue: str, payload: Mapping[str, Any], **given: Any) -> str:
        assert (queue, payload) == ("q:pay:refund", {})
        if len(brought) == 25:
            await asyncio.Event().wait()
        brought.append(given["id"])
        return str(given["id"])

    def observe(event: Event) -> None:
        troubles.append(event)
        told.set()

    relay = OutgoingRelay(outbox, enqueue, clock=LoopClock(), observer=observe, poll_seconds=60)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(30):
        await told.wait()
    running.cancel()
    # The third piece was cut off in its middle, and is brought again under the same ids.
    assert len(outbox.waiting) == 100 - 2 * PIECE
    assert brought[: 2 * PIECE] == [f"m{number:03}" for number in range(2 * PIECE)]
