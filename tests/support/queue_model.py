"""The list queue as plain lists: what every step should leave behind, without any of our code."""

import json
from dataclasses import dataclass, field

MAX_RETRIES = 2


@dataclass(frozen=True, order=True)
class Copy:
    """One copy of a message; equal ones cannot be told apart."""

    id: str
    attempts: int


@dataclass
class ListModel:
    main: list[Copy] = field(default_factory=list)
    """From the next to the last."""
    processing: list[Copy] = field(default_factory=list)
    delayed: list[Copy] = field(default_factory=list)
    failed: list[Copy] = field(default_factory=list)
    """From the oldest to the newest."""
    locks: dict[str, int] = field(default_factory=dict)

    def claim(self, most: int, tokens: list[int]) -> list[Copy]:
        """What a claim of so many must give, in order; each message is looked at once."""
        given: list[Copy] = []
        for _ in range(len(self.main)):
            if len(given) == most:
                break
            copy = self.main.pop(0)
            if copy.id in self.locks:
                self.main.append(copy)
            else:
                self.locks[copy.id] = tokens[len(given)] if len(given) < len(tokens) else -1
                self.processing.append(copy)
                given.append(copy)
        return given

    def settle(self, copy: Copy, token: int, verdict: str) -> str:
        holder = self.locks.get(copy.id)
        if holder != token and not (verdict == "finish" and holder is None):
            return "stale"
        there = copy in self.processing
        if there:
            self.processing.remove(copy)
            self._put(copy, verdict)
        if holder == token and (there or verdict == "finish"):
            del self.locks[copy.id]
        return "stale" if not there else "applied" if holder == token else "adopted"

    def _put(self, copy: Copy, verdict: str) -> None:
        match verdict:
            case "retry":
                self.delayed.append(Copy(copy.id, copy.attempts + 1))
            case "defer":
                self.delayed.append(copy)
            case "release":
                self.main.insert(0, copy)
            case "bury":
                self.failed.append(copy)
            case _:
                pass

    def sweep(self) -> int:
        orphans = [copy for copy in self.processing if copy.id not in self.locks]
        for copy in orphans:
            self.processing.remove(copy)
            self._put(copy, "retry" if copy.attempts < MAX_RETRIES else "bury")
        return len(orphans)

    def requeue(self) -> int:
        moved, self.failed = self.failed, []
        self.main += [Copy(copy.id, 0) for copy in moved]
        return len(moved)


def copy_of(text: bytes) -> Copy:
    message = json.loads(text)
    return Copy(message["id"], message["attempts"])
