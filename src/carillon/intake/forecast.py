"""Every attempt a policy allows, with its provider and its wait, if each of them failed."""

from collections.abc import Sequence
from typing import Any

from carillon.domain.policy import RetryPolicy


def attempts_of(policy: RetryPolicy, chain: Sequence[str], max_attempts: int) -> list[dict[str, Any]]:
    """Attempt by attempt: who would be asked, and between which seconds after the one before."""
    limit = policy.failover_after_attempts or max(1, max_attempts - 1)
    found: list[dict[str, Any]] = []
    for attempt in range(1, max_attempts + 1):
        provider = chain[min((attempt - 1) // limit, len(chain) - 1)]
        row: dict[str, Any] = {"attempt": attempt, "provider": provider}
        if attempt > 1:
            least, most = policy.backoff.delay(attempt - 1, 0.0), policy.backoff.delay(attempt - 1, 1.0)
            row |= {"afterSeconds": round(least, 3), "atMostSeconds": round(most, 3)}
        found.append(row)
    return found
