"""What a queued route waits for, as one sentence: pauses, breakers and rates of its targets."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from carillon.domain.breaker import BreakerView, State, effective, seconds_until_probe
from carillon.domain.ports import Clock, ViewedBreakers
from carillon.domain.targets import HeldTarget, Waiting
from carillon.web.problems import rfc3339_ms

HeldTargets = Callable[[Sequence[Waiting]], Awaitable[Sequence[Sequence[HeldTarget]]]]
"""From routes to what keeps the call of each waiting now."""


class Waits:
    """Says what routes wait for, with the time until which they do."""

    def __init__(
        self, held: HeldTargets, breakers: ViewedBreakers, chains: Mapping[str, Sequence[str]], clock: Clock
    ) -> None:
        """`chains` are the providers of each channel, in the order of failover."""
        self._held = held
        self._breakers = breakers
        self._chains = chains
        self._clock = clock

    async def __call__(self, routes: Sequence[Waiting]) -> list[str | None]:
        """The sentence about each route; None if no target keeps it from its call."""
        now, held = self._clock.wall(), await self._held(routes)
        chains = [self._chains.get(route.channel) or (route.provider,) for route in routes]
        views = await self._breakers.views({name for chain in chains for name in chain})
        return [
            "; ".join(_sentence(one, now) for one in [*each, *_open(route.provider, chain, views)]) or None
            for route, chain, each in zip(routes, chains, held, strict=True)
        ]


def _open(provider: str, chain: Sequence[str], views: Mapping[str, BreakerView]) -> list[HeldTarget]:
    """The breaker of a route's provider, while no provider of its channel may be called."""
    found = [view for name in chain if (view := views.get(name)) is not None]
    if not found or any(effective(view.breaker, view.policy, 0.0) is not State.OPEN for view in found):
        return []
    seconds = min(seconds_until_probe(view.breaker, view.policy, 0.0) for view in found)
    return [HeldTarget("breaker", provider, seconds)]


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
