"""What a gate skipped, evaluated again: through the gates as they stand then, once, and stoppable."""

from typing import Any

import pytest
from msgspec.structs import replace

from carillon.domain.admin import AdminAction
from carillon.domain.claims import Settled
from carillon.domain.consent import Categories, Category
from carillon.domain.decide import barred
from carillon.domain.digests import ThrottleEntry, read_throttle
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import Duplicate, Enrolment, Status
from carillon.domain.people import PreferenceChange
from carillon.domain.skipped import SkippedPage
from carillon.domain.suppressions import Suppression
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from carillon.upkeep import redriving
from carillon.upkeep.redriving import redrive_skipped, skipped_action, skipped_plan
from tests.support.ledger_builders import enrolment, finish, route, settlement, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()

LANES = Lanes({"standard": Lane(rank=2, queue_name="standard")})
RULE = read_throttle("1 in 1h", "skip")
CATEGORIES = Categories(
    shared={
        "offers": Category(name="offers"),
        "quiet": Category(name="quiet", channels={"email": False}),
        "news": Category(name="news", throttle=RULE),
    }
)
ACTION = skipped_action(actor="ops", reason="lifted", filters={}, rate=None)


async def again(ledger: Ledger, *, dry_run: bool = False, rate: float | None = None, **filters: Any) -> SkippedPage:
    how = skipped_plan(LANES, CATEGORIES, rate=rate, dry_run=dry_run)
    return await redrive_skipped(ledger, filters, how, ACTION)


async def suppressed(ledger: Ledger, *names: str, **changes: Any) -> None:
    await ledger.suppress(
        [Suppression("email", f"{name}@example.com", "", "manual", "operator", None) for name in names]
    )
    await ledger.enrol([enrolment(*[route(name) for name in names], **changes)])


async def lift(ledger: Ledger, name: str) -> None:
    assert await ledger.unsuppress("email", f"{name}@example.com", "")


def gated(gate: str, name: str = "ann", **changes: Any) -> Enrolment:
    return enrolment(route(name, status=Status.SKIPPED, skipped_because="so", skipped_by=gate), **changes)


@pytest.mark.req("P-325")
async def test_a_lifted_suppression_lets_it_go_once(ledger: Ledger) -> None:
    await suppressed(ledger, "ann", "bob")
    await lift(ledger, "ann")
    counted = await again(ledger, dry_run=True)
    assert (counted.matched, counted.held, counted.redriven) == ({"suppressed": 2}, {"suppressed": 1}, 0)
    assert await ledger.claim([want()], 10, "w") == []
    done = await again(ledger)
    assert (done.redriven, done.held) == (1, {"suppressed": 1})
    claim = await claim_one(ledger)
    assert (claim.recipient_ref, claim.attempt, barred(claim)) == ("user:ann", 1, None)
    assert (await again(ledger)).redriven == 0
    await ledger.settle([finish(claim)])
    assert (await again(ledger)).redriven == 0, "a repeat sends nothing twice"
    story = await ledger.story(claim.notification_id, None)
    assert story is not None
    assert {row["recipient_ref"]: row["redriven_by"] for row in story.routes} == {
        "user:ann": done.action_id,
        "user:bob": None,
    }
    (action,), _ = await ledger.actions({}, 10, 0)
    assert (action["action_id"], action["action"], action["detail"]["redriven"]) == (done.action_id, "redrive", 1)


@pytest.mark.req("P-325")
async def test_filters(engine: Engine, ledger: Ledger) -> None:
    await suppressed(ledger, "ann", tenant_id="acme", notification_type="a")
    await suppressed(ledger, "bob", tenant_id="other", notification_type="b")
    await ledger.enrol([gated("category", "eve", category="offers")])
    await engine.execute("DELETE FROM suppressions")
    for filters, number in (
        ({"tenant_id": "acme"}, 1),
        ({"notification_type": "b"}, 1),
        ({"user_id": "eve"}, 1),
        ({"gate": "suppressed"}, 2),
        ({"channel": "sms"}, 0),
        ({"skipped_before_ms": 1}, 0),
        ({"skipped_after_ms": 1}, 3),
        ({"notification_ids": ["unknown"]}, 0),
    ):
        assert sum((await again(ledger, dry_run=True, **filters)).matched.values()) == number, filters


@pytest.mark.req("P-325")
@pytest.mark.parametrize("gate", ["digest", "expired", "collapsed", "cancelled", "reached", "skipped"])
async def test_what_stays_as_it_is(ledger: Ledger, gate: str) -> None:
    await ledger.enrol([gated(gate)])
    assert (await again(ledger)).matched == {}


@pytest.mark.req("P-325", "P-221")
async def test_an_erased_address_is_never_evaluated_again(ledger: Ledger) -> None:
    """It is skipped as suppressed without a suppression of its own: only a salted hash is left of it."""
    await ledger.enrol([gated("suppressed")])
    assert (await again(ledger)).matched == {}


@pytest.mark.req("P-325", "P-1003")
@pytest.mark.parametrize("gate", ["category", "throttle"])
async def test_a_repeat_names_no_gate_of_a_route_that_was_let_go_again(ledger: Ledger, gate: str) -> None:
    await ledger.enrol([gated(gate, idempotency_key="k")])
    (before,) = await ledger.enrol([enrolment(idempotency_key="k")])
    assert (await again(ledger)).redriven == 1
    (after,) = await ledger.enrol([enrolment(idempotency_key="k")])
    assert isinstance(before, Duplicate)
    assert isinstance(after, Duplicate)
    assert ([each.gate for each in before.gated], after.gated) == ([gate], ())


@pytest.mark.req("P-325")
async def test_a_cancelled_notification_stays_cancelled(engine: Engine, ledger: Ledger) -> None:
    await suppressed(ledger, "ann")
    await engine.execute("DELETE FROM suppressions")
    await engine.execute("UPDATE records SET stopped = 'cancelled'")
    assert (await again(ledger)).matched == {}


@pytest.mark.req("P-325")
async def test_a_category_is_asked_as_it_stands(ledger: Ledger) -> None:
    await ledger.enrol([gated("category", "ann", category="offers"), gated("category", "bob", category="offers")])
    await ledger.enrol([gated("category", "eve", category="quiet")])
    await ledger.change_preferences(None, "bob", PreferenceChange(categories={"offers": {"email": False}}))
    done = await again(ledger)
    assert (done.redriven, done.held) == (1, {"category": 2}), "bob does not want it, and eve never asked for it"
    assert (await claim_one(ledger)).recipient_ref == "user:ann"


@pytest.mark.req("P-325", "P-304")
async def test_a_throttle_counts_what_is_redriven(ledger: Ledger) -> None:
    assert RULE is not None
    await ledger.enrol([gated("throttle", category="news") for _ in range(3)])
    done = await again(ledger)
    assert (done.redriven, done.held) == (1, {"throttle": 2})
    assert (await again(ledger)).redriven == 0
    entry = ThrottleEntry(audience="user:ann", category="news", throttle=RULE)
    fresh = enrolment(category="news")
    fresh = type(fresh)(fresh.notification, fresh.routes, None, (), (entry,))
    (answer,) = await ledger.enrol([fresh])
    assert getattr(answer, "gated", ()), "the redriven one counts like any other"
    await ledger.hasten(3601)
    assert (await again(ledger, gate="throttle")).redriven == 1


@pytest.mark.req("P-325")
async def test_many_pages_keep_a_rate(engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redriving, "PAGE", 3)
    await suppressed(ledger, *[f"p{number}" for number in range(8)])
    await engine.execute("DELETE FROM suppressions")
    done = await again(ledger, rate=1.0)
    assert (done.redriven, done.matched) == (8, {"suppressed": 8})
    due = sorted(row["next_attempt_at"] for row in await engine.rows("routes"))
    assert [round((one - due[0]) / 1000) for one in due] == list(range(8))


@pytest.mark.req("P-325")
async def test_a_redrive_is_stopped(engine: Engine, ledger: Ledger) -> None:
    await suppressed(ledger, "ann", "bob", "eve")
    await engine.execute("DELETE FROM suppressions")
    done = await again(ledger, rate=0.001)
    assert done.action_id is not None
    gone = await claim_one(ledger)
    stop = AdminAction(actor="ops", action="stop_redrive", reason="wrong", subject=str(done.action_id))
    assert await ledger.stop_redrive(done.action_id, stop) == 2
    states = {row["route_id"]: (row["status"], row["last_error_classification"]) for row in await engine.rows("routes")}
    assert sorted(states.values()) == [("pending", "suppressed"), ("skipped", "suppressed"), ("skipped", "suppressed")]
    assert states[gone.route_id][0] == "pending", "what a worker holds goes on"
    assert await ledger.stop_redrive(done.action_id, stop) == 0
    assert (await again(ledger)).redriven == 2


@pytest.mark.req("P-1100")
@pytest.mark.parametrize(
    ("gate", "told"),
    [(gate, 1) for gate in ("category", "throttle", "suppressed")]
    + [(gate, 0) for gate in ("digest", "expired", "collapsed", "cancelled", "reached", "skipped")],
)
async def test_a_repeat_tells_what_skipped_it_when_it_was_accepted(ledger: Ledger, gate: str, told: int) -> None:
    """What became of it later is in its story. `suppressed` without a suppression is an address that was erased."""
    await ledger.enrol([gated(gate, idempotency_key="k")])
    (answer,) = await ledger.enrol([gated(gate, idempotency_key="k")])
    assert isinstance(answer, Duplicate)
    assert [one.gate for one in answer.gated] == [gate] * told


@pytest.mark.req("P-1201")
@pytest.mark.parametrize("gate", ["category", "suppressed"])
async def test_a_repeat_tells_nothing_of_a_gate_that_skipped_it_later(ledger: Ledger, gate: str) -> None:
    """The person has left the category, or the address was suppressed, while the notification waited."""
    await ledger.enrol([enrolment(idempotency_key="k")])
    if gate == "suppressed":
        await ledger.suppress([Suppression("email", "ann@example.com", "", "manual", "operator", None)])
    claim = await claim_one(ledger)
    verdict = barred(claim) or Skip(gate, "the person switched it off")
    assert await ledger.settle([settlement(claim, verdict)]) == [Settled.APPLIED]
    (answer,) = await ledger.enrol([enrolment(idempotency_key="k")])
    assert isinstance(answer, Duplicate)
    assert (answer.suppressed, answer.gated) == ((), ())


@pytest.mark.req("P-1102")
async def test_a_redrive_before_its_time_asks_what_holds_it_then(engine: Engine, ledger: Ledger) -> None:
    until = 4_000_000_000_000
    for ends in (until + 1, until - 1):
        await engine.execute("DELETE FROM suppressions")
        await ledger.suppress([Suppression("email", "ann@example.com", "", "manual", "operator", until_ms=ends)])
        if ends > until:
            await ledger.enrol([enrolment(scheduled_for_ms=until)])
            assert (await again(ledger)).held == {"suppressed": 1}
    assert (await again(ledger)).redriven == 1, "the suppression ends before the time of the notification"
    (row,) = await engine.rows("routes")
    assert (row["status"], row["next_attempt_at"]) == ("pending", until)


@pytest.mark.req("P-1103")
async def test_a_redriven_chain_keeps_its_order_and_its_distances(engine: Engine, ledger: Ledger) -> None:
    assert RULE is not None
    began = await ledger.now_ms()
    planned = [("zoe", None), ("eve", round(began) + 600_000), ("bob", round(began) + 1_200_000)]
    channels = [
        route(name, recipient_ref="user:ann", goal="read", step=step, due_ms=due)
        for step, (name, due) in enumerate(planned)
    ]
    counts = (ThrottleEntry(audience="user:ann", category="news", throttle=RULE),)
    for made in (enrolment(category="news"), enrolment(*channels, category="news")):
        await ledger.enrol([replace(made, throttles=counts)])
    await ledger.hasten(3601)
    assert (await again(ledger, rate=0.5)).redriven == 3
    chain = sorted((row for row in await engine.rows("routes") if row["goal"]), key=lambda row: row["step"])
    assert [(row["step"], row["route_id"]) for row in chain] == [
        (0, "email:user:zoe"),
        (1, "email:user:eve"),
        (2, "email:user:bob"),
    ]
    gaps = [row["next_attempt_at"] - chain[0]["next_attempt_at"] for row in chain]
    # What was laid at the acceptance begins at the ledger's own time.
    assert [round(gap / 10_000) for gap in gaps] == [0, 60, 120]


@pytest.mark.req("P-1202")
@pytest.mark.parametrize("page", [2, 3, 4, 5])
async def test_a_chain_is_redriven_whole_wherever_a_page_ends(
    engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(redriving, "PAGE", page)
    later = round(await ledger.now_ms()) + 600_000
    planned = {"bob": None, "eve": later}
    waits = {"status": Status.SKIPPED, "skipped_because": "so", "skipped_by": "category", "recipient_ref": "user:ann"}
    chain = [route(name, goal="read", due_ms=due, **waits) for name, due in planned.items()]
    await ledger.enrol([gated("category", category="offers")])
    for _ in range(3):
        await ledger.enrol([enrolment(*chain, category="offers")])
    done = await again(ledger)
    assert (done.matched, done.redriven) == ({"category": 7}, 7)
    times: dict[str, list[int]] = {}
    for row in await engine.rows("routes"):
        times.setdefault(row["notification_id"], []).append(row["next_attempt_at"])
    gaps = [round((max(both) - min(both)) / 10_000) for both in times.values()]
    assert sorted(gaps) == [0, 60, 60, 60]
