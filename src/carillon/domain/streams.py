"""Live streams: each person's durable log of what was pushed to them, and who is reading it where."""

from collections.abc import Collection, Sequence
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


class Held(msgspec.Struct, frozen=True):
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

    async def held(self, user_id: str) -> Held:
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
    """Which replica reads whose log aloud; what a replica said is forgotten when it stops saying it."""

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
