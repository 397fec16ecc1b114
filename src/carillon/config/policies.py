"""Retry, breaker and queue policies in the settings, and the other names of their fields."""

import re
from typing import Any

import msgspec

from carillon.domain.breaker import BreakerPolicy
from carillon.domain.pace import RatePolicy
from carillon.domain.policy import RetryPolicy
from carillon.domain.queues import Policy, QueueUpkeep

ALIASES = {
    # The blueprints' own names for parts of a retry policy.
    "maxAttempts": "max_attempts",
    "baseDelaySeconds": "base_delay_seconds",
    "backoffFactor": "backoff_factor",
    "maxBackoffSeconds": "max_delay_seconds",
    "timeoutSeconds": "timeout_seconds",
    "backoff_multiplier": "backoff_factor",
}
EVERY_OTHER = "*"
_NOT_IN_VARIABLES = re.compile(r"[^a-z0-9]")


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Retry policies by `origin/channel`, breaker policies and rates by provider; `*` is every other one."""

    retry: dict[str, RetryPolicy] = msgspec.field(default_factory=lambda: {"*/*": RetryPolicy(max_attempts=6)})
    breaker: dict[str, BreakerPolicy] = msgspec.field(default_factory=lambda: {"*": BreakerPolicy()})
    rate: dict[str, RatePolicy] = {}


def renamed(table: dict[str, Any]) -> dict[str, Any]:
    """One retry policy under the fields' own names; `jitterMs` becomes seconds, and `dlq` is push-worker's `bury`."""
    found = {ALIASES.get(name, name): value for name, value in table.items()}
    if isinstance(found.get("jitterMs"), int | float):
        found["jitter_seconds"] = found.pop("jitterMs") / 1000
    if found.get("on_open") == "dlq":
        found["on_open"] = "bury"
    return found


def queue_policies(tables: dict[str, Policy], scale: float = 1.0) -> dict[str, Policy]:
    """The policy of every queue that is named, and of `*`; waits shortened or stretched by the drill's time scale."""
    found = {EVERY_OTHER: Policy(), **tables}
    return {name: policy.checked(name).scaled(scale) for name, policy in found.items()}


def named_queues(tables: dict[str, Any]) -> dict[str, Any]:
    """Complete tables by queue; fields that a table does not set have the value of the table `*`.

    Variables hold no colons: `q_pay_refund_initiation` names `q:pay:refund_initiation`.
    """
    known = {_NOT_IN_VARIABLES.sub("_", name.lower()): name for name in tables if ":" in name}
    found: dict[str, Any] = {}
    # Tables of the environment come last and override those of files.
    for name in sorted(tables, key=lambda name: ":" not in name):
        queue = name if ":" in name else known.get(name) or _spelt_out(name)
        found[queue] = _over(found.get(queue), tables[name])
    return {queue: _over(found.get(EVERY_OTHER), table) for queue, table in found.items()}


def check_queues(tables: dict[str, Policy], beat: QueueUpkeep) -> None:
    """Raise ConfigurationError for the first invalid setting; the error names it."""
    queue_policies(tables)
    beat.checked()


def _spelt_out(name: str) -> str:
    if name == "default":
        return EVERY_OTHER
    parts = name.split("_", 2)
    return ":".join(parts) if parts[0] == "q" and all(parts) and len(parts) > 2 else name  # noqa: PLR2004 - q, domain, name


def _over(below: object, above: object) -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    return {**below, **above} if isinstance(below, dict) and isinstance(above, dict) else above
