"""The outbox of both engines: an alert with every dead letter, leased by one sender, sent at least once."""

import asyncio
from typing import Any

import msgspec
import pytest

from carillon.domain.alerts import Alert, PostponedAlert, ProviderAttempt
from carillon.domain.claims import Claim, Settled, Settlement
from carillon.domain.decide import exhausted_text
from carillon.domain.verdicts import Bury, FailOver, Finish
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import PROVIDER, bury, enrolment, failed_note, finish, note, redrive, route, want
from tests.support.ledger_engines import Engine, engine_fixture
from tests.support.waiting import a_moment_later

engine = engine_fixture()


async def claimed(ledger: Ledger, provider: str = PROVIDER, lane: int = 2) -> Claim:
    (claim,) = await ledger.claim([want(1, lane, provider)], 1, "w")
    return claim


async def buried(ledger: Ledger, **changes: Any) -> str:
    """One notification that is given up on its first attempt; its id."""
    given = enrolment(route(**changes))
    await ledger.enrol([given])
    claim = await claimed(ledger, lane=given.routes[0].lane)
    assert await ledger.settle([bury(claim)]) == [Settled.APPLIED]
    return given.notification.notification_id


async def alerts(ledger: Ledger, lease: float = 60.0) -> list[Alert]:
    return [due_alert.alert for due_alert in await ledger.due_alerts(100, lease)]


@pytest.mark.req("S2-119", "S2-121", "S2-122")
async def test_an_alert_says_what_was_tried(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        given = enrolment(route(max_attempts=2), tenant_id="t-1", user_id="u-1", notification_type="order_confirmed")
        await ledger.enrol([given])
        first = await claimed(ledger)
        taken = note("unknown", classification="timeout", error="no answer", provider_message_id="SM123")
        await ledger.settle([Settlement(claim=first, verdict=FailOver("second"), note=taken)])
        last = await claimed(ledger, "second")
        refused = msgspec.structs.replace(failed_note("invalid_number"), provider="second")
        verdict = Bury("timeout", exhausted_text(2, "invalid_number"))
        await ledger.settle([Settlement(claim=last, verdict=verdict, note=refused)])
        (alert,) = await alerts(ledger)
    assert alert.provider_attempts == [
        ProviderAttempt(PROVIDER, "SM123", "no answer"),
        ProviderAttempt("second", None, "invalid_number"),
    ]
    told = msgspec.json.decode(msgspec.json.encode(alert))
    assert told.pop("failedAt").endswith("Z")
    assert told.pop("alertId") > 0
    assert told.pop("providerAttempts")[1] == {"provider": "second", "messageId": None, "error": "invalid_number"}
    assert told == {
        "eventType": "NotificationFailed",
        "notificationId": given.notification.notification_id,
        "tenantId": "t-1",
        "userId": "u-1",
        "channel": "email",
        "templateKey": "order_confirmed",
        "attemptCount": 2,
        "lastError": "invalid_number",
    }


@pytest.mark.req("S2-122")
async def test_one_burial_is_one_alert_however_often_it_is_settled(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await ledger.enrol([enrolment()])
        settlement = bury(await claimed(ledger))
        assert await ledger.settle([settlement]) == [Settled.APPLIED]
        assert await ledger.settle([settlement]) == [Settled.APPLIED]
        assert len(await engine.rows("outbox")) == 1


async def test_success_and_a_stale_burial_alert_nobody(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await ledger.enrol([enrolment()])
        claim = await claimed(ledger)
        await ledger.settle([finish(claim)])
        assert await ledger.settle([bury(claim)]) == [Settled.STALE]
        assert not await engine.rows("outbox")


@pytest.mark.req("S2-123")
async def test_the_synchronous_lane_is_silent_unless_told_otherwise(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger, lane=0)
        assert not await alerts(ledger)
    async with engine.ledger(alerts=True, alert_from=0) as ledger:
        told = await buried(ledger, lane=0)
        assert [alert.notification_id for alert in await alerts(ledger)] == [told]


async def test_without_alerts_nothing_is_written(engine: Engine) -> None:
    async with engine.ledger() as ledger:
        await buried(ledger)
        assert not await engine.rows("outbox")


@pytest.mark.req("S2-122")
async def test_a_lease_keeps_an_alert_from_others_until_it_ends(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger, engine.ledger(alerts=True) as other:
        await buried(ledger)
        (first,) = await ledger.due_alerts(10, 60.0)
        assert not await other.due_alerts(10, 60.0)
        await engine.grow_old("outbox", "next_attempt_at", 61)
        (again,) = await other.due_alerts(10, 60.0)
        assert (again.alert, again.tries) == (first.alert, first.tries + 1)
        await other.told([again.alert.alert_id])
        assert not await engine.rows("outbox")


async def test_many_takers_share_without_repeating(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger, engine.ledger(alerts=True) as other:
        expected = {await buried(ledger) for _ in range(40)}
        takes = [one.due_alerts(7, 60.0) for one in (ledger, other) * 5]
        found = [due_alert.alert.notification_id for taken in await asyncio.gather(*takes) for due_alert in taken]
        assert len(found) == len(set(found))
        assert set(found) <= expected


async def who_was_told_is_remembered(engine: Engine, ledger: Ledger) -> None:
    await buried(ledger)
    (taken,) = await ledger.due_alerts(10, 60.0)
    number = taken.alert.alert_id
    await ledger.postpone([PostponedAlert(alert_id=number, tries=taken.tries, told=("log",), seconds=0.0)])
    (again,) = await ledger.due_alerts(10, 60.0)
    assert (again.told, again.tries) == (("log",), 2)
    # A taker whose lease ran out has no say any more.
    await ledger.postpone([PostponedAlert(alert_id=number, tries=1, told=(), seconds=0.0)])
    assert (await engine.only("outbox"))["told"] == "log"
    assert not await ledger.due_alerts(10, 60.0)


async def test_who_was_told_is_remembered(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await who_was_told_is_remembered(engine, ledger)


@pytest.mark.req("S2-119")
async def test_a_redrive_does_not_rewrite_what_is_still_to_be_told(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        told = await buried(ledger)
        assert await redrive(ledger, (told, "email:user:ann")) == 1
        await a_moment_later()
        # A call that took longer than that moment would have begun before the alert.
        brief = Settlement(claim=await claimed(ledger), verdict=Finish(), note=note(duration_ms=1.0))
        await ledger.settle([brief])
        (alert,) = await alerts(ledger)
        assert (alert.attempt_count, alert.last_error) == (1, "no such mailbox")
        assert alert.provider_attempts == [ProviderAttempt(PROVIDER, None, "no such mailbox")]


async def test_numbers_of_alerts_never_come_again(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        (first,) = await alerts(ledger)
        await ledger.told([first.alert_id])
        await buried(ledger)
        (second,) = await alerts(ledger)
        assert second.alert_id > first.alert_id


async def test_retention_keeps_what_must_still_be_told(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        await engine.grow_old("records", "accepted_at", 1000)
        assert await ledger.prune(500.0, 500.0, 10) == (0, 0)
        (alert,) = await alerts(ledger)
        await ledger.told([alert.alert_id])
        assert await ledger.prune(500.0, 500.0, 10) == (1, 0)


async def test_an_alert_about_nothing_is_dropped(engine: Engine) -> None:
    async with engine.ledger(alerts=True) as ledger:
        await buried(ledger)
        await engine.execute("DELETE FROM dead_letters")
        await engine.execute("DELETE FROM routes")
        await engine.execute("DELETE FROM records")
        assert not await alerts(ledger)
        assert not await engine.rows("outbox")


CONTROLS = {
    ("postgres", "fence"): ("postpone_alerts", "AND o.attempt_count = given.tries", ""),
    ("sqlite", "fence"): ("postpone_alerts", "AND attempt_count = :tries", ""),
    ("postgres", "lane"): ("settle", "AND lane >= $19::smallint", "AND $19::smallint IS NOT NULL"),
    ("sqlite", "lane"): ("settle_alert", "AND lane >= :alert_from", "AND :alert_from IS NOT NULL"),
    ("postgres", "lease"): (
        "due_alerts",
        "clock.now + :lease_seconds::float8",
        "o.next_attempt_at + 0 * :lease_seconds::float8",
    ),
    ("sqlite", "lease"): ("due_alerts", "next_attempt_at = :now + ", "next_attempt_at = next_attempt_at + 0 * "),
}


@pytest.mark.parametrize("guard", ["fence", "lane", "lease"])
async def test_without_a_guard_it_is_missed(engine: Engine, guard: str) -> None:
    name, old, new = CONTROLS[engine.dialect, guard]
    async with engine.ledger(alerts=True, statements=engine.statements({name: (old, new)})) as ledger:
        match guard:
            case "fence":
                with pytest.raises(AssertionError):
                    await who_was_told_is_remembered(engine, ledger)
            case "lane":
                await buried(ledger, lane=0)
                assert await alerts(ledger)
            case _:
                await buried(ledger)
                assert await alerts(ledger) == await alerts(ledger) != []
