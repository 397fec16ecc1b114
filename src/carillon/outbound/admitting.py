"""Asking a breaker for the right to call, and waiting a while where another's probe is under way."""

from carillon.domain.breaker import Admission, State
from carillon.domain.ports import Breakers, Clock

LOOK_SECONDS = 0.1


async def admitted(breakers: Breakers, name: str, clock: Clock, patience_seconds: float) -> bool:
    """Whether the call may be made; True must be followed by record. An open breaker is not waited for."""
    ends_at = clock.monotonic() + patience_seconds
    while await breakers.admit(name) is Admission.STOP:
        # Only an open one refuses: a breaker that closed since it was asked is asked again, and lets the call through.
        if clock.monotonic() >= ends_at or (await breakers.states()).get(name) is State.OPEN:
            return False
        await clock.sleep(LOOK_SECONDS)
    return True
