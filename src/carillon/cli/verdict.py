"""What needs attention, in sentences, the worst first: the same rules as on the console's overview."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from rich.text import Text

from carillon.cli.words import counted

LATE_SECONDS = 60
_VERY_LATE_SECONDS = 600
_MARKS = {"bad": ("✖", "red"), "wait": ("▲", "yellow")}
_WELL = {"ok", "pass", "up", "healthy"}


class Note(msgspec.Struct, frozen=True):
    """Something that needs attention: now, or some time."""

    mood: Literal["bad", "wait"]
    what: str
    why: str = ""

    @property
    def line(self) -> Text:
        """With a mark, for those who see no colours."""
        mark, colour = _MARKS[self.mood]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{mark} {self.what}", f"bold {colour}")
        return text.append(f": {self.why}", colour) if self.why else text


def notes(seen: dict[str, Any]) -> list[Note]:
    """Of what `top` has seen; a list that an older server does not have is empty."""
    overview, providers = seen["overview"], seen["providers"]
    failing = overview.get("failing") or []
    found = [
        *_checks(seen.get("health") or {}),
        *_failing(failing),
        *_breakers(providers, {one["provider"] for one in failing}),
        *_late(overview["lanes"]),
        *(Note("wait", f"{one['what']} is paused by {one['by']}", one["reason"]) for one in seen.get("pauses", [])),
        *_disabled(seen.get("targets", [])),
        *_dead(overview["deadLetters"]),
    ]
    return sorted(found, key=lambda note: note.mood)


def _checks(health: dict[str, Any]) -> Iterator[Note]:
    for name, check in (health.get("checks") or {}).items():
        # Open breakers are named one by one.
        if check.get("status", "ok") in _WELL or name == "breakers":
            continue
        said = "is degraded" if check["status"] == "degraded" and not check.get("error") else "does not answer"
        yield Note("bad", f"{name} {said}", str(check.get("error") or ""))


def _failing(failing: list[dict[str, Any]]) -> Iterator[Note]:
    for one in sorted(failing, key=lambda one: -one["failed"] / max(1, one["calls"])):
        share = round(100 * one["failed"] / max(1, one["calls"]))
        what = f"{one['channel']} fails: {share} % of {one['calls']:,} by {one['provider']}"
        yield Note("bad", what, one["error"] or "no reason given")


def _breakers(providers: list[dict[str, Any]], named: set[str]) -> Iterator[Note]:
    """A provider has one breaker, however many channels it serves; where its calls fail, that sentence names it."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in providers:
        if one["state"] != "closed" and one["provider"] not in named:
            rows.setdefault(one["provider"], []).append(one)
    for provider, found in rows.items():
        state, channels = found[0]["state"], ", ".join(one["channel"] for one in found)
        why = next((one["lastError"] for one in found if one.get("lastError")), "")
        what = f"the breaker of {provider} ({channels}) is {state.replace('_', ' ')}"
        yield Note("bad" if state == "open" else "wait", what, why)


def _late(lanes: list[dict[str, Any]]) -> Iterator[Note]:
    late = max((lane["oldestDueSeconds"] or 0 for lane in lanes), default=0)
    if late > LATE_SECONDS:
        mood: Literal["bad", "wait"] = "bad" if late > _VERY_LATE_SECONDS else "wait"
        yield Note(mood, f"work waits: the oldest is due for {late:,.0f} s")


def _disabled(targets: list[dict[str, Any]]) -> Iterator[Note]:
    for one in targets:
        if one["state"] == "disabled":
            since = f"it fails since {one['failingSince'][:16].replace('T', ' ')} UTC" if one["failingSince"] else ""
            yield Note("wait", f"{one['endpoint']} ({one['provider']}) is disabled", since)


def _dead(number: int) -> Iterator[Note]:
    if number:
        yield Note("wait", f"{counted(number, 'dead letter')} to look at: carillon dead-letters list")
