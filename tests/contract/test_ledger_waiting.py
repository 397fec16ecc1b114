"""Cancelling and changing what waits: by id, key and filter, counted first, and what is too late is said so."""

import pytest
from msgspec.structs import replace

from carillon.domain.admin import WaitingChange
from carillon.domain.decide import barred
from carillon.domain.notifications import Collapse
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from tests.contract.test_ledger_digests import event
from tests.support.ledger_builders import enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

pytestmark = pytest.mark.req("P-306")

engine = engine_fixture()
ledger = ledger_fixture()

FAR_MS = 4_000_000_000_000


@pytest.mark.parametrize(
    "by",
    [
        {"idempotency_key": "k"},
        {"collapse_key": "score"},
        {"user_id": "ann"},
        {"notification_type": "order.late"},
        {"channel": "sms"},
        {"tenant_id": "acme"},
        {"origin": "auth"},
    ],
)
async def test_only_what_matches_is_cancelled(engine: Engine, ledger: Ledger, by: dict[str, str]) -> None:
    meant = enrolment(
        route(channel="sms"),
        idempotency_key="k",
        collapse=Collapse("score", "user:ann"),
        user_id="ann",
        notification_type="order.late",
        tenant_id="acme",
        origin="auth",
    )
    other = enrolment(route("bob"), collapse=Collapse("weather", "user:bob"), idempotency_key="o", user_id="bob")
    await ledger.enrol([meant, other])
    counted = await ledger.count_waiting(by)
    assert (counted.notifications, counted.waiting, counted.too_late, counted.done) == (1, 1, 0, 0)
    done = await ledger.cancel_waiting(by)
    assert (done.notifications, done.done) == (1, 1)
    states = {row["notification_id"]: row["status"] for row in await engine.rows("routes")}
    assert states == {meant.notification.notification_id: "skipped", other.notification.notification_id: "pending"}
    assert (await ledger.cancel_waiting(by)).done == 0


async def test_what_a_worker_holds_is_too_late_and_not_tried_again(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"), route("bob"), user_id="u")])
    first, second = await ledger.claim([want()], 2, "w")
    done = await ledger.cancel_waiting({"user_id": "u"})
    assert (done.waiting, done.too_late, done.done) == (0, 2, 0)
    await ledger.settle([finish(first), retry(second, 0.0)])
    again = await claim_one(ledger)
    verdict = barred(again)
    assert isinstance(verdict, Skip)
    assert verdict.gate == "cancelled"


async def test_many_are_cancelled_page_by_page(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(user_id="u") for _ in range(1203)])
    assert (await ledger.count_waiting({"user_id": "u"})).notifications == 1203
    assert (await ledger.cancel_waiting({"user_id": "u"})).done == 1203


async def test_an_event_that_is_cancelled_leaves_its_digest(engine: Engine, ledger: Ledger) -> None:
    gone, kept = event(closes=1), event()
    await ledger.enrol([gone, kept])
    assert await ledger.cancel(gone.notification.notification_id) == 1
    assert await ledger.cancel(gone.notification.notification_id) == 0
    (due,) = await ledger.close_digests(10, 60.0)
    assert [one.notification_id for one in due.events] == [kept.notification.notification_id]
    gates = {row["notification_id"]: row["last_error_classification"] for row in await engine.rows("routes")}
    assert gates[gone.notification.notification_id] == "cancelled"


async def test_another_time_moves_what_was_not_tried(engine: Engine, ledger: Ledger) -> None:
    tried, fresh = enrolment(user_id="u"), enrolment(user_id="u", scheduled_for_ms=FAR_MS)
    await ledger.enrol([tried])
    await ledger.settle([retry(await claim_one(ledger), 60.0)])
    await ledger.enrol([fresh])
    done = await ledger.change_waiting({"user_id": "u"}, WaitingChange(scheduled_for_ms=FAR_MS - 5000))
    assert (done.notifications, done.done) == (2, 1)
    times = {row["notification_id"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    assert times[fresh.notification.notification_id] == FAR_MS - 5000
    assert times[tried.notification.notification_id] < FAR_MS - 5000
    await ledger.change_waiting({"user_id": "u"}, WaitingChange(scheduled_for_ms=1, expires_at_ms=FAR_MS))
    assert [claim.expires_in is not None for claim in await ledger.claim([want()], 5, "w")] == [True]


@pytest.mark.req("P-1107")
async def test_an_event_of_several_channels_is_found_by_each_of_them(ledger: Ledger) -> None:
    made = event()
    (entry,) = made.digests
    both = replace(made, digests=(replace(entry, channels="push,email"),))
    await ledger.enrol([both, event(key="likes")])
    counts = [(await ledger.count_waiting({"channel": one})).waiting for one in ("push", "email", "sms", "mail")]
    assert counts == [1, 2, 0, 0]
    assert (await ledger.cancel_waiting({"channel": "push"})).done == 1
    assert (await ledger.count_waiting({"channel": "email"})).waiting == 1


@pytest.mark.req("P-1107")
async def test_an_event_gets_another_expiry_and_no_schedule(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([event(user_id="u")])
    moved = await ledger.change_waiting({"user_id": "u"}, WaitingChange(scheduled_for_ms=FAR_MS))
    assert (moved.notifications, moved.waiting, moved.done) == (1, 1, 0)
    shorter = await ledger.change_waiting(
        {"user_id": "u"}, WaitingChange(scheduled_for_ms=FAR_MS, expires_at_ms=FAR_MS)
    )
    assert (shorter.notifications, shorter.done) == (1, 1)
    (row,) = await engine.rows("records")
    assert (row["scheduled_for"], row["expires_at"]) == (None, FAR_MS)


@pytest.mark.req("P-1200")
async def test_who_waits_beside_an_event_of_a_digest_gets_another_time(engine: Engine, ledger: Ledger) -> None:
    """A throttle gathers what is too much for one person, while another one of the same notification waits."""
    made = event(user_id="u", scheduled_for_ms=FAR_MS)
    both = replace(made, routes=(*made.routes, route("bob")))
    await ledger.enrol([both])
    sooner = WaitingChange(scheduled_for_ms=FAR_MS - 5000)
    moved = await ledger.change_waiting({"user_id": "u"}, sooner)
    assert (moved.notifications, moved.waiting, moved.done) == (1, 2, 1)
    (record,) = await engine.rows("records")
    times = {row["recipient_ref"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    assert (record["scheduled_for"], times["user:bob"]) == (FAR_MS - 5000, FAR_MS - 5000)
    shorter = await ledger.change_waiting({"user_id": "u"}, WaitingChange(expires_at_ms=FAR_MS - 7000))
    assert shorter.done == 2
    times = {row["recipient_ref"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    assert times["user:bob"] == FAR_MS - 7000, "it is due when it expires"


@pytest.mark.req("P-1210")
async def test_each_event_of_a_notification_is_counted_as_done(ledger: Ledger) -> None:
    """It waits in the digests of two people."""
    made, bob = event(user_id="u"), event("bob")
    both = replace(made, routes=(*made.routes, *bob.routes), digests=(*made.digests, *bob.digests))
    await ledger.enrol([both])
    later = await ledger.change_waiting({"user_id": "u"}, WaitingChange(expires_at_ms=FAR_MS))
    assert (later.notifications, later.waiting, later.done) == (1, 2, 2)
    gone = await ledger.cancel_waiting({"user_id": "u"})
    assert (gone.notifications, gone.waiting, gone.done) == (1, 2, 2)
