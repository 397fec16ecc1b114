"""Chains: the channels of one person, of which the next is tried only if those before it did not reach the goal."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from carillon.domain.errors import BadIntent
from carillon.domain.notifications import Route, Status
from carillon.domain.timing import GOALS, LATEST_MS, Timing

NotBefore = Callable[[str, float], float | None]
"""The end of a recipient's quiet hours at a moment in Unix seconds; None outside of them."""


def refuse_chain(timing: Timing, channels: Sequence[str], *, synchronous: bool) -> None:
    """Raise BadIntent for a wish that no chain can keep."""
    if timing.until is None and timing.after_seconds is None:
        return
    if timing.until is None or timing.after_seconds is None:
        raise BadIntent("VALIDATION_ERROR", "until and after go together", field="until" if timing.until else "after")
    if len(channels) < 2:  # noqa: PLR2004 - one channel has no next one
        raise BadIntent("VALIDATION_ERROR", "until needs channels, at least two of them", field="channels")
    if synchronous:
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "a chain of channels is never synchronous", field="synchronous")


def refuse_silent(timing: Timing, channels: Sequence[str], tells: Mapping[str, Collection[str]] | None) -> None:
    """Raise BadIntent if a channel that others wait for can never report the goal."""
    if timing.until is None or tells is None:
        return
    for channel in channels[:-1]:
        if timing.until not in tells.get(channel, ()):
            able = ", ".join(goal for goal in GOALS if goal in tells.get(channel, ())) or "nothing"
            raise BadIntent(
                "GOAL_UNREACHABLE",
                f"no provider of {channel} can report that a message was {timing.until} (it reports {able}): "
                f"put {channel} last, or choose another until",
                field="until",
            )


def chained(routes: Sequence[Route], timing: Timing, starts: float, quiet: NotBefore) -> tuple[Route, ...]:
    """The routes with their goal, each person's later ones due later; `starts` is when the first is due.

    Each waits for the time of the one before it, and the quiet hours of the person move it and what comes after it.
    """
    if timing.until is None or timing.after_seconds is None:
        return tuple(routes)
    goal, after = timing.until, timing.after_seconds
    waiting = {route.recipient_ref for route in routes if route.status is Status.PENDING}
    steps: dict[str, int] = {}
    times: dict[str, float] = {}
    found: list[Route] = []
    for route in routes:
        if route.status is not Status.PENDING and (route.skipped_by is None or route.recipient_ref in waiting):
            found.append(replace(route, goal=goal))
            continue
        step = steps[route.recipient_ref] = steps.get(route.recipient_ref, -1) + 1
        held: float | None = None
        if step == 0:
            times[route.recipient_ref] = starts
            held = route.not_before_ms
        else:
            due = times[route.recipient_ref] + after
            held = quiet(route.recipient_ref, due)
            times[route.recipient_ref] = due if held is None else held
        due_ms = min(round(times[route.recipient_ref] * 1000), LATEST_MS)
        found.append(
            replace(
                route,
                goal=goal,
                step=step,
                due_ms=None if step == 0 else due_ms,
                not_before_ms=None if held is None else due_ms,
            )
        )
    return tuple(found)


def moved_up(routes: Iterable[Route], gone: Collection[str]) -> list[Route]:
    """The routes of chains as they are laid when some of them are skipped: those behind take their places and times."""
    people: dict[str, list[Route]] = {}
    for route in routes:
        if route.step is not None:
            people.setdefault(route.recipient_ref, []).append(route)
    found: list[Route] = []
    for planned in people.values():
        left = [route for route in planned if route.route_id not in gone]
        found += [replace(route, step=None) for route in planned if route.route_id in gone]
        found += [
            replace(route, step=place.step, due_ms=place.due_ms, not_before_ms=place.not_before_ms)
            for route, place in zip(left, planned, strict=False)
        ]
    return found
