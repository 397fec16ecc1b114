"""Claims that wait in this process for their turn in a person's log, and people who may get no more at the moment."""

import asyncio
from collections.abc import Iterable

from carillon.domain.claims import Claim
from carillon.domain.streams import log_of_claim
from carillon.live.hub import Confirmation, Hub

KEPT_SECONDS = 3.0
"""How long a person whose notifications were sent back keeps that mark: longer than such a notification waits."""


class Turn:
    """One claim that waits: `placed` gets its confirmation, or None if the person left."""

    __slots__ = ("claim", "log", "placed")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.log = log_of_claim(claim)
        self.placed: asyncio.Future[Confirmation | None] = asyncio.get_running_loop().create_future()

    async def comes_within(self, seconds: float) -> bool:
        """Wait for the turn."""
        await asyncio.wait((self.placed,), timeout=seconds)
        return self.placed.done()


class _Line:
    """The turns of one person."""

    __slots__ = ("called", "moved", "turns")

    def __init__(self) -> None:
        self.turns: dict[int, Turn] = {}
        self.moved = 0
        """How many claims of the line got their turn."""
        self.called = False
        """Somebody looks already whose turn it is."""


class LogTurns:
    """The lines of all people; a line goes to the log together: claims of one process never wait in a circle."""

    def __init__(self, hub: Hub, most_unwritten: int) -> None:
        """A reader gets at most `most_unwritten` entries before its connection has taken one of them."""
        self._hub = hub
        self._most = most_unwritten
        self._lines: dict[str, _Line] = {}
        self._sent_back: dict[str, float] = {}

    def waiting(self, logs: Iterable[str]) -> list[Claim]:
        """The claims that wait for these people."""
        lines = [line for log in logs if (line := self._lines.get(log))]
        return [turn.claim for line in lines for turn in line.turns.values()]

    def enter(self, claim: Claim) -> Turn:
        """Wait; a claim that waits already keeps its place."""
        line = self._lines.setdefault(log_of_claim(claim), _Line())
        if claim.token not in line.turns:
            line.turns[claim.token] = Turn(claim)
        return line.turns[claim.token]

    def came(self, claim: Claim, placed: Confirmation | None) -> bool:
        """The turn of a claim has come; False if it does not wait, or no longer."""
        line = self._lines.get(log_of_claim(claim))
        turn = None if line is None else line.turns.get(claim.token)
        if line is None or turn is None or turn.placed.done():
            return False
        line.moved += 1
        turn.placed.set_result(placed)
        return True

    def leave(self, turn: Turn) -> None:
        """The claim waits no longer."""
        line = self._lines.get(turn.log)
        if line is not None and line.turns.pop(turn.claim.token, None) is not None and not line.turns:
            del self._lines[turn.log]

    def moved(self, log: str) -> int:
        """Grows with every turn of this person."""
        line = self._lines.get(log)
        return 0 if line is None else line.moved

    def call(self, log: str) -> bool:
        """Whether to look whose turn it is; not if nobody waits, somebody looks, or the readers have enough."""
        line = self._lines.get(log)
        if line is None or line.called or self._room(log) <= 0:
            return False
        line.called = any(not turn.placed.done() for turn in line.turns.values())
        return line.called

    def called(self, log: str) -> None:
        """The look is over."""
        line = self._lines.get(log)
        if line is not None:
            line.called = False

    def admitted(self, in_turn: Iterable[Claim]) -> list[Claim]:
        """The claims that the readers have room for; in one log, none goes before an earlier one."""
        room: dict[str, int] = {}
        going: list[Claim] = []
        for claim in in_turn:
            log = log_of_claim(claim)
            left = room.setdefault(log, self._room(log))
            if left > 0:
                going.append(claim)
                room[log] = left - 1
        return going

    def sent_back(self, log: str) -> None:
        """A notification of this person goes back to the ledger, because its turn did not come."""
        self._sent_back[log] = asyncio.get_running_loop().time() + KEPT_SECONDS

    def to_wake(self, logs: Iterable[str]) -> set[str]:
        """Of these people, those whose notifications were sent back: their turn may be now."""
        if not self._sent_back:
            return set()
        now = asyncio.get_running_loop().time()
        self._sent_back = {log: until for log, until in self._sent_back.items() if until > now}
        return self._sent_back.keys() & set(logs)

    def _room(self, log: str) -> int:
        return self._most - self._hub.unwritten(log)
