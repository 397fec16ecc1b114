"""What would become of a request, gate by gate, without anything being written or sent."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from carillon.domain.breaker import State
from carillon.domain.decide import Standing, decide, following
from carillon.domain.intents import Intent
from carillon.domain.notifications import Enrolled, Notification
from carillon.domain.outcomes import Unavailable
from carillon.domain.policy import RetryPolicy
from carillon.domain.verdicts import FailOver, Retry

Verdict = Literal["pass", "stop", "note"]
Tell = Callable[[str, Mapping[str, Any]], None]
"""How acceptance says which gate was passed and what it found there."""

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
    "lane",
    "policy",
    "providers",
    "breaker",
)
"""Every gate in the order in which a request meets them."""


class ExplainStep(msgspec.Struct, frozen=True):
    """One gate: passed, stopped at, or passed with a remark."""

    step: str
    verdict: Verdict
    detail: dict[str, Any]


class Explanation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The outcome the same request would have now, and every gate on the way there."""

    outcome: Literal["delivered", "queued", "replayed", "skipped", "rejected", "failed"]
    """delivered and queued are what a send would go on to try; failed is what no provider could be asked for."""
    steps: list[ExplainStep]
    code: str | None = None
    message: str | None = None


class Explains(Protocol):
    """What can say what would happen."""

    async def explain(self, intent: Intent, mode: Mapping[str, Any]) -> Explanation:
        """Raises LedgerUnavailable; what is wrong with the request is part of the answer."""
        ...


class ForesightLedger(Protocol):
    """What the ledger knows that would decide about a request; reads only."""

    async def foresee(self, notification: Notification) -> Enrolled | None:
        """What enrolling would answer if its key was used before; None when it would be accepted."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Silences in force."""
        ...


class Looks(Protocol):
    """Breakers that can be looked at without asking to call."""

    async def look(self, providers: Collection[str]) -> dict[str, State]:
        """The state of each, as the whole fleet sees it."""
        ...


def in_order(steps: Sequence[ExplainStep]) -> list[ExplainStep]:
    """Gates as a request meets them, however they were learnt."""
    return sorted(steps, key=lambda step: GATES.index(step.step))


def attempts_of(policy: RetryPolicy, chain: Sequence[str], max_attempts: int) -> list[dict[str, Any]]:
    """Every attempt of a route whose providers are all unavailable: who is called, and after how many seconds."""
    found: list[dict[str, Any]] = [{"attempt": 1, "provider": chain[0]}]
    provider, attempts_before = chain[0], 0
    while True:
        attempt = len(found)
        waits: list[float] = []
        for dice in (0.0, 1.0):
            standing = Standing(
                attempt=attempt,
                attempts_here=attempt - attempts_before,
                max_attempts=max_attempts,
                age_seconds=0.0,
                next_provider=following(chain, provider),
                dice=dice,
            )
            verdict = decide(Unavailable("imagined"), policy, standing)
            if not isinstance(verdict, Retry | FailOver):
                return found
            waits.append(round(verdict.delay, 3))
        if isinstance(verdict, FailOver):
            provider, attempts_before = verdict.provider, attempt
        found.append(
            {"attempt": attempt + 1, "provider": provider, "afterSeconds": waits[0], "atMostSeconds": waits[1]}
        )
