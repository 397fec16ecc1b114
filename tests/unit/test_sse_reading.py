"""A waiting reader is written to in the call that offers an entry: in order, and confirmed only after the write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from carillon.domain.streams import Entry, StreamLedger
from carillon.live.hub import HERE, Hub
from carillon.live.reader import Lookups, SseConnection, StreamRules
from carillon.system import SystemClock
from carillon.web.streaming import Outlet, PeerGone
from tests.support.waiting import until


def entry(seq: int) -> Entry:
    return Entry("ada", seq, f"n-{seq}", "job.new", 2, 0, "{}")


class Paper:
    """Satisfies Sink: takes everything at once until it is full, then when the test makes room."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.full = False
        self.gone = False
        self.room = asyncio.Event()

    def put(self, data: bytes) -> bool:
        if self.gone:
            raise ConnectionResetError
        self.pieces.append(data)
        return not self.full

    async def drained(self) -> None:
        await self.room.wait()

    @property
    def numbers(self) -> list[int]:
        lines = b"".join(self.pieces[1:]).splitlines()
        return [int(line.removeprefix(b"id: ")) for line in lines if line.startswith(b"id: ")]


class Shelf:
    """As much of a StreamLedger as readers who catch up ask for."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.asked = 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def read(self, _user_id: str, after: int, limit: int) -> list[Entry]:
        self.asked += 1
        # What is appended while the question is on its way is not in the answer.
        found = [each for each in self.log if each.seq > after][:limit]
        await self.answering.wait()
        return found


class Stand:
    """Readers of one person's log."""

    def __init__(self) -> None:
        self.hub = Hub(max_seats=10, max_per_key=10)
        self.shelf = Shelf()
        self._lookups = Lookups(cast("StreamLedger", self.shelf))
        self._tasks: list[asyncio.Task[None]] = []

    async def read(self) -> Paper:
        """Sit down and wait until there is nothing to do."""
        paper, clock = Paper(), SystemClock()

        async def prove() -> None:
            return None

        reading = SseConnection(
            user_id="ada",
            key="ada",
            seats=self.hub,
            lookups=self._lookups,
            rules=StreamRules(buffer=5, heartbeat_seconds=600, recheck_seconds=600),
            clock=clock,
            prove=prove,
        )
        self.hub.join(reading.seat)
        reading.begin(0)

        async def pour() -> None:
            try:
                await reading(Outlet(paper))
            except PeerGone:
                return

        self._tasks.append(asyncio.create_task(pour()))
        await met(lambda: reading.idle)
        return paper

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tell(self, *seqs: int) -> list[asyncio.Future[bool]]:
        """Append and offer; the words that each was written."""
        entries = [entry(seq) for seq in seqs]
        self.shelf.log += entries
        words = [self.hub.expect("ada", seq, {HERE}).written for seq in seqs]
        self.hub.offer(entries)
        return words


async def met(condition: Callable[[], bool]) -> None:
    async def asked() -> bool:
        return condition()

    await until(asked, timeout=20, what="the reader")


@asynccontextmanager
async def standing() -> AsyncIterator[Stand]:
    stand = Stand()
    try:
        yield stand
    finally:
        await stand.leave()


async def test_a_crowd_is_told_in_one_call_with_frames_made_once() -> None:
    async with standing() as stand:
        first, second = await stand.read(), await stand.read()
        (word,) = stand.tell(1)
        assert word.done()
        assert await word
        assert first.numbers == second.numbers == [1]
        assert first.pieces[-1] is second.pieces[-1]


async def test_what_comes_together_is_written_together() -> None:
    async with standing() as stand:
        paper = await stand.read()
        words = stand.tell(1, 2, 3)
        assert all(word.done() for word in words)
        assert (len(paper.pieces), paper.numbers) == (2, [1, 2, 3])


async def test_nothing_is_written_before_the_kernel_has_it_and_nothing_overtakes_it() -> None:
    async with standing() as stand:
        paper = await stand.read()
        paper.full = True
        (first,) = stand.tell(1)
        (second,) = stand.tell(2)
        await asyncio.sleep(0)
        stand.tell(3)
        assert paper.numbers == [1]
        assert not first.done()
        paper.full = False
        paper.room.set()
        assert await first
        assert await second
        await met(lambda: paper.numbers == [1, 2, 3])


async def test_who_takes_nothing_any_more_is_cut_off_when_there_is_too_much() -> None:
    async with standing() as stand:
        paper = await stand.read()
        paper.full = True
        for seq in range(1, 8):
            stand.tell(seq)
        await met(lambda: stand.hub.taken == 0)
        assert paper.numbers == [1]


async def test_who_has_left_was_not_written_to() -> None:
    async with standing() as stand:
        paper = await stand.read()
        paper.gone = True
        (word,) = stand.tell(1)
        assert not await word
        assert stand.hub.taken == 0


async def test_who_has_to_catch_up_is_not_overtaken() -> None:
    async with standing() as stand:
        paper = await stand.read()
        stand.shelf.log += [entry(1), entry(2)]
        stand.hub.grown("ada", 2)
        stand.tell(3)
        assert paper.numbers == []
        await met(lambda: paper.numbers == [1, 2, 3])


async def test_who_is_asked_to_go_is_told_what_was_put_before() -> None:
    async with standing() as stand:
        paper = await stand.read()
        paper.full = True
        (word,) = stand.tell(1)
        stand.hub.close()
        paper.room.set()
        assert await word
        await met(lambda: b"event: closing" in paper.pieces[-1])


async def test_a_crowd_that_has_to_catch_up_asks_few_times() -> None:
    async with standing() as stand:
        papers = [await stand.read() for _ in range(10)]
        stand.shelf.log += [entry(1), entry(2)]
        stand.hub.grown("ada", 2)
        await met(lambda: all(paper.numbers == [1, 2] for paper in papers))
        assert stand.shelf.asked == 1


async def test_who_hears_of_more_while_a_question_is_out_asks_again() -> None:
    async with standing() as stand:
        lookups = Lookups(cast("StreamLedger", stand.shelf))
        stand.shelf.log.append(entry(1))
        stand.shelf.answering.clear()
        first = asyncio.create_task(lookups.read("ada", 0, 10))
        await met(lambda: stand.shelf.asked == 1)
        stand.shelf.log.append(entry(2))
        second = asyncio.create_task(lookups.read("ada", 0, 10))
        await asyncio.sleep(0)
        stand.shelf.answering.set()
        found = await asyncio.gather(first, second)
        assert [len(each) for each in found] == [1, 2]


async def test_one_of_a_crowd_who_leaves_takes_no_answer_along() -> None:
    shelf = Shelf()
    lookups = Lookups(cast("StreamLedger", shelf))
    leaving, staying = (asyncio.create_task(lookups.read("ada", 0, 10)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == []
