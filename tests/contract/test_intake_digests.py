"""Digests with preferences, quiet hours and expiry: what `explain` says of an event, and what its digest does."""

import datetime as dt
import itertools
import time
from typing import Any

import pytest
import pytest_asyncio

from carillon.domain.breaker import BreakerPolicy
from carillon.domain.consent import Categories, Category
from carillon.domain.digests import DueDigest, ThrottleRule, digest_intent
from carillon.domain.intents import Intent, Recipient
from carillon.domain.people import PreferenceChange, QuietHours
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.templates import LocaleRules
from carillon.domain.timing import DigestWish, Timing
from carillon.intake.accept import Intake
from carillon.intake.explain import Explainer
from carillon.intake.people import PreferenceLookup, StoredPeople
from carillon.intake.plan import PlanRules
from carillon.ledger.opening import Ledger
from carillon.outbound.breakers import MemoryBreakers
from tests.support.clocks import ManualClock
from tests.support.explain_world import CHAINS, LANES, TEMPLATES
from tests.support.ledger_engines import engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()
HOUR = 3600.0
CHAT = ThrottleRule(1, HOUR, "1 in 1h", "digest")
_numbers = itertools.count(1)


class Stand:
    """The intake and `explain` over one ledger; the clock begins at the ledger's own time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.clock = ledger, ManualClock(float(round(time.time())))
        self.user = f"ada-{next(_numbers)}"
        rules = PlanRules(
            channels=CHAINS,
            policies=PolicyTable({"*/*": RetryPolicy(max_attempts=3)}),
            lanes=LANES,
            locale=LocaleRules("en-US", "error"),
            categories=Categories(shared={"chat": Category(name="chat", throttle=CHAT)}),
        )
        self.intake = Intake(
            ledger=ledger,
            templates=TEMPLATES,
            signal=ledger.signal,
            rules=rules,
            observer=lambda _: None,
            ids=lambda: f"digest-{next(_numbers):06}",
            clock=self.clock,
            add_preferences=PreferenceLookup(StoredPeople(ledger), self.clock, quiet_hours=True),
        )
        breakers = MemoryBreakers({"*": BreakerPolicy()}, self.clock, lambda _: None)
        self.explainer = Explainer(self.intake, ledger, breakers, rules, self.clock)

    async def wants(self, **change: Any) -> None:
        await self.ledger.change_preferences(None, self.user, PreferenceChange(**change))

    def event(self, *, most: int | None = None, window: str = "2h", **timing: Any) -> Intent:
        return Intent(
            notification_type="code",
            producer="shop",
            recipients=(Recipient(ref=f"user:{self.user}", user_id=self.user),),
            channels=("email",),
            payload={},
            content={"n": next(_numbers)},
            timing=Timing(digest=DigestWish("comments", window, most), **timing),
        )

    async def gates(self, intent: Intent) -> dict[str, tuple[str, dict[str, Any]]]:
        said = await self.explainer.explain(intent, {})
        found = {step.step: (step.verdict, step.detail) for step in said.steps}
        return found | {"outcome": (said.outcome, {"gate": said.routes[0].gate})}

    async def quiet(self, begins: float, ends: float) -> None:
        """Quiet hours from and to so many seconds from now."""
        begin, end = (dt.datetime.fromtimestamp(self.clock.now + at, dt.UTC).strftime("%H:%M") for at in (begins, ends))
        await self.wants(quiet_hours=QuietHours(enabled=True, start_time=begin, end_time=end))


@pytest_asyncio.fixture(loop_scope="session")
async def stand(ledger: Ledger) -> Stand:
    made = Stand(ledger)
    await made.wants(contacts={"email": "old@example.org"})
    return made


async def closed(stand: Stand) -> DueDigest:
    (due,) = await stand.ledger.close_digests(10, 30.0)
    return due


@pytest.mark.req("P-763")
async def test_a_digest_asks_where_the_person_is_when_it_closes(stand: Stand) -> None:
    await stand.intake.accept(stand.event(most=2))
    await stand.wants(contacts={"email": "new@example.org"}, preferred_locale="en-US", time_zone="Asia/Tokyo")
    await stand.intake.accept(stand.event(most=2))
    planned = await stand.intake.planned(digest_intent(await closed(stand)))
    assert [route.address for route in planned.routes] == ["new@example.org"]


@pytest.mark.req("P-763")
async def test_an_address_that_the_sender_named_stays(stand: Stand) -> None:
    named = Recipient(ref=f"user:{stand.user}", user_id=stand.user, addresses={"email": "given@example.org"})
    event = stand.event(most=1)
    await stand.intake.accept(Intent(**{**_fields(event), "recipients": (named,)}))
    await stand.wants(contacts={"email": "new@example.org"})
    planned = await stand.intake.planned(digest_intent(await closed(stand)))
    assert [route.address for route in planned.routes] == ["given@example.org"]


def _fields(intent: Intent) -> dict[str, Any]:
    return {name: getattr(intent, name) for name in intent.__struct_fields__}


@pytest.mark.req("P-764")
@pytest.mark.parametrize(("ends", "wanted"), [((3600, 7200), 7200), ((3600, None), None)])
async def test_a_digest_expires_with_the_last_of_its_events_if_each_does(
    stand: Stand, ends: tuple[int | None, ...], wanted: int | None
) -> None:
    begins = round(stand.clock.now * 1000)
    for end in ends:
        expires = None if end is None else begins + end * 1000
        await stand.intake.accept(stand.event(most=2, expires_at_ms=expires))
    planned = await stand.intake.planned(digest_intent(await closed(stand)))
    assert planned.notification.expires_at_ms == (None if wanted is None else begins + wanted * 1000)


@pytest.mark.req("P-765")
async def test_explain_shows_the_open_digest_that_an_event_joins(stand: Stand) -> None:
    first = (await stand.gates(stand.event(most=3)))["digest"][1]
    opened = round((stand.clock.now + 2 * HOUR) * 1000)
    assert (first["joins"], first["events"], first["closesAt"]) == (None, 1, opened)
    await stand.intake.accept(stand.event(most=3))
    stand.clock.now += 60.0
    second = (await stand.gates(stand.event(most=3)))["digest"][1]
    # The first event has opened it: it closes no later for the second one.
    assert (second["events"], abs(second["closesAt"] - opened) < 2000) == (2, True)
    assert second["joins"] is not None
    full = (await stand.gates(stand.event(most=2)))["digest"][1]
    assert full["closesAt"] == round(stand.clock.now * 1000)


@pytest.mark.req("P-765")
async def test_explain_shows_the_quiet_hours_in_which_a_digest_closes(stand: Stand) -> None:
    await stand.quiet(HOUR, 5 * HOUR)
    verdict, detail = (await stand.gates(stand.event()))["quiet_hours"]
    assert (verdict, abs(detail["notBefore"] / 1000 - stand.clock.now - 5 * HOUR) < 61) == ("note", True)
    # Those of now delay no event: its digest closes after them.
    await stand.quiet(-HOUR, HOUR)
    gates = await stand.gates(stand.event())
    assert "quiet_hours" not in gates
    assert gates["outcome"][0] == "queued"
    planned = await stand.intake.planned(stand.event())
    assert planned.notification.scheduled_for_ms is None


@pytest.mark.req("P-765")
@pytest.mark.parametrize(("ttl", "outcome"), [(HOUR, "skipped"), (3 * HOUR, "queued")])
async def test_explain_says_that_an_event_expires_before_its_digest_goes(
    stand: Stand, ttl: float, outcome: str
) -> None:
    gates = await stand.gates(stand.event(ttl_seconds=ttl))
    assert gates["outcome"][0] == outcome
    assert gates["expired"][0] == ("stop" if outcome == "skipped" else "pass")
    # The same event, in a digest that closes in quiet hours which outlast it.
    await stand.quiet(HOUR, 5 * HOUR)
    gates = await stand.gates(stand.event(ttl_seconds=ttl))
    assert (gates["outcome"], gates["expired"][0]) == (("skipped", {"gate": "expired"}), "stop")


@pytest.mark.req("P-766")
async def test_explain_names_quiet_hours_that_move_a_local_time(stand: Stand) -> None:
    await stand.quiet(HOUR, 5 * HOUR)
    await stand.wants(time_zone="Asia/Tokyo")
    there = dt.timezone(dt.timedelta(hours=9))
    local = dt.datetime.fromtimestamp(stand.clock.now + 2 * HOUR, there).replace(tzinfo=None)
    event = stand.event()
    plain = Intent(**{**_fields(event), "timing": Timing(local_time=local.isoformat())})
    gates = await stand.gates(plain)
    planned = await stand.intake.planned(plain)
    assert gates["quiet_hours"] == (
        "note",
        {"notBefore": planned.notification.scheduled_for_ms, "because": "quiet hours"},
    )
    assert gates["schedule"][0] == "note"
    # Outside of them the schedule alone is named.
    later = dt.datetime.fromtimestamp(stand.clock.now + 6 * HOUR, there).replace(tzinfo=None)
    gates = await stand.gates(Intent(**{**_fields(event), "timing": Timing(local_time=later.isoformat())}))
    assert ("quiet_hours" in gates, gates["schedule"][0]) == (False, "note")


@pytest.mark.req("P-765")
async def test_explain_shows_the_digest_of_what_is_too_much(stand: Stand) -> None:
    event = Intent(**{**_fields(stand.event()), "timing": Timing(), "category": "chat"})
    assert "digest" not in await stand.gates(event)
    await stand.intake.accept(event)
    await stand.quiet(HOUR / 2, 5 * HOUR)
    gates = await stand.gates(event)
    assert (gates["throttle"][0], gates["outcome"][0]) == ("note", "queued")
    assert (gates["digest"][1]["joins"], gates["digest"][1]["key"]) == (None, "throttle:chat")
    assert gates["digest"][1]["closesAt"] == round((stand.clock.now + HOUR) * 1000)
    assert abs(gates["quiet_hours"][1]["notBefore"] / 1000 - stand.clock.now - 5 * HOUR) < 61
    await stand.intake.accept(event)
    assert (await stand.gates(event))["digest"][1]["events"] == 2
