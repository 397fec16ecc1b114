"""What the overview tells of this process: the same failure once with its number, and every change of a breaker."""

import pytest

from carillon.domain.claims import Settled
from carillon.domain.events import BreakerChanged, CallsPaused, RouteAttempted, Trouble
from carillon.upkeep.console.series import AGAIN_SECONDS, RECENT, SHOWN, Series
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.req("P-860")


def failed(number: int, error: str = "20003", verdict: str = "bury") -> RouteAttempted:
    about = (f"n-{number}", "welcome", "system", "user", "sms:x", "sms", "twilio", 1, "refused", verdict, 3.0)
    return RouteAttempted(*about, Settled.APPLIED, error=error)


def test_the_same_failure_is_one_event_with_its_number_and_the_newest_notification() -> None:
    series = Series(ManualClock())
    for number in range(RECENT + 100):
        series(failed(number))
    series(failed(1000, verdict="retry"))
    other, same = series.newest()
    assert (other["verdict"], other["times"]) == ("retry", 1)
    assert (same["times"], same["notification_id"], same["began"]) == (RECENT + 100, f"n-{RECENT + 99}", 1)
    # Who follows along line by line still hears each of them.
    assert len(series.since(0)[1]) == RECENT


def test_no_number_of_failures_hides_a_change_of_a_breaker() -> None:
    series = Series(ManualClock())
    series(BreakerChanged(provider="twilio", before="closed", after="open"))
    for number in range(2 * RECENT):
        series(failed(number, error=f"request {number} failed"))
        series(Trouble(where="outbound", error="the ledger is away"))
    told = series.newest()
    assert len(told) == SHOWN + 1
    assert told[-1]["type"] == "breaker_changed"
    assert told[0]["times"] == 2 * RECENT, "a loop that fails again and again is one event, too"


@pytest.mark.req("P-1028")
def test_the_failed_probes_of_a_breaker_are_one_change_and_hide_no_other() -> None:
    series = Series(ManualClock())
    series(CallsPaused(what="lane bulk", by="ops", reason="a fault"))
    for provider in ("north", "south"):
        series(BreakerChanged(provider=provider, before="closed", after="open"))
    for _ in range(SHOWN):
        for provider in ("north", "south"):
            series(BreakerChanged(provider=provider, before="open", after="half_open"))
            series(BreakerChanged(provider=provider, before="half_open", after="open"))
    series(BreakerChanged(provider="north", before="open", after="half_open"))
    told = [(one.get("provider"), one.get("before"), one.get("probes")) for one in series.newest()]
    probes = [("north", "open", None), ("south", "half_open", SHOWN), ("north", "half_open", SHOWN)]
    assert told == [*probes, ("south", "closed", None), ("north", "closed", None), (None, None, None)]


def test_control_the_same_failure_after_a_long_silence_is_news() -> None:
    clock = ManualClock()
    series = Series(clock)
    series(failed(1))
    clock.now += AGAIN_SECONDS + 1
    series(failed(2))
    assert [(told["notification_id"], told["times"]) for told in series.newest()] == [("n-2", 1), ("n-1", 1)]
