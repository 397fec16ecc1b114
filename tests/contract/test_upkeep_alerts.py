"""The relay of alerts over both engines: every sink gets every alert, and an unconfirmed alert is sent again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carillon.domain.alerts import Alert, ProviderAttempt, bare_error, in_order
from carillon.domain.decide import exhausted_text
from carillon.domain.events import AlertDelayed, AlertTold, Event
from carillon.ledger.opening import Ledger
from carillon.system import SystemClock
from carillon.upkeep.alerts import AlertRelay, AlertSink, RelayRules
from tests.contract.test_ledger_outbox import buried
from tests.support.ledger_engines import Engine, engine_fixture
from tests.support.waiting import until

engine = engine_fixture()
ALERT = Alert(
    alert_id=7,
    notification_id="n-1",
    tenant_id="t-1",
    user_id="u-1",
    channel="sms",
    template_key="order_confirmed",
    attempt_count=6,
    last_error="timeout",
    failed_at="2025-01-20T15:30:00.000Z",
    provider_attempts=[ProviderAttempt("AWS_SNS", None, "invalid_number"), ProviderAttempt("Twilio", "SM1", "timeout")],
)


class Listener:
    """A sink that hears, or does not, as it is told."""

    def __init__(self, name: str, *deaf: str) -> None:
        self.name = name
        self.heard: list[Alert] = []
        self.answers = list(deaf)

    async def tell(self, alert: Alert) -> str | None:
        if self.answers:
            return self.answers.pop(0)
        self.heard.append(alert)
        return None

    async def aclose(self) -> None:
        """Nothing is held."""


class Broken(Listener):
    async def tell(self, alert: Alert) -> str | None:
        raise IndexError(f"a bug met {alert.alert_id}")


def relay_of(ledger: Ledger, *sinks: AlertSink, events: list[Event] | None = None, **rules: Any) -> AlertRelay:
    seen: list[Event] = [] if events is None else events
    return AlertRelay(
        ledger,
        sinks,
        chains={},
        clock=SystemClock(),
        observer=seen.append,
        rules=RelayRules(**{"poll_seconds": 0.05} | rules),
    )


@asynccontextmanager
async def running(relay: AlertRelay) -> AsyncIterator[None]:
    task = asyncio.create_task(relay.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard(listener: Listener, number: int) -> None:
    async def there() -> bool:
        return len(listener.heard) >= number

    await until(there, timeout=40, what=f"{number} alerts")


@pytest.mark.req("S2-122")
async def test_everybody_is_told_once_and_the_alert_is_removed(engine: Engine) -> None:
    events: list[Event] = []
    async with engine.ledger(alerts=True) as ledger:
        ids = [await buried(ledger) for _ in range(3)]
        one, other = Listener("one"), Listener("other")
        await relay_of(ledger, one, other, events=events).tell_due()
        assert sorted(alert.notification_id for alert in one.heard) == sorted(ids)
        assert one.heard == other.heard
        assert not await engine.rows("outbox")
    assert sum(isinstance(event, AlertTold) for event in events) == 6


@pytest.mark.req("S2-122")
async def test_who_is_deaf_is_told_again_and_the_others_are_not(engine: Engine) -> None:
    events: list[Event] = []
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        good, deaf = Listener("good"), Listener("deaf", "connection refused", "connection refused")
        async with running(relay_of(ledger, good, deaf, events=events)):
            await heard(deaf, 1)
            await until(_empty(engine), timeout=40, what="the outbox to be empty")
        assert good.heard == deaf.heard
        assert len(good.heard) == 1
    delayed = [event for event in events if isinstance(event, AlertDelayed)]
    assert [(event.sink, event.error) for event in delayed] == [("deaf", "connection refused")] * 2
    assert [event.retry_in_seconds for event in delayed] == [0.25, 0.5]


def _empty(engine: Engine) -> Callable[[], Any]:
    async def look() -> bool:
        return not await engine.rows("outbox")

    return look


async def test_a_sinks_bug_keeps_nobody_else_from_being_told(engine: Engine) -> None:
    events: list[Event] = []
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        good = Listener("good")
        await relay_of(ledger, Broken("broken"), good, events=events).tell_due()
        assert len(good.heard) == 1
        assert (await engine.only("outbox"))["told"] == "good"
    assert ["a bug met" in event.error for event in events if isinstance(event, AlertDelayed)] == [True]


async def test_a_sink_that_hangs_is_given_up_in_time(engine: Engine) -> None:
    class Hanging(Listener):
        async def tell(self, alert: Alert) -> str | None:
            await asyncio.Event().wait()
            return f"{alert.alert_id}"

    events: list[Event] = []
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        await relay_of(ledger, Hanging("hanging"), events=events, tell_seconds=0.05).tell_due()
        assert len(await engine.rows("outbox")) == 1
    assert [event.error for event in events if isinstance(event, AlertDelayed)] == ["no confirmation within 0.05 s"]


@pytest.mark.req("S2-122")
async def test_two_processes_tell_each_alert_once(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger, engine.ledger(alerts=True) as other:
        ids = {await buried(ledger) for _ in range(60)}
        one, two = Listener("sink"), Listener("sink")
        async with running(relay_of(ledger, one, batch=7)), running(relay_of(other, two, batch=7)):
            await until(_empty(engine), timeout=40, what="the outbox to be empty")
    told = [alert.notification_id for alert in (*one.heard, *two.heard)]
    assert len(told) == 60
    assert set(told) == ids


async def test_burials_of_the_same_process_are_told_without_a_poll(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        listener = Listener("sink")
        relay = relay_of(ledger, listener, poll_seconds=3600.0)
        async with running(relay):
            await asyncio.sleep(0)
            await buried(ledger)
            relay.ring()
            await heard(listener, 1)


@pytest.mark.req("S2-119")
def test_the_alert_speaks_the_documents_words() -> None:
    ordered = in_order(ALERT, {"sms": ("Twilio", "AWS_SNS")})
    assert [each.provider for each in ordered.provider_attempts] == ["Twilio", "AWS_SNS"]
    assert bare_error(exhausted_text(6, "Twilio API timeout")) == "Twilio API timeout"
    assert bare_error("Retry exhausted") == "Retry exhausted"
