"""A vendor of a rehearsal: it takes its time, fails during its outages, and counts what it accepts."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Clock
from carillon.upkeep.rehearsals.plan import Outage

REFUSED_SECONDS = 0.02
"""A server that is down refuses the connection at once."""
SPREAD = 0.45
"""Of the logarithm of a call's seconds: one call in a hundred takes about three times the median."""
THROTTLED_SECONDS = 1.0


class RehearsedVendor:
    """Satisfies StartingProvider and Probed."""

    def __init__(
        self, name: str, outages: Sequence[Outage], *, median_seconds: float, clock: Clock, begins: float, dice: Random
    ) -> None:
        self.name = name
        self._outages = [outage for outage in outages if outage.provider == name]
        self._median = median_seconds
        self._clock = clock
        self._begins = begins
        self._dice = dice
        self.calls = 0
        self.accepted: Counter[str] = Counter()
        """How often the vendor has accepted each message; more than once means that a person got it more than once."""

    def start(self, dispatch: Dispatch, tell: Callable[[Outcome], None]) -> Callable[[], None]:
        outcome, seconds = self._answer(dispatch)
        return asyncio.get_running_loop().call_later(seconds, tell, outcome).cancel

    async def send(self, dispatch: Dispatch) -> Outcome:
        outcome, seconds = self._answer(dispatch)
        await self._clock.sleep(seconds)
        return outcome

    async def probe(self) -> str | None:
        outage = self._outage()
        return None if outage is None or outage.kind in ("slow", "throttled") else f"{self.name} does not work"

    async def aclose(self) -> None:
        """Nothing is held."""

    def _outage(self) -> Outage | None:
        """The outage that holds now; of several the worst, so that none of them goes unnoticed."""
        now = self._clock.monotonic() - self._begins
        return min((outage for outage in self._outages if outage.holds(now)), key=Outage.harm, default=None)

    def _answer(self, dispatch: Dispatch) -> tuple[Outcome, float]:
        self.calls += 1
        limit = dispatch.timeout_seconds
        seconds = self._median * math.exp(SPREAD * self._dice.gauss(0.0, 1.0))
        failure = self._failure(min(seconds, limit), limit)
        if failure is not None:
            return failure
        outage = self._outage()
        seconds += outage.slow_seconds if outage is not None else 0.0
        # A vendor ends what it began: the message of a call that is cut off arrives, and nobody here knows.
        self.accepted[dispatch.claim.idempotency_key] += 1
        if seconds >= limit or (outage is not None and outage.kind == "silent"):
            return Unknown("no answer in time", classification="timeout"), limit
        return Sent(f"rehearsed-{self.calls}"), seconds

    def _failure(self, usual: float, limit: float) -> tuple[Outcome, float] | None:
        """The answer to a call that the vendor does not accept, and how long it takes; None if it accepts the call."""
        outage = self._outage()
        match None if outage is None else outage.kind:
            case "down":
                return Unavailable("connection refused", classification="connect"), REFUSED_SECONDS
            case "hanging":
                return Unavailable("no answer to the connection", classification="connect_timeout"), limit
            case "throttled":
                return Throttled("429 Too Many Requests", retry_after=THROTTLED_SECONDS), usual
            case "failing" if outage is not None and self._dice.random() < outage.share:
                return Unavailable("503 Service Unavailable", classification="server_error"), usual
        return None
