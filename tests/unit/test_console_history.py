"""What the console's charts cost, and what its verdict says."""

import asyncio

import pytest

from carillon.upkeep.console.attention import failing
from carillon.upkeep.console.history import Remembered


class Ledger:
    """Counts how often it is asked, and takes its time on an injected clock."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.asked = 0
        self._seconds = seconds

    async def ask(self) -> int:
        self.asked += 1
        answer = self.asked
        await asyncio.sleep(0)
        self.now += self._seconds
        return answer


async def test_a_cheap_answer_is_asked_for_each_time() -> None:
    ledger = Ledger(0.01)
    remembered = Remembered(lambda: ledger.now)
    assert [await remembered.get("key", ledger.ask) for _ in range(3)] == [1, 2, 3]


@pytest.mark.req("P-546")
async def test_an_expensive_answer_costs_at_most_a_tenth_of_the_time() -> None:
    ledger = Ledger(1.0)
    remembered = Remembered(lambda: ledger.now)
    assert await remembered.get("key", ledger.ask) == 1
    ledger.now += 9.9
    assert await remembered.get("key", ledger.ask) == 1
    assert ledger.asked == 1
    ledger.now += 0.2
    # The old answer comes at once, and a new one is made meanwhile.
    assert await remembered.get("key", ledger.ask) == 1
    await asyncio.sleep(0.01)
    assert await remembered.get("key", ledger.ask) == 2
    ledger.now += 1000
    assert await remembered.get("key", ledger.ask) == 3


async def test_callers_at_the_same_time_share_one_answer() -> None:
    ledger = Ledger(1.0)
    remembered = Remembered(lambda: ledger.now)
    assert await asyncio.gather(*(remembered.get("key", ledger.ask) for _ in range(5))) == [1] * 5


async def test_an_error_is_not_kept() -> None:
    remembered = Remembered()

    async def fails() -> int:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        await remembered.get("key", fails)
    assert await remembered.get("key", Ledger(0).ask) == 1


def call(channel: str, outcome: str, at: float, error: str | None = None) -> dict[str, object]:
    return {"channel": channel, "provider": "twilio", "outcome": outcome, "error": error, "started_at": at * 1000}


@pytest.mark.req("P-546")
def test_the_verdict_counts_the_calls_of_the_last_five_minutes() -> None:
    old = [call("sms", "refused", 10.0, "old")] * 20
    late = [call("sms", "refused", 990.0, "20003")] * 4 + [call("sms", "unavailable", 995.0)]
    good = [call("email", "sent", 991.0)] * 9 + [call("email", "refused", 992.0, "once")]
    (found,) = failing([*old, *late, *good], 1000.0)
    assert (found.channel, found.calls, found.failed, found.error) == ("sms", 5, 5, "unavailable")
    assert failing(late[:4], 1000.0) == []
