"""The ports between rooms, each as small as possible."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from carillon.domain.breaker import Admission, State
from carillon.domain.claims import Claim, Dispatch, Settled, Settlement, Want
from carillon.domain.events import Event
from carillon.domain.intents import Arrival, Intent, Malformed, Progress
from carillon.domain.notifications import Acceptance, Enrolled, Enrolment, Message, Story, Template
from carillon.domain.outcomes import Outcome
from carillon.domain.people import Found
from carillon.domain.receipts import CallbackReading, Receipt, ReceiptRules, TakenReceipt
from carillon.domain.verdicts import Bury, Defer

Observer = Callable[[Event], None]
"""Must not raise, must not block."""

Dice = Callable[[], float]
"""Uniform in [0, 1)."""

ClaimOnAccept = Callable[[Sequence[Enrolment]], Awaitable[list[Enrolled] | None]]
"""Writes a batch in one commit as claims of an idle worker, which starts them; None, and nothing written, when busy."""

Ids = Callable[[], str]
"""A new id, unique and growing with time."""


class Clock(Protocol):
    """Time, so that tests can own it."""

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
    """Wakes the workers that claim when routes are enrolled; several rings may become one."""

    def ring(self) -> None:
        """Announce work; never blocks."""
        ...

    async def wait(self, timeout_seconds: float) -> None:
        """Return when somebody rang since the last wait, or after the timeout."""
        ...


class Acceptor(Protocol):
    """What a door hands its intents to."""

    async def accept(self, intent: Intent) -> Acceptance:
        """Return once the ledger has it; raises BadIntent, LedgerUnavailable or Overloaded and has written nothing."""
        ...


class OrderedAcceptor(Protocol):
    """What a door hands its intents to when their order is their transport's and one offset stands for all of them."""

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        """Write down as many as can be, from the first on; raises LedgerUnavailable and the caller asks again."""
        ...


class Directory(Protocol):
    """Who people are and how they are reached."""

    async def find(self, user_ids: Collection[str]) -> dict[str, Found]:
        """An answer about each; never raises for what the directory or the network did."""
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...


class IntakeLedger(Protocol):
    """Where accepted intents are written down."""

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        """Write all of the batch in one commit; one answer each, in order."""
        ...

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        """Keep what could not be accepted; the same entry twice is one row."""
        ...


class Backlog(Protocol):
    """Where work waits and is claimed from."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        """Lease up to `total` due routes, asking the wants in order, each up to its limit."""
        ...

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases by token; returns the claims that are no longer ours."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write verdicts and notes in one commit; one answer each, in order."""
        ...


class UpkeepLedger(Protocol):
    """What operators and upkeep ask and do."""

    async def story(self, notification_id: str, tenant_id: str | None) -> Story | None:
        """One notification with all its routes and attempts."""
        ...

    async def search(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Story], int]:
        """Newest first, and how many match in all."""
        ...

    async def counts(self) -> dict[str, Any]:
        """Routes by status, due routes, age of the oldest due route in seconds."""
        ...

    async def dead_letters(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Dead letters, newest first, and how many match in all."""
        ...

    async def cancel(self, notification_id: str, tenant_id: str | None = None) -> int:
        """Skip the open routes that no worker holds; answers how many."""
        ...

    async def rehome(self, channel: str, providers: Sequence[str], lanes: Sequence[int], otherwise: int) -> int:
        """Give waiting routes whose provider or lane is configured no more the first provider and lane `otherwise`."""
        ...

    async def hasten(self, seconds: float) -> int:
        """Let time pass for what waits, in tests and drills; how many routes."""
        ...

    async def prune(self, records_older_than: float, malformed_older_than: float, limit: int) -> tuple[int, int]:
        """Delete at most `limit` old records whose routes are all terminal, and old malformed intents."""
        ...

    async def check(self) -> dict[str, Any]:
        """Ask the engine itself: version, durability settings, clock difference in seconds."""
        ...


class Templates(Protocol):
    """Where templates are found."""

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        """The template for exactly this code, channel and locale; a tenant's own goes before everybody's."""
        ...

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        """The (channel, locale) pairs a code exists in for this tenant."""
        ...


class ReceiptLedger(Protocol):
    """Where receipts are stored and applied to their routes."""

    async def take_receipts(self, receipts: Sequence[Receipt], rules: ReceiptRules) -> list[TakenReceipt]:
        """Store receipts and apply each once; one answer each, in order."""
        ...

    async def take_waiting_receipts(self, rules: ReceiptRules, limit: int) -> list[TakenReceipt]:
        """Apply receipts that came before their message was known."""
        ...


class Provider(Protocol):
    """One vendor, outgoing."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        """Call the vendor once; never raises for what the vendor or the network did."""
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...


class Preparer(Protocol):
    """Makes the message of a claim that was queued without one."""

    async def prepare(self, claim: Claim) -> Message | Bury | Defer:
        """The message, or what becomes of a claim that gets none; never raises for what a neighbour did."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A vendor that can be asked whether it would take a message, without one."""

    async def probe(self) -> str | None:
        """None when the vendor answers as it should, otherwise what is wrong; never a user's message."""
        ...


@runtime_checkable
class BatchProvider(Provider, Protocol):
    """A vendor that takes many messages at once."""

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        """One outcome each, in order; never raises for what the vendor or the network did."""
        ...


@runtime_checkable
class StartingProvider(Provider, Protocol):
    """A vendor that is called once for each message, without a task that waits for it."""

    def start(self, dispatch: Dispatch, tell: Callable[[Outcome], None]) -> Callable[[], None]:
        """Set out; `tell` hears the outcome once, in the dispatch's time, unless what is returned was called before."""
        ...


class ReceiptReader(Protocol):
    """One vendor, incoming: its callbacks."""

    def read(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackReading:
        """Verify and translate a callback; header names are lower-case, `url` is the one the vendor called.

        Raises Forged before it looks at the content.
        """
        ...


class Breakers(Protocol):
    """The breakers of all providers, in memory or shared."""

    async def admit(self, provider: str) -> Admission:
        """Ask to call a provider; PROBE must be followed by record."""
        ...

    async def record(self, provider: str, *, ok: bool) -> None:
        """Say whether the provider itself worked; a refused recipient is a working provider."""
        ...

    async def states(self) -> dict[str, State]:
        """What is known of every provider asked about so far."""
        ...
