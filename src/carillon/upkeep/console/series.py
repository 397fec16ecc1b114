"""What the console counts in this process: calls in steps of ten seconds, the newest troubles, and what fails now."""

from collections import deque
from typing import Any

import msgspec

from carillon.domain.events import (
    BreakerChanged,
    EndpointDisabled,
    EndpointEnabled,
    Event,
    IntentAccepted,
    RouteAttempted,
    Trouble,
)
from carillon.domain.gate_events import AddressSuppressed, RouteSuppressed
from carillon.domain.ports import Clock

STEP_SECONDS = 10.0
STEPS = 360
"""An hour."""
SAMPLES = 200
"""Durations kept of one step; more than enough for a percentile that a chart can show."""
RECENT = 200
FAILING_SECONDS = 300.0
FEWEST_CALLS = 5
"""Fewer calls say nothing about a provider."""
FAILING_SHARE = 0.2
_TOLD = BreakerChanged | EndpointDisabled | EndpointEnabled | Trouble | RouteSuppressed | AddressSuppressed


class ProviderCalls(msgspec.Struct):
    """The calls of one provider for one channel in one step."""

    made: int = 0
    failed: int = 0
    error: str | None = None
    """The newest error."""


class SeriesStep(msgspec.Struct):
    """The counts of one step."""

    at: float
    """The beginning of the step in Unix seconds."""
    accepted: int = 0
    delivered: int = 0
    retried: int = 0
    failed: int = 0
    durations: list[float] = []
    calls: dict[tuple[str, str], ProviderCalls] = {}
    """By channel and provider."""


class Failing(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A provider most of whose calls, or many of them, failed lately."""

    channel: str
    provider: str
    calls: int
    failed: int
    seconds: float
    """The time over which these calls were counted."""
    error: str | None
    """The newest error."""


class Series:
    """An Observer that counts events for the charts; it runs in every attempt, so it is fast and never raises."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[SeriesStep] = deque(maxlen=STEPS)
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._number = 0

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        if isinstance(event, RouteAttempted):
            self._attempted(event)
        elif isinstance(event, IntentAccepted):
            self._now().accepted += 1
        elif isinstance(event, _TOLD):
            self._tell(event)

    def steps(self) -> list[dict[str, Any]]:
        """The steps of the last hour, oldest first, without empty ones."""
        return [_seen(step) for step in self._steps]

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Failures, breaker changes and troubles after the event number `after`, and the newest number."""
        return self._number, [told for told in self._recent if told["number"] > number]

    def failing(self) -> list[Failing]:
        """The providers whose calls fail now, the worst first."""
        begin = self._clock.wall() - FAILING_SECONDS
        summed: dict[tuple[str, str], ProviderCalls] = {}
        for step in self._steps:
            if step.at + STEP_SECONDS > begin:
                for name, calls in step.calls.items():
                    held = summed.setdefault(name, ProviderCalls())
                    held.made += calls.made
                    held.failed += calls.failed
                    held.error = calls.error or held.error
        found = [
            Failing(
                channel=channel,
                provider=provider,
                calls=calls.made,
                failed=calls.failed,
                seconds=FAILING_SECONDS,
                error=calls.error,
            )
            for (channel, provider), calls in summed.items()
            if calls.made >= FEWEST_CALLS and calls.failed >= FAILING_SHARE * calls.made
        ]
        return sorted(found, key=lambda one: (-one.failed / one.calls, one.channel, one.provider))

    def _attempted(self, event: RouteAttempted) -> None:
        if event.verdict == "skip":
            # No call was made.
            self._tell(event)
            return
        step = self._now()
        calls = step.calls.setdefault((event.channel, event.provider), ProviderCalls())
        calls.made += 1
        if len(step.durations) < SAMPLES:
            step.durations.append(event.duration_ms)
        if event.verdict == "finish":
            step.delivered += 1
            return
        calls.failed += 1
        calls.error = event.error or event.classification
        if event.verdict == "bury":
            step.failed += 1
        else:
            step.retried += 1
        self._tell(event)

    def _now(self) -> SeriesStep:
        at = self._clock.wall() // STEP_SECONDS * STEP_SECONDS
        if not self._steps or self._steps[-1].at < at:
            self._steps.append(SeriesStep(at))
        return self._steps[-1]

    def _tell(self, event: Event) -> None:
        self._number += 1
        told = msgspec.to_builtins(event)
        self._recent.append({"number": self._number, "at": self._clock.wall(), **told})


def _seen(step: SeriesStep) -> dict[str, Any]:
    durations = sorted(step.durations)
    return {
        "at": step.at,
        "accepted": step.accepted,
        "delivered": step.delivered,
        "retried": step.retried,
        "failed": step.failed,
        "p50Ms": _percentile(durations, 0.5),
        "p99Ms": _percentile(durations, 0.99),
    }


def _percentile(durations: list[float], share: float) -> float | None:
    return round(durations[min(len(durations) - 1, int(len(durations) * share))], 1) if durations else None
