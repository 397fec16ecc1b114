"""The JSON of the providers in use: how their newest calls ended, and how long they took."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.breaker import State
from carillon.web.problems import rfc3339_ms

Row = Mapping[str, Any]
_FAILED = frozenset({"unavailable", "unknown"})
"""Outcomes that a breaker counts as failures of the provider."""
_WELL = frozenset({"sent", "none"})
"""The message went out, or nobody was called."""


class ErrorClass(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Calls that ended badly in the same way."""

    classification: str
    count: int
    error: str | None
    """The newest text."""


class ProviderView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One provider of one channel; counts are of the newest attempts."""

    channel: str
    provider: str
    position: int
    """0 is asked first."""
    state: str
    attempts: int
    failures: int
    """Calls without an answer, or with one that says that the provider has a fault; its breaker counts these."""
    refusals: int
    """Calls that the provider answered and refused: because of the message, of its address, or of our account."""
    share: float | None
    """Of the channel's newest attempts."""
    p50_ms: float | None
    """Half of the newest calls took no longer."""
    p95_ms: float | None
    errors: list[ErrorClass]
    """Failures, refusals and requests to slow down by class, the most frequent first."""
    last_outcome: str | None
    last_error: str | None
    last_attempt_at: str | None


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    """Every provider in use, by channel and in the order of failover."""

    items: list[ProviderView]


def provider_list(
    chains: Mapping[str, Sequence[str]], states: Mapping[str, State], recent: Sequence[Row]
) -> ProviderList:
    """Every provider in use with its newest attempts; `recent` is sorted oldest first."""
    of_pair: dict[tuple[str, str], list[Row]] = {}
    of_channel: dict[str, int] = {}
    for row in recent:
        of_pair.setdefault((row["channel"], row["provider"]), []).append(row)
        of_channel[row["channel"]] = of_channel.get(row["channel"], 0) + 1
    return ProviderList(
        items=[
            _provider(
                channel,
                name,
                position,
                state=states.get(name, State.CLOSED),
                rows=of_pair.get((channel, name), []),
                of_channel=of_channel.get(channel, 0),
            )
            for channel, chain in sorted(chains.items())
            for position, name in enumerate(chain)
        ]
    )


def _provider(
    channel: str, name: str, position: int, *, state: State, rows: Sequence[Row], of_channel: int
) -> ProviderView:
    last: Row = rows[-1] if rows else {}
    return ProviderView(
        channel=channel,
        provider=name,
        position=position,
        state=str(state),
        attempts=len(rows),
        failures=sum(row["outcome"] in _FAILED for row in rows),
        refusals=sum(row["outcome"] == "refused" for row in rows),
        share=round(len(rows) / of_channel, 4) if of_channel else None,
        p50_ms=_percentile(rows, 0.5),
        p95_ms=_percentile(rows, 0.95),
        errors=_errors(rows),
        last_outcome=last.get("outcome"),
        last_error=next((row["error"] for row in reversed(rows) if row["error"]), None),
        last_attempt_at=rfc3339_ms(last["started_at"]) if rows else None,
    )


def _percentile(rows: Sequence[Row], share: float) -> float | None:
    took = sorted(row["duration_ms"] for row in rows)
    return round(took[min(len(took) - 1, int(len(took) * share))], 1) if took else None


def _errors(rows: Sequence[Row]) -> list[ErrorClass]:
    found: dict[str, tuple[int, str | None]] = {}
    for row in rows:
        if row["outcome"] not in _WELL:
            name = row["classification"] or row["outcome"]
            found[name] = (found.get(name, (0, None))[0] + 1, row["error"])
    ordered = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    return [ErrorClass(classification=name, count=count, error=error) for name, (count, error) in ordered]
