"""What replicas tell each other about streams: that a log has grown, and that it was written to somebody."""

import asyncio
from collections.abc import Collection
from functools import partial

import msgspec

from carillon.domain.live import Post
from carillon.domain.streams import Entry
from carillon.live.hub import HERE, Awaited, Hub

MOST_IN_A_LETTER = 7000
"""Bytes: PostgreSQL carries fewer than 8,000."""


class _Letter(msgspec.Struct, array_like=True):
    sender: str
    grew: list[tuple[str, int]] = []
    """Person and number: read your log up to it."""
    wrote: list[tuple[str, int, bool]] = []
    """Person, number, and whether a live connection has it."""


_read = msgspec.json.Decoder(_Letter).decode


class Relay:
    """Only wakes and answers; what is written always comes out of the ledger."""

    def __init__(self, hub: Hub, post: Post, replica: str) -> None:
        self._hub = hub
        self._post = post
        self._replica = replica
        self._outbox: dict[str, _Letter] = {}
        self._to_send = asyncio.Event()

    async def run(self) -> None:
        """Send and hear until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._post.run(self._replica, self.hear))
            group.create_task(self._send())

    def tell(self, entries: Collection[tuple[Entry, Collection[str]]]) -> None:
        """Somebody reads these logs at those replicas."""
        for entry, replicas in entries:
            for replica in replicas:
                self._letter(replica).grew.append((entry.user_id, entry.seq))

    def hear(self, text: str) -> None:
        """A letter to this replica; one that cannot be read is nobody's."""
        try:
            letter = _read(text)
        except msgspec.DecodeError:
            return
        for user_id, seq, written in letter.wrote:
            self._hub.heard(letter.sender, user_id, seq, written=written)
        for user_id, seq in letter.grew:
            awaited = self._hub.expect(user_id, seq, {HERE})
            self._hub.grown(user_id, seq)
            awaited.word.add_done_callback(partial(self._answer, letter.sender, awaited))

    def _answer(self, replica: str, awaited: Awaited, word: asyncio.Future[bool]) -> None:
        self._hub.let_go(awaited)
        self._letter(replica).wrote.append((awaited.user_id, awaited.seq, word.result()))

    def _letter(self, replica: str) -> _Letter:
        self._to_send.set()
        return self._outbox.setdefault(replica, _Letter(self._replica))

    async def _send(self) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            # Whatever is said during one sending goes into the next.
            outbox, self._outbox = self._outbox, {}
            await self._post.send({replica: texts(letter) for replica, letter in outbox.items()})


def texts(letter: _Letter) -> list[str]:
    """The letter, as many as it takes for each to fit."""
    text = msgspec.json.encode(letter)
    if len(text) <= MOST_IN_A_LETTER or len(letter.grew) + len(letter.wrote) <= 1:
        return [text.decode()]
    grew, wrote = len(letter.grew) // 2, len(letter.wrote) // 2
    if len(letter.grew) == 1:
        grew = 1
    halves = (
        _Letter(letter.sender, letter.grew[:grew], letter.wrote[:wrote]),
        _Letter(letter.sender, letter.grew[grew:], letter.wrote[wrote:]),
    )
    return [text for half in halves if half.grew or half.wrote for text in texts(half)]
