"""Live streams: the log of each person, a reader's position in it, seats, replicas and tickets."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from carillon.domain.claims import Claim

NOT_CONNECTED = "not connected"
"""The error of a notification for a person whom no stream reaches."""


def log_of(tenant_id: str | None, user_id: str) -> str:
    """The name of a person's log, which includes the tenant; the separator cannot occur in a user id."""
    return user_id if tenant_id is None else f"{tenant_id}\x1f{user_id}"


def log_of_claim(claim: Claim) -> str:
    """The log that a claimed notification goes to."""
    if claim.channel == "inApp" and not claim.recipient_ref.startswith("user:"):
        # The recipient is named by the address of the inbox, which is the person; a named person goes before it.
        return log_of(claim.tenant_id, claim.address or "")
    # Not from `claim.user_id`: if a notification has one person and one address, both routes carry that person's id.
    return log_of(claim.tenant_id, claim.recipient_ref.removeprefix("user:"))


def person_of(user_id: str) -> tuple[str | None, str]:
    """The tenant and the person's id, from the name of a log."""
    tenant_id, separator, rest = user_id.partition("\x1f")
    return (tenant_id, rest) if separator else (None, user_id)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a person's log; its number grows with every entry, and a reader resumes from it."""

    user_id: str
    """The name of the log (see `log_of`), as in every `user_id` of these ports."""
    seq: int
    notification_id: str
    event_type: str
    priority: int
    """1 HIGH, 2 MEDIUM, 3 LOW."""
    event_timestamp_ms: int
    payload_json: str
    read: bool = False
    delivered: bool = False
    archived: bool = False


class Bounds(msgspec.Struct, frozen=True):
    """The oldest and newest number in a person's log; both 0 if the log never had an entry.

    From `oldest` on, the log is complete; below it, entries have been removed. If all have been, it is `newest + 1`.
    """

    oldest: int = 0
    newest: int = 0
    unsettled: int = 0
    """Among the last thousand, the oldest number whose route is not terminal yet; 0 if all are terminal.

    A reader without a number begins there, so that it gets entries that have not reached any reader.
    """


class InboxCounts(msgspec.Struct, frozen=True):
    """The number of a person's entries and of those that wait for the person, and of the unread ones.

    Archived entries count in neither.
    """

    total: int
    unread: int


class StreamLedger(Protocol):
    """The ledger of the logs; a method that raises LedgerUnavailable has changed nothing."""

    async def in_turn(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims that may be appended now, in the order of the log; the others wait for an earlier notification.

        The order is that of the claim: the most urgent lane first, then the earliest acceptance (`budget_since`: the
        time of acceptance, of the schedule or of a redrive), ties as the engine's claim breaks them. A notification
        waits while an earlier one of the same person and lane is open and not in the log. Claims that are passed
        together do not wait for each other, because `append` writes them together.
        """
        ...

    async def append(self, claims: Sequence[Claim]) -> list[Entry]:
        """Append each claim's notification to its person's log (`log_of`), in one commit; returns the entries.

        A claim that is in the log already keeps its number, so a repeat after a crash carries the same id. Numbers of
        one person become visible in order: a reader that sees n can read every entry up to n.
        """
        ...

    async def read(self, user_id: str, after: int, limit: int) -> list[Entry]:
        """Entries after the number `after`, oldest first."""
        ...

    async def bounds(self, user_ids: Collection[str]) -> dict[str, Bounds]:
        """The bounds of each log; a reader that resumes below `oldest - 1` has missed entries."""
        ...

    async def newest_first(
        self, user_id: str, limit: int, before: int | None = None, *, archived: bool = False
    ) -> list[Entry]:
        """One page of the inbox, newest first; or of its archive."""
        ...

    async def waiting(self, user_id: str, limit: int, after_id: str | None = None) -> list[Entry]:
        """Notifications that wait until the person connects and are not in the log yet, newest first, with number 0.

        `after_id` goes on behind this notification.
        """
        ...

    async def inbox_counts(self, user_id: str) -> InboxCounts:
        """The counts of the inbox."""
        ...

    async def acknowledge(self, user_id: str, notification_id: str) -> bool:
        """Turn pushed into delivered, once; False if the notification is not in that person's log."""
        ...

    async def unread_of_chains(
        self, user_id: str, notification_ids: Sequence[str] | None, limit: int
    ) -> list[tuple[str, str, str]]:
        """Notification, route and provider of unread entries that are a part of a chain of channels."""
        ...

    async def mark_read(self, user_id: str, notification_ids: Sequence[str] | None, *, read: bool = True) -> int:
        """Mark entries as read or unread, all of them if None; returns how many have changed."""
        ...

    async def archive(self, user_id: str, notification_ids: Sequence[str] | None, *, archived: bool = True) -> int:
        """Move entries to the archive or back, every read one if None; returns how many have moved."""
        ...

    async def wake(self, user_ids: Collection[str]) -> int:
        """Make the routes that wait for these people due now; returns their number."""
        ...


class Presence(Protocol):
    """Which replica serves which person; a replica that stops renewing is removed."""

    async def arrive(self, replica: str, user_ids: Collection[str]) -> None:
        """Record that these people have opened their first connection at this replica."""
        ...

    async def leave(self, replica: str, user_ids: Collection[str]) -> None:
        """Record that these people have closed their last connection at this replica."""
        ...

    async def renew(self, replica: str, seconds: float) -> bool:
        """Keep this replica for `seconds`; False if it had been removed, and all its people must `arrive` again.

        A replica's name is unique to one run of a process; a restart has a new name.
        """
        ...

    async def where(self, user_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """The live replicas at which each person is connected; people without a connection are left out."""
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

    __slots__ = ("changed", "closing", "key", "tail", "user_id", "wake")

    def __init__(self, user_id: str, key: str, tail: Tail, wake: Callable[[], None]) -> None:
        """`key` names the caller whose number of seats is limited."""
        self.user_id = user_id
        self.key = key
        self.tail = tail
        self.wake = wake
        """Wakes the connection: there are new entries, or it must end."""
        self.closing = False
        """The replica stops: the reader should reconnect to another one."""
        self.changed = False
        """The person has marked or archived something, perhaps in another window."""


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
