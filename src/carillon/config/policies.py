"""Retry and breaker policies as settings hold them, and the other names that retry policies are written in."""

from typing import Any

import msgspec

from carillon.domain.breaker import BreakerPolicy
from carillon.domain.policy import RetryPolicy

ALIASES = {
    # The blueprints' own names for parts of a retry policy.
    "maxAttempts": "max_attempts",
    "baseDelaySeconds": "base_delay_seconds",
    "backoffFactor": "backoff_factor",
    "maxBackoffSeconds": "max_delay_seconds",
    "timeoutSeconds": "timeout_seconds",
    "backoff_multiplier": "backoff_factor",
}


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Retry policies by `origin/channel`, breaker policies by provider; `*` is everybody else."""

    retry: dict[str, RetryPolicy] = msgspec.field(default_factory=lambda: {"*/*": RetryPolicy(max_attempts=6)})
    breaker: dict[str, BreakerPolicy] = msgspec.field(default_factory=lambda: {"*": BreakerPolicy()})


def renamed(table: dict[str, Any]) -> dict[str, Any]:
    """One retry policy under the fields' own names; `jitterMs` becomes seconds, and `dlq` is push-worker's `bury`."""
    found = {ALIASES.get(name, name): value for name, value in table.items()}
    if isinstance(found.get("jitterMs"), int | float):
        found["jitter_seconds"] = found.pop("jitterMs") / 1000
    if found.get("on_open") == "dlq":
        found["on_open"] = "bury"
    return found
