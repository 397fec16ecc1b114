"""Who reads at this replica, and who waits for the word that something was written to them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from carillon.domain.live import Seat, Seated
from carillon.domain.streams import Entry

HERE = ""
"""The place that is this replica, among the names of the others."""


class Awaited:
    """The word that one entry was written to a live connection somewhere."""

    __slots__ = ("_places", "seq", "user_id", "word")

    def __init__(self, user_id: str, seq: int, places: Collection[str]) -> None:
        self.user_id = user_id
        self.seq = seq
        self._places = set(places)
        self.word: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True as soon as one place has written it, False once none is left that could."""

    def said(self, place: str, *, written: bool) -> None:
        if self.word.done():
            return
        self._places.discard(place)
        if written or not self._places:
            self.word.set_result(written)


class Hub:
    """Satisfies Seats; knows nothing of HTTP, ledgers and other replicas."""

    def __init__(
        self, *, max_seats: int, max_per_key: int, on_change: Callable[[str], None] = lambda _user_id: None
    ) -> None:
        """`on_change` is called with whoever has their first seat here or has lost their last."""
        self._max_seats = max_seats
        self._max_per_key = max_per_key
        self._on_change = on_change
        self._seats: dict[str, list[Seat]] = {}
        self._by_key: Counter[str] = Counter()
        self._taken = 0
        self._awaited: dict[str, list[Awaited]] = {}
        self.closing = False

    @property
    def taken(self) -> int:
        return self._taken

    def here(self, user_id: str) -> bool:
        """Whether the person reads here."""
        return user_id in self._seats

    def people(self) -> list[str]:
        """Everybody who reads here."""
        return list(self._seats)

    def readers(self) -> dict[str, int]:
        """Everybody who reads here, with how many connections."""
        return {user_id: len(seats) for user_id, seats in self._seats.items()}

    def join(self, seat: Seat) -> Seated:
        if self.closing:
            return Seated.CLOSING
        if self._taken >= self._max_seats:
            return Seated.FULL
        if self._by_key[seat.key] >= self._max_per_key:
            return Seated.CROWDED
        self._taken += 1
        self._by_key[seat.key] += 1
        seats = self._seats.setdefault(seat.user_id, [])
        seats.append(seat)
        if len(seats) == 1:
            self._on_change(seat.user_id)
        return Seated.SEATED

    def part(self, seat: Seat) -> None:
        seats = self._seats.get(seat.user_id, [])
        if seat not in seats:
            return
        seats.remove(seat)
        self._taken -= 1
        self._by_key[seat.key] -= 1
        if not self._by_key[seat.key]:
            del self._by_key[seat.key]
        if not seats:
            del self._seats[seat.user_id]
            self._on_change(seat.user_id)
            for awaited in self._awaited.get(seat.user_id, ()):
                awaited.said(HERE, written=False)

    def offer(self, entries: Iterable[Entry]) -> None:
        """What was appended just now."""
        told: dict[str, None] = {}
        for entry in entries:
            for seat in self._seats.get(entry.user_id, ()):
                seat.tail.offer(entry)
            told[entry.user_id] = None
        # Woken once, however much there is: what came together is written together.
        for user_id in told:
            for seat in self._seats.get(user_id, ()):
                seat.wake()

    def grown(self, user_id: str, newest: int) -> None:
        """Another replica appended."""
        for seat in self._seats.get(user_id, ()):
            seat.tail.grown(newest)
            seat.wake()

    def wrote(self, seat: Seat) -> None:
        waiting = self._awaited.get(seat.user_id)
        if not waiting:
            return
        for awaited in waiting:
            if awaited.seq <= seat.tail.cursor:
                awaited.said(HERE, written=True)
        # Who was cut off while it waited cannot let go any more.
        self._awaited[seat.user_id] = [awaited for awaited in waiting if not awaited.word.done()]

    def expect(self, user_id: str, seq: int, places: Collection[str]) -> Awaited:
        """Await the word of these places; whoever expects it has to let it go."""
        awaited = Awaited(user_id, seq, places)
        self._awaited.setdefault(user_id, []).append(awaited)
        if HERE in places:
            seats = self._seats.get(user_id, [])
            # A reader who resumed behind it says that it has it.
            if not seats or any(seat.tail.cursor >= seq for seat in seats):
                awaited.said(HERE, written=bool(seats))
        elif not places:
            awaited.said(HERE, written=False)
        return awaited

    def let_go(self, awaited: Awaited) -> None:
        """Nobody waits for this word any more."""
        waiting = self._awaited.get(awaited.user_id, [])
        if awaited in waiting:
            waiting.remove(awaited)
        if not waiting:
            self._awaited.pop(awaited.user_id, None)

    def heard(self, place: str, user_id: str, seq: int, *, written: bool) -> None:
        """Another replica's word."""
        for awaited in self._awaited.get(user_id, ()):
            if awaited.seq == seq:
                awaited.said(place, written=written)

    def close(self) -> None:
        """No more seats; who sits is asked to go."""
        self.closing = True
        for seat in [seat for seats in self._seats.values() for seat in seats]:
            seat.closing = True
            seat.wake()
