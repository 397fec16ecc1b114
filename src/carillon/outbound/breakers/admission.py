"""Asking a breaker to admit a call, and waiting while a probe of another call runs."""

from carillon.domain.breaker import Admission, State
from carillon.domain.ports import Breakers, Clock

POLL_SECONDS = 0.1


async def admitted(breakers: Breakers, name: str, clock: Clock, patience_seconds: float) -> bool:
    """Whether the breaker admits the call; after True the caller records its outcome. Does not wait for an open one."""
    ends_at = clock.monotonic() + patience_seconds
    while await breakers.admit(name) is Admission.STOP:
        # Only an open breaker refuses. A breaker that has closed meanwhile is asked again and admits the call.
        if clock.monotonic() >= ends_at or (await breakers.states()).get(name) is State.OPEN:
            return False
        await clock.sleep(POLL_SECONDS)
    return True
