"""How stubbornly messages are attempted, as settings say it."""

from typing import Literal

import msgspec

from carillon.domain.backoff import Backoff
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.errors import ConfigurationError
from carillon.domain.policy import RetryPolicy


class RetryTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One retry policy as it is written: flat, in seconds; the documents' own names are aliases (see ALIASES)."""

    enabled: bool = True
    """False lets the next less exact policy hold instead."""
    max_attempts: int | None = None
    max_retries: int | None = None
    base_delay_seconds: float = 5.0
    backoff_factor: float = 2.0
    max_delay_seconds: float = 600.0
    jitter: Literal["none", "additive", "proportional", "full"] = "additive"
    jitter_seconds: float = 1.0
    first_exponent: int = 0
    timeout_seconds: float = 20.0
    failover_after_attempts: int | Literal["max"] = 2
    on_refused: Literal["bury", "fail_over"] = "fail_over"
    on_unknown: Literal["retry", "fail_over", "wait_for_receipt", "bury"] = "retry"
    on_open: Literal["defer", "bury", "dlq"] = "defer"
    """`dlq` is document 000's word for `bury`."""
    receipt_wait_seconds: float = 300.0
    throttled_counts: bool = False
    retry_after_cap_seconds: float = 3600.0
    give_up_after_seconds: float = 259_200.0

    def policy(self, name: str) -> RetryPolicy:
        """The policy the engine decides by."""
        if (self.max_attempts is None) == (self.max_retries is None):
            raise ConfigurationError(f'policy.retry."{name}": say either max_attempts or max_retries')
        retries = self.max_retries is not None
        budget = self.max_retries if self.max_retries is not None else self.max_attempts
        if budget is None or budget < (0 if retries else 1):
            raise ConfigurationError(f'policy.retry."{name}": the budget must allow at least one attempt')
        if self.failover_after_attempts != "max" and self.failover_after_attempts < 1:
            raise ConfigurationError(
                f'policy.retry."{name}".failover_after_attempts: {self.failover_after_attempts} is not at least 1; '
                'say "max" to keep only the last attempt for the next provider'
            )
        waits = (self.base_delay_seconds, self.max_delay_seconds, self.jitter_seconds)
        if not (self.timeout_seconds > 0 and self.backoff_factor >= 1 and all(wait >= 0 for wait in waits)):  # NaN too
            raise ConfigurationError(f'policy.retry."{name}": times must be positive and backoff_factor at least 1')
        return RetryPolicy(
            backoff=Backoff(
                base=self.base_delay_seconds,
                factor=self.backoff_factor,
                cap=self.max_delay_seconds,
                jitter=self.jitter,
                jitter_max=self.jitter_seconds,
                first_exponent=self.first_exponent,
            ),
            budget=budget,
            counts="retries" if retries else "attempts",
            timeout_seconds=self.timeout_seconds,
            failover_after_attempts=None if self.failover_after_attempts == "max" else self.failover_after_attempts,
            on_refused=self.on_refused,
            on_unknown=self.on_unknown,
            on_open="defer" if self.on_open == "defer" else "bury",
            receipt_wait_seconds=self.receipt_wait_seconds,
            throttled_counts=self.throttled_counts,
            retry_after_cap_seconds=self.retry_after_cap_seconds,
            give_up_after_seconds=self.give_up_after_seconds,
        )


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Retry policies by `origin/channel`, breaker policies by provider; `*` is everybody else."""

    retry: dict[str, RetryTable] = msgspec.field(default_factory=lambda: {"*/*": RetryTable(max_attempts=6)})
    breaker: dict[str, BreakerPolicy] = msgspec.field(default_factory=lambda: {"*": BreakerPolicy()})
