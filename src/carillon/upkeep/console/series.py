"""What happened in this process lately, in short steps of time: the charts of the console are drawn from it."""

from collections import deque
from typing import Any

import msgspec

from carillon.domain.events import BreakerChanged, Event, IntentAccepted, RouteAttempted, Trouble
from carillon.domain.ports import Clock

STEP_SECONDS = 10.0
STEPS = 360
"""An hour."""
SAMPLES = 200
"""Durations kept of one step; more than enough for a percentile that a chart can show."""
RECENT = 200


class Step(msgspec.Struct):
    """What was counted within one step."""

    at: float
    """Unix seconds of its beginning."""
    accepted: int = 0
    delivered: int = 0
    retried: int = 0
    failed: int = 0
    durations: list[float] = []


class Series:
    """An Observer that counts; must not raise and does little, for it stands in every attempt's way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[Step] = deque(maxlen=STEPS)
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._number = 0

    def __call__(self, event: Event) -> None:
        """Be an Observer."""
        if isinstance(event, RouteAttempted):
            self._attempted(event)
        elif isinstance(event, IntentAccepted):
            self._now().accepted += 1
        elif isinstance(event, BreakerChanged | Trouble):
            self._tell(event)

    def steps(self) -> list[dict[str, Any]]:
        """The last hour, oldest first; what is quiet is left out."""
        return [_seen(step) for step in self._steps]

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """What happened after a number: failures, breakers, troubles; and the newest number."""
        return self._number, [told for told in self._recent if told["number"] > number]

    def _attempted(self, event: RouteAttempted) -> None:
        step = self._now()
        if len(step.durations) < SAMPLES:
            step.durations.append(event.duration_ms)
        if event.verdict == "finish":
            step.delivered += 1
            return
        if event.verdict == "bury":
            step.failed += 1
        else:
            step.retried += 1
        self._tell(event)

    def _now(self) -> Step:
        at = self._clock.wall() // STEP_SECONDS * STEP_SECONDS
        if not self._steps or self._steps[-1].at < at:
            self._steps.append(Step(at))
        return self._steps[-1]

    def _tell(self, event: Event) -> None:
        self._number += 1
        told = msgspec.to_builtins(event)
        self._recent.append({"number": self._number, "at": self._clock.wall(), **told})


def _seen(step: Step) -> dict[str, Any]:
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
