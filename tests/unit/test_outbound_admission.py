"""Waiting for another message's probe: only an open breaker refuses a waiting message."""

import pytest

from carillon.domain.breaker import Admission, State
from carillon.outbound.breakers import POLL_SECONDS, admitted
from tests.support.clocks import ManualClock


class Changing:
    """Breakers that answer as written down, and may change between the question and the look that follows it."""

    def __init__(self, answers: list[Admission], states: list[State]) -> None:
        self.answers, self._states = answers, states

    async def admit(self, _provider: str) -> Admission:
        return self.answers.pop(0)

    async def record(self, _provider: str, *, ok: bool) -> None:
        """Nobody calls."""

    async def trip(self, provider: str) -> None:
        """Nobody gives up."""

    async def states(self) -> dict[str, State]:
        return {"fcm": self._states.pop(0)}


async def test_a_breaker_that_closes_behind_a_refusal_lets_the_call_through() -> None:
    breakers = Changing([Admission.STOP, Admission.STOP, Admission.GO], [State.HALF_OPEN, State.CLOSED])
    assert await admitted(breakers, "fcm", ManualClock(), 15.0) is not Admission.STOP


@pytest.mark.parametrize("before", [[], [State.HALF_OPEN], [State.CLOSED]])
async def test_an_open_breaker_is_not_waited_for(before: list[State]) -> None:
    clock = ManualClock()
    breakers = Changing([Admission.STOP] * 9, [*before, State.OPEN])
    assert await admitted(breakers, "fcm", clock, 15.0) is Admission.STOP
    assert len(breakers.answers) == 8 - len(before)


async def test_patience_has_an_end() -> None:
    clock = ManualClock(0.0)
    changing = Changing([Admission.STOP] * 99, [State.HALF_OPEN] * 99)
    assert await admitted(changing, "fcm", clock, 15 * POLL_SECONDS) is Admission.STOP
    assert clock.now == pytest.approx(15 * POLL_SECONDS, abs=POLL_SECONDS)
