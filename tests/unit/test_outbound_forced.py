"""A provider that an operator chose is called once whatever its breaker says; after that its breaker counts again."""

import msgspec
import pytest

from carillon.domain.outcomes import Sent, Unavailable
from carillon.domain.verdicts import Finish, Retry
from tests.unit.test_outbound_attempt import CLAIM, Desk, says

FORCED = msgspec.structs.replace(CLAIM, attempts_before=-1)


@pytest.mark.req("S2-128")
async def test_a_forced_provider_is_called_though_its_breaker_is_open() -> None:
    first, second = says(Sent("a")), says(Sent("b"))
    desk = Desk(first, second)
    await desk.break_provider("first")
    settlement = await desk.attempt(FORCED)
    assert settlement.verdict == Finish()
    assert (len(first.asked), len(second.asked)) == (1, 0)


async def test_the_next_attempt_asks_the_breaker_again() -> None:
    first, second = says(Sent("a")), says(Sent("b"))
    desk = Desk(first, second)
    await desk.break_provider("first")
    await desk.attempt(msgspec.structs.replace(FORCED, attempt=2))
    assert (len(first.asked), len(second.asked)) == (0, 1)


async def test_a_forced_attempt_counts_as_one_on_its_provider() -> None:
    settlement = await Desk(says(Unavailable("down")), says(Sent("b"))).attempt(FORCED)
    assert isinstance(settlement.verdict, Retry)
