"""The ports between rooms."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from carillon.domain.breaker import Admission, BreakerView, State
from carillon.domain.claims import Claim, Dispatch, Settled, Settlement, Want
from carillon.domain.events import Event
from carillon.domain.intents import Arrival, Intent, Malformed, Progress
from carillon.domain.notifications import Acceptance, Enrolled, Enrolment, Message, Notification, Story, Template
from carillon.domain.outcomes import Outcome
from carillon.domain.people import Found
from carillon.domain.receipts import CallbackReading, OverdueReceipt, Receipt, ReceiptRules, TakenReceipt
from carillon.domain.store import Row
from carillon.domain.targets import TargetView
from carillon.domain.verdicts import Bury, Defer

Observer = Callable[[Event], None]
"""Receives every event; must not raise or block."""

Dice = Callable[[], float]
"""A random number, uniform in [0, 1)."""

ClaimOnAccept = Callable[[Sequence[Enrolment]], Awaitable[list[Enrolled] | None]]
"""Enrols a batch and claims it for an idle worker, in one commit; None, and nothing written, if no worker is idle."""

Ids = Callable[[], str]
"""A new id, unique and growing with time."""


class Clock(Protocol):
    """Time, as a port, so that tests can control it."""

    def monotonic(self) -> float:
        """Seconds that never go back; for durations."""
        ...

    def wall(self) -> float:
        """Unix seconds; for signatures and logs, never for leases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Signal(Protocol):
    """Wakes waiting workers when routes are enrolled; several rings may wake them once."""

    def ring(self) -> None:
        """Announce work; never blocks."""
        ...

    async def wait(self, timeout_seconds: float) -> None:
        """Return if `ring` was called since the last wait, or after the timeout."""
        ...


class Acceptor(Protocol):
    """Accepts intents from a door."""

    async def accept(self, intent: Intent) -> Acceptance:
        """Return once the intent is stored; if BadIntent, LedgerUnavailable or Overloaded is raised, nothing is."""
        ...


class OrderedAcceptor(Protocol):
    """Accepts intents from a door whose transport is ordered and acknowledged by one offset."""

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        """Store the arrivals in order up to the first that cannot be stored; the caller retries LedgerUnavailable."""
        ...


class Directory(Protocol):
    """Looks up people and their addresses."""

    async def find(self, user_ids: Collection[str]) -> dict[str, Found]:
        """One answer for each id; a failure of the directory or the network is an answer and is never raised."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class IntakeLedger(Protocol):
    """The ledger as the intake uses it."""

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        """Store the batch in one commit; one answer per enrolment, in order."""
        ...

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        """Keep inputs that could not be accepted; an entry that is given twice is one row."""
        ...


class Backlog(Protocol):
    """Where routes or jobs wait until a worker claims them."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        """Claim up to `total` due routes: each want in order, up to its limit."""
        ...

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases of all that the worker holds, which may be nothing; returns those whose lease was lost."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write verdicts and attempts in one commit; one answer per settlement, in order."""
        ...


class HistorySteps(msgspec.Struct, frozen=True, kw_only=True):
    """A time in steps of equal length; times are Unix milliseconds."""

    from_ms: int
    """Where counting begins; what lies before the first step has a negative number."""
    step_from_ms: int
    until_ms: int
    step_ms: int


class UpkeepLedger(Protocol):
    """The ledger as operators and upkeep use it."""

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        """One notification with all its routes and attempts."""
        ...

    async def search(
        self, filters: Mapping[str, Any], limit: int, offset: int, most: int = 2**62
    ) -> tuple[list[Story], int]:
        """One page of notifications, newest first, and how many match, counted up to `most`."""
        ...

    async def counts(self) -> dict[str, Any]:
        """The number of routes by status, of due routes, and the age of the oldest due route in seconds."""
        ...

    async def history(
        self, filters: Mapping[str, Any], steps: HistorySteps
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """For each step, how many routes ended and how, and how many notifications were accepted."""
        ...

    async def history_groups(self, by: str, steps: HistorySteps, limit: int) -> list[dict[str, Any]]:
        """How many routes ended and how, by channel, provider, template or tenant, the most first."""
        ...

    async def dead_letters(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """One page of dead letters, newest first, and the total number that match."""
        ...

    async def cancel(self, notification_id: str, tenant_id: str | None = None) -> int:
        """Skip the open routes that no worker holds; returns their number."""
        ...

    async def rehome(self, channel: str, providers: Sequence[str], lanes: Sequence[int], otherwise: int) -> int:
        """Move waiting routes without a configured provider or lane to the first provider and lane `otherwise`."""
        ...

    async def hasten(self, seconds: float) -> int:
        """Make waiting routes due `seconds` earlier, in tests and drills; returns their number."""
        ...

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        """Delete at most `limit` old records whose routes are all terminal, and old malformed intents."""
        ...

    async def prune_beside(self, older_than: float, limit: int) -> int:
        """Delete at most `limit` of old receipts, of told digests and of unused keys; returns the largest number."""
        ...

    async def prune_throttles(self, older_than: float, limit: int) -> int:
        """Delete at most `limit` counts of throttles that nobody has added to for so long; returns their number."""
        ...

    async def lost_tickets(self, after: int, limit: int) -> tuple[list[int], int | None]:
        """Of the next tickets of open routes, those that no claim would find, and the last one; None at the end."""
        ...

    async def put_back(self, tickets: Sequence[int]) -> int:
        """Let routes whose tickets are lost wait for another one; returns how many still needed it."""
        ...

    async def check(self) -> dict[str, Any]:
        """The engine's version, its durability settings, and the difference of its clock in seconds."""
        ...


class Templates(Protocol):
    """Finds templates."""

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        """The template for exactly this code, channel and locale; a tenant's own goes before the shared one."""
        ...

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        """The (channel, locale) pairs in which the code exists for this tenant."""
        ...

    async def category(self, code: str, tenant_id: str | None = None) -> str | None:
        """The category that the code's templates name for messages without one."""
        ...


class ReceiptLedger(Protocol):
    """The ledger as receipts use it."""

    async def take_receipts(self, receipts: Sequence[Receipt], rules: ReceiptRules) -> list[TakenReceipt]:
        """Store receipts and apply each of them once; one answer per receipt, in order."""
        ...

    async def take_waiting_receipts(self, rules: ReceiptRules, limit: int) -> list[TakenReceipt]:
        """Apply receipts that arrived before their message was settled."""
        ...

    async def overdue_receipts(self, limit: int) -> list[OverdueReceipt]:
        """Messages whose delivery report did not come in time, the oldest first."""
        ...

    async def give_up_receipts(self, overdue: Sequence[OverdueReceipt]) -> None:
        """Wait for these reports no longer; one that came due again meanwhile stays."""
        ...


class Provider(Protocol):
    """Sends messages through one vendor."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        """Call the vendor once; a failure of the vendor or the network is an outcome and is never raised."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class Preparer(Protocol):
    """Renders the message of a claim that was queued without one."""

    async def prepare(self, claim: Claim) -> Message | Bury | Defer:
        """The message, or the verdict on a claim without one; a failure of another service is never raised."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A provider with a health probe that sends no message."""

    async def probe(self) -> str | None:
        """None if the vendor works, otherwise the error; sends no message to anybody."""
        ...


@runtime_checkable
class BatchProvider(Provider, Protocol):
    """A provider that sends many messages in one call."""

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        """One outcome per dispatch, in order; a failure of the vendor or the network is never raised."""
        ...


@runtime_checkable
class StartingProvider(Provider, Protocol):
    """A provider that starts calls without a task for each of them."""

    def start(self, dispatch: Dispatch, tell: Callable[[Outcome], None]) -> Callable[[], None]:
        """Start the call and return a function that cancels it; unless cancelled, `tell` gets one outcome in time."""
        ...


class ReceiptReader(Protocol):
    """Reads the callbacks of one vendor."""

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:
        """Verify and decode a callback; header names are lower-case, `url` is the URL that the vendor called.

        Raises Forged before it reads the content.
        """
        ...


class Breakers(Protocol):
    """The breakers of all providers, in memory or shared."""

    async def admit(self, provider: str) -> Admission:
        """Ask for permission to call a provider; after the answer PROBE the caller must call `record`."""
        ...

    async def record(self, provider: str, *, ok: bool) -> None:
        """Record whether the provider worked; a provider that refuses a recipient works."""
        ...

    async def trip(self, provider: str) -> None:
        """Open the provider's breaker at once; one that is open keeps its time."""
        ...

    async def states(self) -> dict[str, State]:
        """The state of the breaker of each provider that was used so far."""
        ...


class LookupLedger(Protocol):
    """The ledger as `explain` reads it."""

    async def look_up_earlier(self, notification: Notification) -> Enrolled | None:
        """The answer of enrolling if the idempotency key was used before; None if the notification is new."""
        ...

    async def suppression_in_force(
        self, channel: str, address: str, tenant_id: str | None, due_ms: int | None
    ) -> dict[str, Any] | None:
        """The suppression that a route to this address meets when it is due; None for now, and None for no answer."""
        ...

    async def throttle_times(self, tenant_id: str | None, audience: str, category: str) -> list[int]:
        """The last times of notifications of this category to this person, in Unix milliseconds."""
        ...

    async def person_digests(self, tenant_id: str | None, audience: str, limit: int) -> list[Row]:
        """The open digests of one person, the first to close first."""
        ...

    async def group_calls(self, group: int) -> int:
        """How many claims hold a place of this group, over all processes."""
        ...


class ViewedBreakers(Protocol):
    """Breakers that can be read without asking for the right to call."""

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The state that the fleet shares about each provider's breaker, with times relative to now."""
        ...


class ViewedTargets(Protocol):
    """Targets whose breakers and paces can be read without asking for the right to call."""

    def target(self, provider: str, claim: Claim) -> str | None:
        """The endpoint that the claim calls at this provider, as a target; None if the provider has none."""
        ...

    def targets_of(self, provider: str, claim: Claim) -> list[str]:
        """Every target that the claim counts for at this provider."""
        ...

    async def views(self, pairs: Iterable[tuple[str, Claim]]) -> dict[str, TargetView]:
        """What the fleet knows about every target of these claims, with times relative to now."""
        ...


class NoTargets:
    """Satisfies ViewedTargets where no provider has endpoints."""

    def target(self, provider: str, claim: Claim) -> str | None:  # noqa: ARG002 - the same for every claim
        return None

    def targets_of(self, provider: str, claim: Claim) -> list[str]:  # noqa: ARG002 - as above
        return []

    async def views(self, pairs: Iterable[tuple[str, Claim]]) -> dict[str, TargetView]:  # noqa: ARG002 - as above
        return {}
