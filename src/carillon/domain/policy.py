"""The one backoff and the one retry policy: settings are written in their fields, and the engine decides by them."""

from typing import Literal, Self

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.domain.lanes import Lane

LONGEST_SECONDS = 100 * 366 * 86_400.0
"""A hundred years: a longer wait is a mistake, and the ledger could not store its end."""


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Waits grow as base·multiplier^(n-1+first_exponent) up to the longest wait; jitter comes on top of it.

    Retry policies and queue policies extend this struct, so that a wait has the same fields in settings and engine.
    """

    base_delay_seconds: float = 5.0
    backoff_multiplier: float = 2.0
    max_delay_seconds: float = 600.0
    jitter: Literal["none", "additive", "proportional", "full"] = "additive"
    jitter_seconds: float = 1.0
    """The most that `additive` adds; for `proportional` a share of the wait."""
    first_exponent: int = 0
    """1 makes the first wait base times multiplier."""

    def delay(self, failed_attempts: int, dice: float) -> float:
        """Seconds to wait after `failed_attempts` failures; `dice` is uniform in [0, 1)."""
        exponent = max(0, failed_attempts - 1) + self.first_exponent
        try:
            wait = min(self.base_delay_seconds * self.backoff_multiplier**exponent, self.max_delay_seconds)
        except OverflowError:
            wait = self.max_delay_seconds if self.base_delay_seconds > 0.0 else 0.0
        match self.jitter:
            case "none":
                return wait
            case "additive":
                return wait + dice * self.jitter_seconds
            case "proportional":
                return wait * (1.0 + dice * self.jitter_seconds)
            case "full":
                return wait * dice

    def scaled(self, scale: float) -> Self:
        """The same waits in a drill, where time is shorter or longer."""
        return msgspec.structs.replace(
            self,
            base_delay_seconds=self.base_delay_seconds * scale,
            max_delay_seconds=self.max_delay_seconds * scale,
            # A proportional jitter is a share of the wait and shrinks with it.
            jitter_seconds=self.jitter_seconds * (1.0 if self.jitter == "proportional" else scale),
        )

    def waits(self) -> tuple[float, float, float]:
        """The three durations, for a check of their range."""
        return self.base_delay_seconds, self.max_delay_seconds, self.jitter_seconds


class RetryPolicy(Backoff, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often, how long and where one class of messages is attempted."""

    backoff_multiplier: float = msgspec.field(default=2.0, name="backoff_factor")
    """Settings call it `backoff_factor`."""
    enabled: bool = True
    """False lets the next less exact policy hold instead."""
    max_attempts: int | None = None
    """Calls in all, over all providers; a policy says this or `max_retries`."""
    max_retries: int | None = None
    """Calls after the first."""
    timeout_seconds: float = 20.0
    """The whole deadline of one call."""
    failover_after_attempts: int | Literal["max"] = 2
    """Attempts on one provider before the next one is called; `max` keeps the last attempt of the budget for it."""
    on_refused: Literal["bury", "fail_over"] = "fail_over"
    on_unknown: Literal["retry", "fail_over", "wait_for_receipt", "bury"] = "retry"
    on_open: Literal["defer", "bury"] = "defer"
    """What happens when every provider of the route has its breaker open."""
    receipt_wait_seconds: float = 300.0
    """How long `wait_for_receipt` waits before it tries again."""
    throttled_counts: bool = False
    """True makes a throttled answer spend an attempt like any other failure."""
    retry_after_cap_seconds: float = 3600.0
    """The longest wait a provider may ask for."""
    give_up_after_seconds: float = 259_200.0
    """A route older than this becomes a dead letter instead of being deferred again."""

    @property
    def budget(self) -> int:
        """The number of calls that the policy allows."""
        return (self.max_attempts or 1) if self.max_retries is None else self.max_retries + 1

    def failover_after(self, max_attempts: int) -> int:
        """Attempts on one provider before the next one is called, within a budget of `max_attempts`."""
        if self.failover_after_attempts == "max":
            return max(1, max_attempts - 1)
        return self.failover_after_attempts

    def checked(self, name: str) -> Self:
        """The policy itself if it can work; ConfigurationError names what is wrong."""
        where = f'policy.retry."{name}"'
        if (self.max_attempts is None) == (self.max_retries is None):
            raise ConfigurationError(f"{where}: say either max_attempts or max_retries")
        if self.budget < 1 or self.max_attempts == 0:
            raise ConfigurationError(f"{where}: the budget must allow at least one attempt")
        if self.failover_after(self.budget) < 1:
            raise ConfigurationError(
                f"{where}.failover_after_attempts: {self.failover_after_attempts} is not at least 1; "
                'say "max" to keep only the last attempt for the next provider'
            )
        # NaN fails every comparison below, and is refused by it.
        if not (self.timeout_seconds > 0 and self.backoff_multiplier >= 1 and all(wait >= 0 for wait in self.waits())):
            raise ConfigurationError(f"{where}: times must be positive and backoff_factor at least 1")
        if self.base_delay_seconds > self.max_delay_seconds:
            raise ConfigurationError(
                f"{where}.base_delay_seconds: the shortest wait ({self.base_delay_seconds:g} s) is longer "
                f"than the longest, {where}.max_delay_seconds ({self.max_delay_seconds:g} s)"
            )
        longest = (*self.waits(), self.receipt_wait_seconds, self.retry_after_cap_seconds)
        if not all(0 <= wait <= LONGEST_SECONDS for wait in longest) or not self.give_up_after_seconds >= 0:
            raise ConfigurationError(f"{where}: times must be between 0 and 100 years")
        return self

    def scaled(self, scale: float) -> Self:
        """The same policy in a drill; the wait for a receipt shrinks with the others."""
        return msgspec.structs.replace(super().scaled(scale), receipt_wait_seconds=self.receipt_wait_seconds * scale)


class PolicyTable(msgspec.Struct, frozen=True):
    """Policies under `origin/channel`, with `*` for either side; every policy of the engine is in a table."""

    policies: dict[str, RetryPolicy]

    def __post_init__(self) -> None:
        """Refuse a policy that cannot work, from whichever settings or code it comes."""
        for name, policy in self.policies.items():
            policy.checked(name)

    @property
    def all_defer(self) -> bool:
        """Whether an open breaker ends no message: workers then leave the routes of open providers where they are."""
        return all(policy.on_open == "defer" for policy in self.policies.values())

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
        budget = self.get(name).budget
        if "*" not in name or lane.max_attempts is None:
            return budget
        return min(budget, lane.max_attempts)

    def timeout(self, name: str, lane: Lane) -> float:
        """The whole deadline of one call, capped by the lane in the same way."""
        seconds = self.get(name).timeout_seconds
        if "*" not in name or lane.timeout_seconds is None:
            return seconds
        return min(seconds, lane.timeout_seconds)
