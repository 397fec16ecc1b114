"""The readers of this replica, and the deliveries that wait until a reader's connection has their entry."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from carillon.domain.streams import Entry, Seat, Seated

HERE = ""
"""The name of this replica, among the names of the others."""


class Confirmation:
    """Waits until some replica confirms that it wrote one entry to a live connection."""

    __slots__ = ("_replicas", "seq", "user_id", "written")

    def __init__(self, user_id: str, seq: int, replicas: Collection[str]) -> None:
        self.user_id = user_id
        self.seq = seq
        self._replicas = set(replicas)
        self.written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True as soon as one replica has written the entry, False when every replica has reported that it cannot."""

    def report(self, replica: str, *, written: bool) -> None:
        """One replica reports whether it wrote the entry."""
        if self.written.done():
            return
        self._replicas.discard(replica)
        if written or not self._replicas:
            self.written.set_result(written)


class Hub:
    """The seats of one replica and what they wait for; independent of HTTP, the ledger and other replicas."""

    def __init__(
        self, *, max_seats: int, max_per_key: int, on_change: Callable[[str], None] = lambda _user_id: None
    ) -> None:
        """Calls `on_change` with a person who got their first connection here, or lost their last."""
        self._max_seats = max_seats
        self._max_per_key = max_per_key
        self._on_change = on_change
        self._seats: dict[str, list[Seat]] = {}
        self._by_key: Counter[str] = Counter()
        self._taken = 0
        self._waiting: dict[str, list[Confirmation]] = {}
        self.closing = False

    @property
    def taken(self) -> int:
        """How many connections read here now."""
        return self._taken

    def here(self, user_id: str) -> bool:
        """Whether the person has a connection here."""
        return user_id in self._seats

    def people(self) -> list[str]:
        """Everybody with a connection here."""
        return list(self._seats)

    def readers(self) -> dict[str, int]:
        """Everybody with connections here, and their number."""
        return {user_id: len(seats) for user_id, seats in self._seats.items()}

    def unwritten(self, user_id: str) -> int:
        """How many entries of a log wait until a connection has them."""
        return sum(not each.written.done() for each in self._waiting.get(user_id, ()))

    def join(self, seat: Seat) -> Seated:
        """Take a seat; from then on it gets every new entry."""
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
        """Give the seat back; repeating it is harmless."""
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
            for confirmation in self._waiting.get(seat.user_id, ()):
                confirmation.report(HERE, written=False)

    def offer(self, entries: Iterable[Entry]) -> None:
        """Give new entries to the readers of their logs."""
        people: dict[str, None] = {}
        for entry in entries:
            for seat in self._seats.get(entry.user_id, ()):
                seat.tail.offer(entry)
            people[entry.user_id] = None
        # Wake each reader once: entries that arrive together are written together.
        for user_id in people:
            for seat in self._seats.get(user_id, ()):
                seat.wake()

    def grown(self, user_id: str, newest: int) -> None:
        """Another replica appended to a log, up to the number `newest`."""
        for seat in self._seats.get(user_id, ()):
            seat.tail.grown(newest)
            seat.wake()

    def changed(self, user_id: str) -> None:
        """The person has marked or archived something: every window shows it."""
        for seat in self._seats.get(user_id, ()):
            seat.changed = True
            seat.wake()

    def wrote(self, seat: Seat) -> None:
        """The cursor of the seat has moved: the kernel has every entry before it."""
        waiting = self._waiting.get(seat.user_id)
        if not waiting:
            return
        for confirmation in waiting:
            if confirmation.seq <= seat.tail.cursor:
                confirmation.report(HERE, written=True)
        # Also drop those whose waiting task was cancelled: nobody else releases them.
        self._waiting[seat.user_id] = [each for each in waiting if not each.written.done()]

    def expect(self, user_id: str, seq: int, replicas: Collection[str]) -> Confirmation:
        """Wait for these replicas to write an entry; the caller must release the confirmation."""
        confirmation = Confirmation(user_id, seq, replicas)
        self._waiting.setdefault(user_id, []).append(confirmation)
        if HERE in replicas:
            seats = self._seats.get(user_id, [])
            # A reader that resumed after the entry has it already.
            if not seats or any(seat.tail.cursor >= seq for seat in seats):
                confirmation.report(HERE, written=bool(seats))
        elif not replicas:
            confirmation.report(HERE, written=False)
        return confirmation

    def release(self, confirmation: Confirmation) -> None:
        """Stop waiting for this confirmation."""
        waiting = self._waiting.get(confirmation.user_id, [])
        if confirmation in waiting:
            waiting.remove(confirmation)
        if not waiting:
            self._waiting.pop(confirmation.user_id, None)

    def reported(self, replica: str, user_id: str, seq: int, *, written: bool) -> None:
        """Another replica reports whether it wrote an entry."""
        for confirmation in self._waiting.get(user_id, ()):
            if confirmation.seq == seq:
                confirmation.report(replica, written=written)

    def close(self) -> None:
        """Refuse new readers, and ask the connected ones to leave."""
        self.closing = True
        for seat in [seat for seats in self._seats.values() for seat in seats]:
            seat.closing = True
            seat.wake()
