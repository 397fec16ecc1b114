"""Messages between replicas: they fit the size limit, confirm at most once, and no wait is left behind."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.streams import Entry, Seat, Seated, Tail
from carillon.live.hub import HERE, Hub
from carillon.live.relay import MAX_MESSAGE_BYTES, ReplicaRelay, _Message, _read, texts
from tests.support.waiting import until

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=255)


def seat(user: str, *, after: int = 0, key: str | None = None) -> Seat:
    tail = Tail(100)
    tail.begin(after)
    return Seat(user, key or user, tail, lambda: None)


def hub(max_seats: int = 10) -> Hub:
    return Hub(max_seats=max_seats, max_per_key=3)


async def met(condition: Callable[[], bool]) -> None:
    async def asked() -> bool:
        return condition()

    await until(asked, timeout=20, what="the other replica")


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 2**60)), max_size=120),
    st.lists(st.tuples(NAMES, st.integers(0, 2**60), st.booleans()), max_size=120),
)
def test_messages_fit_and_lose_nothing(grew: list[tuple[str, int]], wrote: list[tuple[str, int, bool]]) -> None:
    letters = texts(_Message("replica", grew, wrote))
    assert all(len(letter.encode()) < MAX_MESSAGE_BYTES + 1100 for letter in letters)
    read = [_read(letter) for letter in letters]
    assert [pair for letter in read for pair in letter.grew] == grew
    assert [each for letter in read for each in letter.wrote] == wrote


async def test_the_word_comes_with_the_first_place_that_has_written() -> None:
    seats = hub()
    mine = seat("ada")
    assert seats.join(mine) is Seated.SEATED
    awaited = seats.expect("ada", 1, {HERE, "other"})
    seats.reported("other", "ada", 1, written=False)
    assert not awaited.written.done()
    mine.tail.wrote(1)
    seats.wrote(mine)
    assert await awaited.written


async def test_the_word_is_no_once_nobody_is_left() -> None:
    seats = hub()
    mine = seat("ada")
    seats.join(mine)
    awaited = seats.expect("ada", 1, {HERE, "other"})
    seats.part(mine)
    seats.part(mine)
    assert not awaited.written.done()
    seats.reported("other", "ada", 1, written=False)
    assert not await awaited.written
    assert not await seats.expect("ada", 2, {HERE}).written
    assert seats.taken == 0


async def test_a_reader_who_resumed_behind_it_has_it() -> None:
    seats = hub()
    seats.join(seat("ada", after=7))
    assert await seats.expect("ada", 7, {HERE}).written


async def test_seats_are_counted_by_replica_and_by_key() -> None:
    seats = hub(max_seats=4)
    taken = [seat("ada") for _ in range(3)]
    assert [seats.join(each) for each in taken] == [Seated.SEATED] * 3
    assert seats.join(seat("ada")) is Seated.CROWDED
    assert seats.join(seat("bob")) is Seated.SEATED
    assert seats.join(seat("cleo")) is Seated.FULL
    seats.part(taken[0])
    assert seats.join(seat("ada")) is Seated.SEATED
    seats.close()
    assert seats.join(seat("dora")) is Seated.CLOSING
    assert all(each.closing for each in taken[1:])


class Wires:
    """A post that delivers at once, for two replicas of one process."""

    def __init__(self) -> None:
        self.heard: dict[str, Callable[[str], None]] = {}

    async def send(self, letters: Mapping[str, Sequence[str]]) -> None:
        for replica, given_texts in letters.items():
            for text in given_texts:
                self.heard[replica](text)

    async def run(self, replica: str, heard: Callable[[str], None]) -> None:
        self.heard[replica] = heard
        await asyncio.Event().wait()


async def test_a_replica_that_is_told_writes_and_answers() -> None:
    wires, here, there = Wires(), hub(), hub()
    relays = [ReplicaRelay(here, wires, "here"), ReplicaRelay(there, wires, "there")]
    running = [asyncio.create_task(relay.run()) for relay in relays]
    await met(lambda: len(wires.heard) == 2)
    reader = seat("ada")
    there.join(reader)
    awaited = here.expect("ada", 1, {"there"})
    relays[0].announce([(Entry("ada", 1, "n", "t", 2, 0, "{}"), {"there"})])
    await met(lambda: reader.tail.behind)
    reader.tail.wrote(1)
    there.wrote(reader)
    async with asyncio.timeout(20):
        assert await awaited.written
        stranger = here.expect("bob", 1, {"there"})
        relays[0].announce([(Entry("bob", 1, "n", "t", 2, 0, "{}"), {"there"})])
        assert not await stranger.written
    relays[1].receive("no letter")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
