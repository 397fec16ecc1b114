"""What a queued route waits for, as one sentence: pauses, breakers and rates of its targets."""

from collections.abc import Awaitable, Callable, Sequence

from carillon.domain.ports import Clock
from carillon.domain.targets import HeldTarget, Waiting
from carillon.web.problems import rfc3339_ms

HeldTargets = Callable[[Waiting], Awaitable[Sequence[HeldTarget]]]
"""From a route to what keeps its call waiting now."""


class Waits:
    """Says what a route waits for, with the time until which it does."""

    def __init__(self, held: HeldTargets, clock: Clock) -> None:
        self._held = held
        self._clock = clock

    async def __call__(self, route: Waiting) -> str | None:
        """The sentence; None if no target keeps the route from its call."""
        now = self._clock.wall()
        found = [_sentence(one, now) for one in await self._held(route)]
        return "; ".join(found) or None


def _sentence(held: HeldTarget, now: float) -> str:
    until = rfc3339_ms((now + held.seconds) * 1000)
    match held.reason:
        case "paused":
            return str(held.paused)
        case "breaker":
            return f"the breaker of {held.target} is open until {until}"
        case "disabled":
            return f"{held.target} is disabled; a message probes it at {until}"
        case "pause":
            return f"{held.target} asked for a pause until {until}"
        case "rate":
            return f"its turn at {held.target}, which takes {held.per_second or 0:g} a second, comes after {until}"
