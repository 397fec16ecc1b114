"""The vocabulary of `explain`: what a request meets, gate by gate, while nothing is written or sent."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from carillon.domain.breaker import BreakerView
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolled, Notification

Verdict = Literal["pass", "stop", "note"]
Tell = Callable[[str, Mapping[str, Any]], None]
"""Acceptance calls it with each gate that the request passed and what it found there."""

GATES = (
    "mode",
    "channel",
    "preferences",
    "recipient",
    "suppression",
    "locale",
    "template",
    "render",
    "idempotency",
    "schedule",
    "lane",
    "policy",
    "providers",
    "breaker",
)
"""Every gate in the order in which a request meets them; `schedule` is there only for what waits."""


class ExplainStep(msgspec.Struct, frozen=True):
    """One gate: passed, stopped at, or passed with a remark."""

    step: str
    verdict: Verdict
    detail: dict[str, Any]


RouteOutcome = Literal["delivered", "queued", "skipped", "failed"]


class ExplainedRoute(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One recipient on one channel: what would become of it, with every attempt if each of them failed."""

    route_id: str
    channel: str
    recipient: str
    outcome: RouteOutcome
    policy: str
    max_attempts: int
    not_before: int | None = None
    """Unix milliseconds; None when the first attempt is due at once."""
    attempts: list[dict[str, Any]] = []
    ends: str | None = None
    """The status that the route ends in if every attempt fails; None when it goes on beyond what is shown."""
    because: str | None = None


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The outcome the same request would have now, and every gate on the way there."""

    outcome: Literal["delivered", "queued", "replayed", "skipped", "rejected", "failed"]
    """delivered and queued are what a send would go on to try; failed is what no provider could be called for."""
    steps: list[ExplainStep]
    routes: list[ExplainedRoute] = []
    """Every recipient on every channel; empty when the request would be rejected."""
    code: str | None = None
    message: str | None = None


class Explains(Protocol):
    """Answers what a request would come to."""

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        """Raise LedgerUnavailable; what is wrong with the request is part of the answer."""
        ...


class LookupLedger(Protocol):
    """What the ledger holds that decides about a request; it only reads."""

    async def foresee(self, notification: Notification) -> Enrolled | None:
        """What enrolling would answer if its key was used before; None when it would be accepted."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Suppressions in force."""
        ...


class ViewedBreakers(Protocol):
    """Breakers that can be read without asking for the right to call."""

    async def views(self, providers: Collection[str]) -> dict[str, BreakerView]:
        """The whole breaker of each, as the fleet sees it, its times counted from now."""
        ...


def in_order(steps: Sequence[ExplainStep]) -> list[ExplainStep]:
    """The gates in the order in which a request meets them."""
    return sorted(steps, key=lambda step: GATES.index(step.step))
