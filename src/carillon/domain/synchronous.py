"""Delivery while the caller waits: what is held for it, and what the caller is told."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from carillon.domain.claims import Claim
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolled, Enrolment

Code = Literal["DELIVERY_TIMEOUT", "DELIVERY_FAILED"]

_SEPARATORS = re.compile(r"[_.-]+")


class HeldEnrolment(msgspec.Struct, frozen=True):
    """What enrolling came to; `claims` are the routes that are ours from birth, none when somebody was before us."""

    enrolled: Enrolled
    claims: tuple[Claim, ...] = ()


class Held(msgspec.Struct, frozen=True):
    """Written down, leased by this process, and nobody else's to send."""

    claim: Claim


class Repeated(msgspec.Struct, frozen=True):
    """The same request was written down before: its outcome is the answer."""

    notification_id: str


class Unheld(msgspec.Struct, frozen=True):
    """Written down as one that will not be sent."""

    notification_id: str
    reason: str


Holding = Held | Repeated | Unheld


class DeliveredNow(msgspec.Struct, frozen=True, kw_only=True):
    """The provider took it in time."""

    notification_id: str
    delivered_at_ms: float
    provider_message_id: str | None = None
    replayed: bool = False


class NotDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """It was not delivered in time, and nothing was queued."""

    notification_id: str
    code: Code
    message: str
    replayed: bool = False


Immediate = DeliveredNow | NotDelivered


def timed_out_text(seconds: float) -> str:
    """The document's sentence."""
    return f"Synchronous delivery timed out after {seconds:g}s. Notification NOT queued."


def is_use_case(template_key: str, phrases: Iterable[str]) -> bool:
    """Whether the words of the key, split at `_`, `.` and `-`, hold those of a phrase in a row."""
    words = f" {' '.join(_SEPARATORS.split(template_key.lower()))} "
    return any(f" {' '.join(phrase.lower().split())} " in words for phrase in phrases)


class HoldingLedger(Protocol):
    """Where intents are written down by those who deliver them at once."""

    async def enrol_held(self, batch: Sequence[Enrolment], owner: str, seconds: float) -> list[HeldEnrolment]:
        """Write down and lease in one commit, so that nobody else ever sees these routes free; one answer each."""
        ...

    async def queue_unheld(self, lane: int, instead: int) -> int:
        """Move what waits in a lane without workers, and is held by nobody, to another lane; answers how many."""
        ...


class Planner(Protocol):
    """What knows how an intent would be sent."""

    async def planned(self, intent: Intent) -> Enrolment:
        """The rows that would be written down; raises BadIntent for what cannot be sent."""
        ...


class Holder(Protocol):
    """What writes an intent down for a caller who waits."""

    async def hold(self, intent: Intent) -> Holding:
        """Returns after the commit; raises BadIntent, LedgerUnavailable or Overloaded and has written nothing."""
        ...


class SendsNow(Protocol):
    """Delivery while the caller waits."""

    def wanted(self, template_key: str) -> bool:
        """Whether this use case is delivered at once without being asked to."""
        ...

    def began(self) -> float:
        """The moment the caller's time starts to run."""
        ...

    async def deliver(self, intent: Intent, began: float) -> Immediate:
        """Deliver once, within the lane's time; raises what Holder.hold raises."""
        ...
