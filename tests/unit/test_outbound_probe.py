"""Health probes of providers with an open breaker: how often, which providers, and the effect of an answer."""

from typing import Any

import pytest

from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.claims import Dispatch
from carillon.domain.events import Event, ProviderProbed
from carillon.domain.outcomes import Outcome
from carillon.outbound.breakers import BreakerProbe, MemoryBreakers
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.req("S2-61")


class Asked:
    """A vendor that can be asked; sending through it is a mistake."""

    def __init__(self, says: str | None) -> None:
        self.says = says
        self.times: list[float] = []
        self.clock: ManualClock | None = None

    async def send(self, dispatch: Dispatch) -> Outcome:
        raise AssertionError(f"a message was sent: {dispatch}")

    async def probe(self) -> str | None:
        assert self.clock is not None
        self.times.append(self.clock.now)
        return self.says

    async def aclose(self) -> None:
        """Nothing to give back."""


class Stand:
    def __init__(self, says: str | None) -> None:
        self.clock, self.events = ManualClock(0.0), list[Event]()
        policies = {"*": BreakerPolicy(failure_threshold=1, open_seconds=3600.0)}
        self.breakers = MemoryBreakers(policies, self.clock, self.events.append)
        self.vendor = Asked(says)
        self.vendor.clock = self.clock
        providers: Any = {"Twilio": self.vendor, "FCM": self.vendor}
        self.probe = BreakerProbe(
            providers=providers,
            names=["Twilio", "unknown"],
            breakers=self.breakers,
            clock=self.clock,
            observer=self.events.append,
            every_seconds=30.0,
        )

    async def live(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.probe.check()
            self.clock.now += 1.0


async def test_a_closed_breaker_is_left_alone() -> None:
    stand = Stand(None)
    await stand.live(100)
    assert stand.vendor.times == []


async def test_an_open_one_is_asked_every_thirty_seconds() -> None:
    stand = Stand("down")
    await stand.breakers.record("Twilio", ok=False)
    await stand.live(100)
    assert stand.vendor.times == [30.0, 60.0, 90.0]
    assert (await stand.breakers.states())["Twilio"] is State.OPEN
    assert [event for event in stand.events if isinstance(event, ProviderProbed)] == [
        ProviderProbed(provider="Twilio", error="down")
    ] * 3


async def test_an_answer_lets_one_message_probe_it_early_and_ends_the_questions() -> None:
    stand = Stand(None)
    await stand.breakers.record("Twilio", ok=False)
    await stand.live(100)
    assert stand.vendor.times == [30.0]
    assert await stand.breakers.admit("Twilio") is Admission.PROBE
    assert await stand.breakers.admit("Twilio") is Admission.STOP


async def test_a_provider_that_is_not_named_is_not_probed() -> None:
    stand = Stand(None)
    await stand.breakers.record("FCM", ok=False)
    await stand.live(100)
    assert stand.vendor.times == []
