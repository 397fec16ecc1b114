"""What the console counts in this process: calls in steps of ten seconds, troubles, and changes of breakers."""

from array import array
from collections import deque
from collections.abc import Hashable
from typing import Any

import msgspec

from carillon.domain.events import (
    BreakerChanged,
    CallsPaused,
    CallsResumed,
    EndpointDisabled,
    EndpointEnabled,
    Event,
    IntentAccepted,
    RouteAttempted,
    Trouble,
)
from carillon.domain.gate_events import AddressSuppressed, RouteSuppressed
from carillon.domain.ports import Clock
from carillon.version import __version__

STEP_SECONDS = 10.0
STEPS = 360
"""An hour."""
SAMPLES = 200
"""Durations kept of one step; more than enough for a percentile that a chart can show."""
RECENT = 200
MARKS = 200
SHOWN = 50
"""How many failures, and how many changes, a page shows at most."""
AGAIN_SECONDS = 600.0
"""The same failure again within this time is one event with a number; after a longer silence it is news."""
_CHANGES = (BreakerChanged, EndpointDisabled, EndpointEnabled, CallsPaused, CallsResumed)
_TOLD = (*_CHANGES, Trouble, RouteSuppressed, AddressSuppressed)


class SeriesStep(msgspec.Struct):
    """The counts of one step."""

    at: float
    """The beginning of the step in Unix seconds."""
    accepted: int = 0
    delivered: int = 0
    retried: int = 0
    failed: int = 0
    durations: "array[float]" = msgspec.field(default_factory=lambda: array("f"))
    """Four bytes each: as floats, those of an hour would take two megabytes of every process."""


class Series:
    """An Observer that counts events for the charts; it runs in every attempt, so it is fast and never raises."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[SeriesStep] = deque(maxlen=STEPS)
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._failures: dict[Hashable, dict[str, Any]] = {}
        self._changes: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        self._marks: deque[dict[str, Any]] = deque(maxlen=MARKS)
        self._number = 0
        self._mark("start", f"Carillon {__version__} started")

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

    def newest(self) -> list[dict[str, Any]]:
        """Failures and changes, newest first; no number of failures hides a change."""
        return sorted((*self._failures.values(), *self._changes), key=lambda told: told["number"], reverse=True)

    def marks(self) -> list[dict[str, Any]]:
        """The changes of breakers and the start of this process, oldest first."""
        return list(self._marks)

    def _attempted(self, event: RouteAttempted) -> None:
        if event.verdict == "skip":
            # No call was made.
            self._tell(event)
            return
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

    def _now(self) -> SeriesStep:
        at = self._clock.wall() // STEP_SECONDS * STEP_SECONDS
        if not self._steps or self._steps[-1].at < at:
            self._steps.append(SeriesStep(at))
        return self._steps[-1]

    def _mark(self, kind: str, text: str) -> None:
        self._marks.append({"at": self._clock.wall(), "kind": kind, "text": text})

    def _tell(self, event: Event) -> None:
        if isinstance(event, BreakerChanged):
            whose = event.endpoint or event.provider
            self._mark(f"breaker_{event.after}", f"The breaker of {whose} became {event.after.replace('_', ' ')}")
        self._number += 1
        told = {"number": self._number, "at": self._clock.wall(), **msgspec.to_builtins(event)}
        self._recent.append(told)
        if isinstance(event, _CHANGES):
            self._change(told)
        else:
            self._gather(_sameness(event, self._number), told)

    def _change(self, told: dict[str, Any]) -> None:
        """Keep a change; the failed probes of one breaker in a row are one change, the newest, with their number."""
        if (told.get("before"), told.get("after")) == ("half_open", "open"):
            told = told | {"probes": 1}
            for one in reversed([one for one in self._changes if _breaker(one) == _breaker(told)]):
                # The step to a probe is told by how the probe ended.
                if "probes" not in one and (one["before"], one["after"]) != ("open", "half_open"):
                    break
                told["probes"] += one.get("probes", 0)
                self._changes.remove(one)
        self._changes.append(told)

    def _gather(self, same: Hashable, told: dict[str, Any]) -> None:
        """Keep the newest of the same failures, with their number and the event that began them."""
        earlier = self._failures.pop(same, None)
        if earlier is not None and told["at"] - earlier["at"] > AGAIN_SECONDS:
            self._failures[earlier["number"]] = earlier
            earlier = None
        began, times = (told["number"], 1) if earlier is None else (earlier["began"], earlier["times"] + 1)
        self._failures[same] = told | {"began": began, "times": times}
        while len(self._failures) > SHOWN:
            del self._failures[next(iter(self._failures))]


def _breaker(told: dict[str, Any]) -> tuple[Any, ...] | None:
    return (told["provider"], told.get("endpoint")) if told["type"] == "breaker_changed" else None


def _sameness(event: Event, number: int) -> Hashable:
    """What failures have in common that an operator reads once; other events are each on their own."""
    if isinstance(event, RouteAttempted):
        return event.verdict, event.channel, event.provider, event.error
    return (event.where, event.error) if isinstance(event, Trouble) else number


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
