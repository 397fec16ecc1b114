"""Synchronous delivery: enrolling and claiming in one commit, and the answer to the caller."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from carillon.domain.claims import Claim
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolled, Enrolment, GatedRoute
from carillon.domain.suppressions import SuppressedRoute

Code = Literal["DELIVERY_TIMEOUT", "DELIVERY_FAILED"]

_SEPARATORS = re.compile(r"[_.-]+")


class ClaimedEnrolment(msgspec.Struct, frozen=True):
    """The answer to an enrolment; `claims` are the routes claimed in the same commit, none for a repeat."""

    enrolled: Enrolled
    claims: tuple[Claim, ...] = ()


class Claimed(msgspec.Struct, frozen=True):
    """Enrolled and claimed by this process."""

    claim: Claim


class Repeated(msgspec.Struct, frozen=True):
    """The same request was stored before: its outcome is the answer."""

    notification_id: str


class NotClaimed(msgspec.Struct, frozen=True):
    """Enrolled as skipped."""

    notification_id: str
    reason: str
    suppressed: tuple[SuppressedRoute, ...] = ()
    gated: tuple[GatedRoute, ...] = ()


SynchronousEnrolment = Claimed | Repeated | NotClaimed


class DeliveredNow(msgspec.Struct, frozen=True, kw_only=True):
    """The provider accepted the message in time."""

    notification_id: str
    at_ms: float
    """When the message arrived; when the provider accepted it, if it has not."""
    arrived: bool = True
    """False only with strict receipts, until the vendor reports that the message arrived."""
    provider_message_id: str | None = None
    replayed: bool = False


class NotDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """The message was not delivered in time, and nothing was queued."""

    notification_id: str
    code: Code
    message: str
    replayed: bool = False
    suppressed: tuple[SuppressedRoute, ...] = ()
    """Not tried, because the address is suppressed."""
    gated: tuple[GatedRoute, ...] = ()
    """Not tried, because of another gate."""


SynchronousAnswer = DeliveredNow | NotDelivered


def timed_out_text(seconds: float) -> str:
    """The sentence of the blueprint listo."""
    return f"Synchronous delivery timed out after {seconds:g}s. Notification NOT queued."


def is_use_case(template_key: str, phrases: Iterable[str]) -> bool:
    """Whether the words of the key, split at `_`, `.` and `-`, contain the words of a phrase in sequence."""
    words = f" {' '.join(_SEPARATORS.split(template_key.lower()))} "
    return any(f" {' '.join(phrase.lower().split())} " in words for phrase in phrases)


class SynchronousLedger(Protocol):
    """Enrols and claims in one commit, for deliveries that start at once."""

    async def enrol_claimed(
        self, batch: Sequence[Enrolment], owner: str, seconds: float, caps: Mapping[int, int] | None = None
    ) -> list[ClaimedEnrolment]:
        """Enrol and claim in one commit, so that no other worker can claim the routes; one answer per enrolment.

        `caps` has the caps of groups by number. Routes beyond the free places of their group are enrolled and not
        claimed.
        """
        ...

    async def queue_unclaimed(self, lane: int, instead: int) -> int:
        """Move unclaimed routes of a lane without workers to another lane; returns how many."""
        ...


EnrolSynchronous = Callable[[Intent], Awaitable[SynchronousEnrolment]]
"""Returns after the commit; raises BadIntent, LedgerUnavailable or Overloaded if nothing was written."""


class Synchronous(NamedTuple):
    """Delivery while the caller waits, as a door calls it."""

    wanted: Callable[[str], bool]
    """Whether a template key names a use case that is always synchronous."""
    began: Callable[[], float]
    """The moment from which the caller's time counts."""
    deliver: Callable[[Intent, float], Awaitable[SynchronousAnswer]]
    """Deliver once, within the lane's time; raises what `EnrolSynchronous` raises."""
