"""The settings that decisions are made by: retry, failover, unknown outcomes."""

from typing import Literal

import msgspec

from carillon.domain.backoff import Backoff
from carillon.domain.lanes import Lane


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How stubbornly one class of messages is attempted."""

    backoff: Backoff = Backoff()
    budget: int = 6
    counts: Literal["attempts", "retries"] = "attempts"
    timeout_seconds: float = 20.0
    failover_after_attempts: int | None = 2
    """Attempts on one provider before the next one is asked; None keeps only the last attempt of the budget for it."""
    on_refused: Literal["bury", "fail_over"] = "fail_over"
    on_unknown: Literal["retry", "fail_over", "wait_for_receipt", "bury"] = "retry"
    on_open: Literal["defer", "bury"] = "defer"
    """What happens when every provider of the route has its breaker open."""
    receipt_wait_seconds: float = 300.0
    throttled_counts: bool = False
    """True makes a throttled answer spend an attempt like any other failure."""
    retry_after_cap_seconds: float = 3600.0
    give_up_after_seconds: float = 259_200.0
    """A route older than this is buried instead of being deferred for ever."""

    @property
    def max_attempts(self) -> int:
        """The budget as a number of calls."""
        return self.budget + 1 if self.counts == "retries" else self.budget


class PolicyTable(msgspec.Struct, frozen=True):
    """Policies under `origin/channel`, with `*` for either side."""

    policies: dict[str, RetryPolicy]

    def name_for(self, origin: str, channel: str) -> str:
        """The most exact policy: origin and channel, then channel, then origin, then the default."""
        for name in (f"{origin}/{channel}", f"*/{channel}", f"{origin}/*"):
            if name in self.policies:
                return name
        return "*/*"

    def get(self, name: str) -> RetryPolicy:
        """The policy of that name; a name that settings no longer hold means the default."""
        return self.policies.get(name) or self.policies["*/*"]

    def max_attempts(self, name: str, lane: Lane) -> int:
        """The budget in calls: a policy for exactly this origin and channel wins, others are capped by the lane."""
        budget = self.get(name).max_attempts
        if "*" not in name or lane.max_attempts is None:
            return budget
        return min(budget, lane.max_attempts)

    def timeout(self, name: str, lane: Lane) -> float:
        """The whole deadline of one call, capped by the lane in the same way."""
        seconds = self.get(name).timeout_seconds
        if "*" not in name or lane.timeout_seconds is None:
            return seconds
        return min(seconds, lane.timeout_seconds)
