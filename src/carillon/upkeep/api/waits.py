"""What a queued route waits for, as one sentence: pauses, breakers and rates of its targets."""

from collections.abc import Awaitable, Callable, Sequence

from carillon.domain.ports import Clock
from carillon.domain.targets import HeldTarget, Waiting
from carillon.web.problems import rfc3339_ms

HeldTargets = Callable[[Sequence[Waiting]], Awaitable[Sequence[Sequence[HeldTarget]]]]
"""From routes to what keeps the call of each waiting now."""


class Waits:
    """Says what routes wait for, with the time until which they do."""

    def __init__(self, held: HeldTargets, clock: Clock) -> None:
        self._held = held
        self._clock = clock

    async def __call__(self, routes: Sequence[Waiting]) -> list[str | None]:
        """The sentence about each route; None if no target keeps it from its call."""
        now = self._clock.wall()
        return ["; ".join(_sentence(one, now) for one in each) or None for each in await self._held(routes)]


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
