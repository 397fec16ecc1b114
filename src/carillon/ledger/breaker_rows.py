"""How a breaker becomes a row and back, and which steps need no lock: the same for every engine."""

from collections.abc import Mapping
from typing import Any

import msgspec

from carillon.domain.breaker import Breaker, BreakerPolicy, BreakerVerb, State, Step, step


def unlocked(row: Mapping[str, Any] | None, policy: BreakerPolicy, verb: BreakerVerb) -> Step | None:
    """The answer where the step would change nothing; None where it must be taken under the lock."""
    breaker, now = (Breaker(), 0.0) if row is None else (read(row), float(row["now"]))
    after, said = step(breaker, policy, verb, now)
    return said if after == breaker else None


def read(row: Mapping[str, Any]) -> Breaker:
    """The machine's memory."""
    return Breaker(
        state=State(row["state"]),
        failures=row["failures"],
        successes=row["successes"],
        opened_at=row["opened_at"] or 0.0,
        probes=tuple(msgspec.json.decode(row["probes_json"], type=list[float])),
    )


def columns(breaker: Breaker) -> dict[str, Any]:
    """What is kept of it."""
    return {
        "state": str(breaker.state),
        "failures": breaker.failures,
        "successes": breaker.successes,
        "opened_at": breaker.opened_at or None,
        "probes_json": msgspec.json.encode(breaker.probes).decode(),
    }
