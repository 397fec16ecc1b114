"""Live streams: each person's log, the position of a reader in it, seats, replicas and tickets."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from carillon.domain.claims import Claim


def log_of(tenant_id: str | None, user_id: str) -> str:
    """The name of a person's log: two tenants may call two people the same, and no user id holds this separator."""
    return user_id if tenant_id is None else f"{tenant_id}\x1f{user_id}"


def log_of_claim(claim: Claim) -> str:
    """Whose log a claimed notification goes to."""
    # Not `claim.user_id`: a notification that tells one person and one address has that person's id for both.
    return log_of(claim.tenant_id, claim.recipient_ref.removeprefix("user:"))


def person_of(user_id: str) -> tuple[str | None, str]:
    """The tenant and the person's id in the name of a log."""
    tenant_id, separator, rest = user_id.partition("\x1f")
    return (tenant_id, rest) if separator else (None, user_id)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a person's log; its number grows with every line and is what a reader resumes from."""

    user_id: str
    """The log's name, see `log_of`; the same for every `user_id` of these ports."""
    seq: int
    notification_id: str
    event_type: str
    priority: int
    """1 HIGH, 2 MEDIUM, 3 LOW."""
    event_timestamp_ms: int
    payload_json: str
    read: bool = False
    delivered: bool = False


class Bounds(msgspec.Struct, frozen=True):
    """The oldest and newest number in a person's log; both 0 while nothing ever stood there.

    `oldest` is where completeness begins: something below it has been removed, and where all was, it is `newest + 1`.
    """

    oldest: int = 0
    newest: int = 0
    unsettled: int = 0
    """The oldest number whose route is not terminal yet, among the last thousand; 0 when all are.

    A reader who names no number begins there: what was put into the log and reached nobody must reach this one.
    """


class InboxCounts(msgspec.Struct, frozen=True):
    """How many of a person's entries there are and how many of them are unread."""

    total: int
    unread: int


class StreamLedger(Protocol):
    """Where the logs are written down; every method raises LedgerUnavailable and has then done nothing."""

    async def ahead(self, claims: Sequence[Claim]) -> set[tuple[str, str]]:
        """Which of these must wait because something earlier of the same person and lane is not in the log yet.

        Ids grow with time, so they say what is earlier; what is asked about together goes into the log together.
        """
        ...

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        """Put each claim's notification at the end of its person's log (`log_of`), in one commit; what was put there.

        A claim that is already there keeps its number: the repeat after a crash carries the same id. Numbers of one
        person become visible in their order: a reader that sees n can read everything up to n.
        """
        ...

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        """The next entries after a number, oldest first."""
        ...

    async def bounds(self, user_ids: Collection[str]) -> dict[str, Bounds]:
        """What is left of each log: resuming below `oldest - 1` has a gap."""
        ...

    async def newest_first(self, user_id: str, limit: int, before: int | None = None) -> list[Entry]:
        """The inbox, a page at a time."""
        ...

    async def waiting(self, user_id: str, limit: int) -> list[Entry]:
        """What is held until the person comes and stands in no log yet, newest first; their number is 0."""
        ...

    async def inbox_counts(self, user_id: str) -> InboxCounts:
        """What stands in the inbox."""
        ...

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        """The reader has it: pushed becomes delivered, once; False when it is not in that person's log."""
        ...

    async def mark_read(self, user_id: str, notification_ids: Sequence[str] | None) -> int:
        """Mark as read, all of them with None; how many were unread."""
        ...

    async def wake(self, user_ids: Collection[str]) -> int:
        """Make what is held for these people due now; how many routes."""
        ...


class Presence(Protocol):
    """Which replica serves whose log; a replica that stops renewing is forgotten."""

    async def arrive(self, replica: str, user_ids: Collection[str]) -> None:
        """These people have their first connection here."""
        ...

    async def leave(self, replica: str, user_ids: Collection[str]) -> None:
        """Their last connection here is gone."""
        ...

    async def renew(self, replica: str, seconds: float) -> bool:
        """This replica lives for so long; False when nobody knew it any more, and all its people must arrive again.

        Its name is that of one life of a process: a restart has another.
        """
        ...

    async def where(self, user_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """The living replicas at which each person is connected; people who are nowhere are left out."""
        ...


class Tail:
    """Takes entries in any order and repeatedly; gives them out in the order of the log, each once, without a gap."""

    __slots__ = ("_kept", "_limit", "cursor", "last", "overflowed", "told")

    def __init__(self, limit: int) -> None:
        """Until `begin` sets the position, entries are counted and not kept."""
        self._limit = limit
        self._kept: deque[Entry] = deque()
        self.told = 0
        """The highest sequence number that was announced."""
        self.cursor = -1
        """The reader has every entry up to this number; negative before `begin`."""
        self.last = -1
        """Every entry up to this number is written or kept."""
        self.overflowed = False
        """The buffer is full: the reader must reconnect and resume."""

    def begin(self, after: int) -> None:
        """Set the position: the reader has every entry up to `after`, or does not want them."""
        self.cursor = self.last = after

    @property
    def behind(self) -> bool:
        """Whether the log has entries that must be read from the ledger."""
        return 0 <= self.last < self.told

    def offer(self, entry: Entry) -> None:
        """Take a new entry: keep it if it is the next one, otherwise only note its number."""
        if entry.seq == self.last + 1 and self.last >= 0:
            if len(self._kept) >= self._limit:
                self.overflowed = True
                return
            self._kept.append(entry)
            self.last = entry.seq
        self.grown(entry.seq)

    def grown(self, newest: int) -> None:
        """The log has entries up to this number."""
        self.told = max(self.told, newest)

    def looked_up(self, entries: Sequence[Entry], told: int) -> None:
        """Take the entries after `last`; `told` is the value of `self.told` before the read."""
        if not entries and self.told == told:
            # The announced entries were pruned; reset `told`. If it has grown since, read again instead.
            self.told = self.last
        for entry in entries:
            if entry.seq > self.last:
                self._kept.append(entry)
                self.last = entry.seq

    def take(self) -> list[Entry]:
        """The entries to write now, in order."""
        entries = list(self._kept)
        self._kept.clear()
        return entries

    def wrote(self, seq: int) -> None:
        """The reader has every entry up to `seq`."""
        self.cursor = max(self.cursor, seq)


def place(bounds: Bounds, resume: int | None) -> tuple[int, int | None]:
    """After which number a reader begins, and after which number it has missed entries; None if it has missed none.

    A reader without a number begins at the first entry that is not delivered yet, otherwise at the end. A number that
    was never given out belongs to another log: that reader has missed everything.
    """
    if resume is None:
        return (bounds.unsettled - 1 if bounds.unsettled else bounds.newest), None
    if resume > bounds.newest:
        return max(0, bounds.oldest - 1), 0
    if resume < bounds.oldest - 1:
        return bounds.oldest - 1, resume
    return resume, None


class Seat:
    """One connection that reads one person's log."""

    __slots__ = ("closing", "key", "tail", "user_id", "wake")

    def __init__(self, user_id: str, key: str, tail: Tail, wake: Callable[[], None]) -> None:
        """`key` names the caller whose number of seats is limited."""
        self.user_id = user_id
        self.key = key
        self.tail = tail
        self.wake = wake
        """Wakes the connection: there are new entries, or it must end."""
        self.closing = False
        """The replica stops: the reader should reconnect to another one."""


class Seated(StrEnum):
    """The answer to a request for a seat."""

    SEATED = "seated"
    FULL = "full"
    """The replica has reached its limit."""
    CROWDED = "crowded"
    """The key has reached its limit."""
    CLOSING = "closing"


class NotifyBus(Protocol):
    """Messages between replicas; a message may be lost, so a sender that needs an answer has a timeout."""

    async def send(self, messages: Mapping[str, Sequence[str]]) -> None:
        """Send each replica its messages; never raises for a network error."""
        ...

    async def run(self, replica: str, receive: Callable[[str], None]) -> None:
        """Receive this replica's messages until cancelled; reopens broken connections."""
        ...


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The right to open one stream, in place of a token in a URL."""

    user_id: str
    """The person's own id."""
    tenant_id: str | None = None
    expires_at_ms: int | None = None
    """When the token expires for which the ticket was issued."""
    token_id: str | None = None
    """The `jti` of the token, by which it can be revoked."""


class TicketLedger(Protocol):
    """Where tickets are kept, by the digest of their text."""

    async def add_ticket(self, digest: str, ticket: Ticket, seconds: float) -> None:
        """Store a ticket that opens one stream within `seconds`; raises LedgerUnavailable."""
        ...

    async def open_ticket(self, digest: str, seconds: float) -> Ticket | None:
        """Use the ticket, once in the whole fleet; for `seconds` more it identifies the reader of that stream."""
        ...

    async def ticket(self, digest: str) -> Ticket | None:
        """The ticket, while it or its stream is valid."""
        ...
