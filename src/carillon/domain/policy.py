"""Backoff and retry policy: one shape for the settings and for the engine."""

from typing import Literal, Self

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.domain.lanes import Lane
from carillon.domain.suppressions import SAID_NO

LONGEST_SECONDS = 100 * 366 * 86_400.0
"""A hundred years: a longer wait is a mistake, and the ledger could not store the time of its end."""


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Waits grow as base·multiplier^(n-1+first_exponent) up to the longest wait; jitter is added to that.

    Retry policies and queue policies extend this struct, so that a wait has the same fields in settings and engine.
    """

    base_delay_seconds: float = 5.0
    backoff_multiplier: float = 2.0
    max_delay_seconds: float = 600.0
    jitter: Literal["none", "additive", "proportional", "full"] = "additive"
    jitter_seconds: float = 1.0
    """For `additive`, the most seconds to add; for `proportional`, a share of the wait."""
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
        """The same waits, multiplied by `scale` for a drill."""
        return msgspec.structs.replace(
            self,
            base_delay_seconds=self.base_delay_seconds * scale,
            max_delay_seconds=self.max_delay_seconds * scale,
            # Proportional jitter is a share of the wait, so it scales with it.
            jitter_seconds=self.jitter_seconds * (1.0 if self.jitter == "proportional" else scale),
        )

    def waits(self) -> tuple[float, float, float]:
        """The three durations whose range is checked."""
        return self.base_delay_seconds, self.max_delay_seconds, self.jitter_seconds


class RetryPolicy(Backoff, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy of one class of messages: attempts, waits, timeouts and failover."""

    backoff_multiplier: float = msgspec.field(default=2.0, name="backoff_factor")
    """`backoff_factor` in the settings."""
    enabled: bool = True
    """False ignores this policy, so that the next less specific one applies."""
    max_attempts: int | None = None
    """The number of calls over all providers; a policy sets this or `max_retries`."""
    max_retries: int | None = None
    """The number of calls after the first."""
    timeout_seconds: float = 20.0
    """The deadline of one whole call."""
    failover_after_attempts: int | Literal["max"] = 2
    """Attempts on one provider before failover; `max` keeps only the last attempt for the next provider."""
    open_after_retries: bool = False
    """True opens a provider's breaker when a message has used up its attempts there and another provider is left."""
    on_refused: Literal["bury", "fail_over"] = "fail_over"
    no_failover_for: list[str] = msgspec.field(default_factory=lambda: list(SAID_NO))
    """Classifications of a refusal after which no other provider is asked."""
    on_unknown: Literal["retry", "fail_over", "wait_for_receipt", "bury"] = "retry"
    on_open: Literal["defer", "bury"] = "defer"
    """What to do if the breakers of all the route's providers are open."""
    receipt_wait_seconds: float = 300.0
    """How long `wait_for_receipt` waits before the next attempt."""
    throttled_counts: bool = False
    """True counts a throttled answer as an attempt, like any other failure."""
    retry_after_cap_seconds: float = 3600.0
    """The longest wait a provider may ask for."""
    give_up_after_seconds: float = 259_200.0
    """A route older than this becomes a dead letter instead of being deferred again."""

    @property
    def budget(self) -> int:
        """The number of calls that this policy allows."""
        return (self.max_attempts or 1) if self.max_retries is None else self.max_retries + 1

    def may_ask_another(self, classification: str) -> bool:
        """Whether a refusal of this class leads to the next provider."""
        return self.on_refused == "fail_over" and classification not in self.no_failover_for

    def failover_after(self, max_attempts: int) -> int:
        """Attempts on one provider before failover, within a budget of `max_attempts`."""
        if self.failover_after_attempts == "max":
            return max(1, max_attempts - 1)
        return self.failover_after_attempts

    def checked(self, name: str) -> Self:
        """This policy if it is valid; raises ConfigurationError with the reason."""
        where = f'policy.retry."{name}"'
        if self.max_attempts is None and self.max_retries is None:
            # A table of one name takes nothing over from another: the most specific one applies alone.
            raise ConfigurationError(
                f"{where}: set max_attempts or max_retries; a policy takes nothing over from a less specific one"
            )
        if self.max_attempts is not None and self.max_retries is not None:
            raise ConfigurationError(f"{where}: set either max_attempts or max_retries, not both")
        if self.budget < 1 or self.max_attempts == 0:
            raise ConfigurationError(f"{where}: the budget must allow at least one attempt")
        if self.failover_after(self.budget) < 1:
            raise ConfigurationError(
                f"{where}.failover_after_attempts: {self.failover_after_attempts} is not at least 1; "
                'write "max" to keep only the last attempt for the next provider'
            )
        # NaN fails every comparison below, and so is refused.
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
        """The same policy for a drill; the wait for a receipt is scaled with the others."""
        return msgspec.structs.replace(super().scaled(scale), receipt_wait_seconds=self.receipt_wait_seconds * scale)


class PolicyTable(msgspec.Struct, frozen=True):
    """Policies by `origin/channel`, with `*` for either side."""

    policies: dict[str, RetryPolicy]

    def __post_init__(self) -> None:
        """Refuse an invalid policy, whether it comes from settings or from code."""
        for name, policy in self.policies.items():
            policy.checked(name)

    @property
    def all_defer(self) -> bool:
        """Whether every policy defers at an open breaker; workers then do not claim routes of open providers."""
        return all(policy.on_open == "defer" for policy in self.policies.values())

    def name_for(self, origin: str, channel: str) -> str:
        """The most specific policy: origin and channel, then channel, then origin, then the default."""
        for name in (f"{origin}/{channel}", f"*/{channel}", f"{origin}/*"):
            if name in self.policies:
                return name
        return "*/*"

    def get(self, name: str) -> RetryPolicy:
        """The policy of that name; the default if the settings no longer have that name."""
        return self.policies.get(name) or self.policies["*/*"]

    def max_attempts(self, name: str, lane: Lane) -> int:
        """The budget of attempts; the lane caps it unless the policy is for exactly this origin and channel."""
        budget = self.get(name).budget
        if "*" not in name or lane.max_attempts is None:
            return budget
        return min(budget, lane.max_attempts)

    def timeout(self, name: str, lane: Lane) -> float:
        """The deadline of one whole call, capped by the lane in the same way."""
        seconds = self.get(name).timeout_seconds
        if "*" not in name or lane.timeout_seconds is None:
            return seconds
        return min(seconds, lane.timeout_seconds)
