"""Messages between replicas: that a log has grown, and whether a reader's connection has an entry."""

import asyncio
from collections.abc import Collection
from functools import partial

import msgspec

from carillon.domain.live import NotifyBus
from carillon.domain.streams import Entry
from carillon.live.hub import HERE, Confirmation, Hub

MAX_MESSAGE_BYTES = 7000
"""In bytes; a NOTIFY of PostgreSQL holds fewer than 8,000."""


class _Message(msgspec.Struct, array_like=True):
    sender: str
    grew: list[tuple[str, int]] = []
    """Person and sequence number: the log has entries up to it."""
    wrote: list[tuple[str, int, bool]] = []
    """Person, sequence number, and whether a live connection has the entry."""


_read = msgspec.json.Decoder(_Message).decode


class ReplicaRelay:
    """Wakes readers and reports back; the entries themselves always come from the ledger."""

    def __init__(self, hub: Hub, bus: NotifyBus, replica: str) -> None:
        self._hub = hub
        self._bus = bus
        self._replica = replica
        self._outbox: dict[str, _Message] = {}
        self._to_send = asyncio.Event()

    async def run(self) -> None:
        """Send and receive until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bus.run(self._replica, self.receive))
            group.create_task(self._send())

    def announce(self, entries: Collection[tuple[Entry, Collection[str]]]) -> None:
        """Tell the replicas, at which the logs of these entries are read, that the logs have grown."""
        for entry, replicas in entries:
            for replica in replicas:
                self._message(replica).grew.append((entry.user_id, entry.seq))

    def receive(self, text: str) -> None:
        """Handle a message to this replica; ignore one that cannot be read."""
        try:
            message = _read(text)
        except msgspec.DecodeError:
            return
        for user_id, seq, written in message.wrote:
            self._hub.reported(message.sender, user_id, seq, written=written)
        for user_id, seq in message.grew:
            confirmation = self._hub.expect(user_id, seq, {HERE})
            self._hub.grown(user_id, seq)
            confirmation.written.add_done_callback(partial(self._report, message.sender, confirmation))

    def _report(self, replica: str, confirmation: Confirmation, written: asyncio.Future[bool]) -> None:
        self._hub.release(confirmation)
        self._message(replica).wrote.append((confirmation.user_id, confirmation.seq, written.result()))

    def _message(self, replica: str) -> _Message:
        self._to_send.set()
        return self._outbox.setdefault(replica, _Message(self._replica))

    async def _send(self) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            # Messages added during a send go out with the next one.
            outbox, self._outbox = self._outbox, {}
            await self._bus.send({replica: texts(message) for replica, message in outbox.items()})


def texts(message: _Message) -> list[str]:
    """The message as text, split until each part fits."""
    text = msgspec.json.encode(message)
    if len(text) <= MAX_MESSAGE_BYTES or len(message.grew) + len(message.wrote) <= 1:
        return [text.decode()]
    grew, wrote = len(message.grew) // 2, len(message.wrote) // 2
    if len(message.grew) == 1:
        grew = 1
    halves = (
        _Message(message.sender, message.grew[:grew], message.wrote[:wrote]),
        _Message(message.sender, message.grew[grew:], message.wrote[wrote:]),
    )
    return [text for half in halves if half.grew or half.wrote for text in texts(half)]
