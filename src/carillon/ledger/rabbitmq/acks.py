"""What a channel has delivered, and the fewest words that answer the broker for it."""

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

if TYPE_CHECKING:
    from aiormq.abc import AbstractChannel

GONE = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError)
"""What a client of a broken line raises."""


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One message in our hands; whoever has it ends it by `ack` or `give_back`, once."""

    tag: int
    body: bytes
    message_id: str | None
    acks: "Acks"

    @property
    def lost(self) -> bool:
        """Its channel is gone: the broker gives it to somebody again."""
        return self.acks.channel.is_closed

    def ack(self) -> None:
        """It is done; where the channel is gone it comes again and finds its mark."""
        self.acks.ack(self.tag)

    async def give_back(self) -> None:
        """Let the broker give it to somebody again; raises one of GONE."""
        await self.acks.give_back(self.tag)


class Acks:
    """Acknowledgements of one channel: those made together leave together, and one may speak for all before it."""

    def __init__(self, channel: "AbstractChannel") -> None:
        self.channel = channel
        self._open: dict[int, None] = {}
        """Delivered and not answered for, in the order of their tags, which is the order in which they came."""
        self._done: list[int] = []
        self._last = 0
        self._gapless = True
        """Every tag so far came through our hands; one that did not must not be spoken for by its neighbours."""
        self._leaving: asyncio.Task[None] | None = None

    def arrived(self, tag: int) -> None:
        """From now on nothing speaks for this tag but its own answer."""
        self._gapless = self._gapless and tag == self._last + 1
        self._last = tag
        self._open[tag] = None

    def ack(self, tag: int) -> None:
        self._open.pop(tag, None)
        self._done.append(tag)
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def give_back(self, tag: int) -> None:
        await self.channel.basic_nack(tag, requeue=True, wait=False)
        # Not before the broker's line has it: an acknowledgement of all before a later tag would take it along.
        self._open.pop(tag, None)

    async def drain(self) -> None:
        """Wait until every acknowledgement made so far has left."""
        while self._leaving is not None:
            await asyncio.wait({self._leaving})

    async def _leave(self) -> None:
        try:
            while self._done:
                done, self._done = self._done, []
                first_open = next(iter(self._open), None) if self._gapless else 0
                for tag, multiple in words(done, first_open):
                    await self.channel.basic_ack(tag, multiple=multiple, wait=False)
        except GONE:
            self._done.clear()
        finally:
            self._leaving = None


def words(done: list[int], first_open: int | None) -> list[tuple[int, bool]]:
    """Tags to acknowledge, and whether each stands for all before it: only below every tag that is still open."""
    below = [tag for tag in done if first_open is None or tag < first_open]
    above = [(tag, False) for tag in done if first_open is not None and tag > first_open]
    return [(max(below), len(below) > 1), *above] if below else above
