"""The ledger of administrators on both engines: lists, redrives in pages, and the audit trail."""

import asyncio
from typing import Any

import pytest

from carillon.domain.admin import AdminAction, RedrivePlan
from carillon.domain.claims import Claim
from carillon.domain.timing import LATEST_MS
from carillon.ledger.opening import Ledger
from carillon.upkeep.redriving import last_turn_ms
from tests.support.ledger_builders import PROVIDER, bury, enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()
ACTION = AdminAction(actor="ops@example.org", action="redrive", reason="provider is back", detail={"why": "test"})


async def fail(ledger: Ledger, number: int = 1, lane: int = 2, **changes: Any) -> list[str]:
    """Notifications that were given up, oldest first."""
    given = [enrolment(route(lane=lane), **changes) for _ in range(number)]
    await ledger.enrol(given)
    claims = await ledger.claim([want(number, lane)], number, "w")
    for claim in claims:
        await ledger.settle([bury(claim)])
    return [claim.notification_id for claim in claims]


async def claims(ledger: Ledger, lane: int = 2, provider: str = PROVIDER) -> list[Claim]:
    return await ledger.claim([want(100, lane, provider)], 100, "w")


@pytest.mark.req("S2-131")
async def test_failed_ones_are_listed_newest_first(ledger: Ledger) -> None:
    mine = await fail(ledger, 3, tenant_id="t-1", user_id="u-1", notification_type="order_confirmed")
    other = await fail(ledger, 1, tenant_id="t-2")
    rows, total = await ledger.failed({}, 2, 0)
    assert total == 4
    assert [row["notification_id"] for row in rows] == [other[0], mine[2]]
    rows, total = await ledger.failed({"tenant_id": "t-1"}, 10, 1)
    assert total == 3
    assert [row["notification_id"] for row in rows] == [mine[1], mine[0]]
    row = rows[0]
    assert (row["channel"], row["provider"], row["notification_type"]) == ("email", PROVIDER, "order_confirmed")
    assert (row["final_attempt_count"], row["failure_message"], row["user_id"]) == (1, "no such mailbox", "u-1")
    rows, total = await ledger.failed({"channel": "sms"}, 10, 0)
    assert (rows, total) == ([], 0)


@pytest.mark.parametrize(
    ("filters", "number"),
    [
        ({}, 3),
        ({"channel": "email"}, 3),
        ({"channel": "sms"}, 0),
        ({"classification": "recipient_gone"}, 3),
        ({"provider": PROVIDER}, 3),
        ({"provider": "second"}, 0),
        ({"notification_type": "a"}, 2),
        ({"tenant_id": "t-1"}, 1),
        ({"failed_after_ms": 1.0}, 3),
        ({"failed_before_ms": 1.0}, 0),
    ],
)
async def test_the_same_filters_count_and_redrive(ledger: Ledger, filters: dict[str, Any], number: int) -> None:
    await fail(ledger, 1, tenant_id="t-1", notification_type="a")
    await fail(ledger, 1, notification_type="a")
    await fail(ledger, 1, notification_type="b")
    assert (await ledger.failed_counts(filters)).total == number
    assert (await ledger.failed(filters, 10, 0))[1] == number
    assert (await ledger.redrive(filters, RedrivePlan(), 10, ACTION)).count == number
    assert (await ledger.failed_counts({})).total == 3 - number


async def two_routes(ledger: Ledger) -> str:
    """One notification, given up on both its routes."""
    given = enrolment(route("ann"), route("bob"))
    await ledger.enrol([given])
    for claim in await claims(ledger):
        await ledger.settle([bury(claim)])
    return given.notification.notification_id


async def test_only_the_listed_dead_letters_are_redriven(ledger: Ledger) -> None:
    known = await two_routes(ledger)
    others = await fail(ledger, 2)
    named = {"letters": [(known, "email:user:bob"), (others[0], "email:user:bob"), ("nobody", "email:x")]}
    assert (await ledger.failed_counts(named)).total == 1
    assert [row["route_id"] for row in (await ledger.failed(named, 10, 0))[0]] == ["email:user:bob"]
    assert (await ledger.redrive(named, RedrivePlan(), 10, ACTION)).count == 1
    assert {row["route_id"] for row in (await ledger.failed({"notification_id": known}, 10, 0))[0]} == {
        "email:user:ann"
    }
    assert (await ledger.failed_counts({})).total == 3


async def test_all_dead_letters_of_a_listed_notification_are_redriven(ledger: Ledger) -> None:
    known = await two_routes(ledger)
    await fail(ledger, 2)
    named = {"notification_ids": [known, "nobody"]}
    assert (await ledger.failed_counts(named)).total == 2
    assert (await ledger.redrive({**named, "tenant_id": "t-other"}, RedrivePlan(), 10, ACTION)).count == 0
    assert (await ledger.redrive(named, RedrivePlan(), 10, ACTION)).count == 2


async def test_how_far_a_revival_came_is_counted_from_the_routes(engine: Engine, ledger: Ledger) -> None:
    known = await fail(ledger, 4)
    began = (await ledger.failed_counts({})).now_ms
    slowly = RedrivePlan(rate=0.5, began_ms=began)
    first = (await ledger.redrive({"notification_ids": known[:3]}, slowly, 10, ACTION)).action_id
    assert first is not None
    other = (await ledger.redrive({"notification_ids": known[3:]}, RedrivePlan(), 10, ACTION)).action_id
    assert other is not None
    await engine.make_due()
    told, again, *_ = sorted(
        (claim for claim in await claims(ledger) if claim.notification_id in known[:3]),
        key=lambda claim: claim.notification_id,
    )
    await ledger.settle([finish(told), bury(again)])
    rows = {row["action_id"]: row for row in await ledger.redriven([first, other, -1])}
    assert rows.keys() == {first, other}
    counted = [rows[first][name] for name in ("waiting", "delivered", "failed_again", "skipped")]
    assert counted == [1, 1, 1, 0]
    assert round((rows[first]["last_turn_at"] - began) / 1000) == 4
    # A route that fails again and is redriven again belongs to the newer action.
    await ledger.redrive({"notification_id": again.notification_id}, RedrivePlan(), 10, ACTION)
    (row,) = await ledger.redriven([first])
    assert (row["waiting"], row["failed_again"]) == (1, 0)


STOP = AdminAction(actor="ops@example.org", action="stop_redrive", reason="down again", subject="1")


@pytest.mark.req("P-544")
async def test_a_stopped_redrive_gives_back_what_waits_for_its_turn(ledger: Ledger) -> None:
    known = await fail(ledger, 5)
    began = (await ledger.failed_counts({})).now_ms
    slowly = RedrivePlan(rate=0.001, began_ms=began)
    done = await ledger.redrive({}, slowly, 4, ACTION)
    assert done.action_id is not None
    (held,) = await claims(ledger)
    assert await ledger.stop_redrive(done.action_id, STOP) == 3
    # What a worker holds goes on; the others are dead letters as before, and can be redriven again.
    assert {row["notification_id"] for row in (await ledger.failed({}, 10, 0))[0]} == set(known) - {
        held.notification_id
    }
    letters, _ = await ledger.dead_letters({"notification_id": known[1]}, 1, 0)
    assert (letters[0]["final_attempt_count"], letters[0]["failure_classification"]) == (1, "recipient_gone")
    # Its next page is not written.
    assert (await ledger.redrive({}, slowly, 4, ACTION, done.action_id)).count == 0
    await ledger.settle([finish(held)])
    (row,) = await ledger.redriven([done.action_id])
    assert (row["waiting"], row["delivered"], row["failed_again"]) == (0, 1, 0)
    (noted, redriven), _ = await ledger.actions({}, 10, 0)
    assert (noted["action"], noted["detail"]) == ("stop_redrive", {"stopped": 3})
    assert redriven["detail"]["stopped"] == 3
    assert await ledger.stop_redrive(done.action_id, STOP) == 0
    assert (await ledger.redrive({}, RedrivePlan(), 10, ACTION)).count == 4


@pytest.mark.req("P-544")
async def test_a_worker_and_a_stop_never_share_a_route(engine: Engine, ledger: Ledger) -> None:
    await fail(ledger, 30)
    done = await ledger.redrive({}, RedrivePlan(), 30, ACTION)
    assert done.action_id is not None
    # Due soon, and claimed by another process while they are stopped.
    async with engine.ledger() as other:
        stopped, claimed = await asyncio.gather(ledger.stop_redrive(done.action_id, STOP), claims(other))
    letters = {row["notification_id"] for row in (await ledger.failed({}, 100, 0))[0]}
    assert len(letters) == stopped
    assert letters.isdisjoint(claim.notification_id for claim in claimed)


async def test_counts_are_told_by_cause(ledger: Ledger) -> None:
    await fail(ledger, 2)
    counts = await ledger.failed_counts({})
    assert counts.by_cause == [{"channel": "email", "classification": "recipient_gone", "count": 2}]
    assert counts.now_ms > 1e12


@pytest.mark.req("S2-130")
async def test_redriven_routes_keep_their_id_and_history_and_get_a_fresh_budget(ledger: Ledger) -> None:
    (known,) = await fail(ledger)
    await ledger.redrive({"notification_id": known}, RedrivePlan(), 10, ACTION)
    (claim,) = await claims(ledger)
    assert (claim.notification_id, claim.attempt, claim.attempts_before, claim.forced) == (known, 1, 0, False)
    await ledger.settle([finish(claim)])
    story = await ledger.story(known, None)
    assert story is not None
    assert [attempt["verdict"] for attempt in story.attempts] == ["bury", "finish"]
    assert story.routes[0]["dead_lettered_at"] is None


@pytest.mark.req("S2-128")
async def test_a_chosen_provider_is_forced_for_one_attempt(ledger: Ledger) -> None:
    await fail(ledger)
    await ledger.redrive({}, RedrivePlan(provider="second", forced=True), 10, ACTION)
    (claim,) = await claims(ledger, provider="second")
    assert (claim.attempt, claim.forced) == (1, True)
    await ledger.settle([retry(claim, 0.0)])
    (again,) = await claims(ledger, provider="second")
    assert (again.attempt, again.forced) == (2, False)


async def test_a_wished_provider_still_has_its_breaker(ledger: Ledger) -> None:
    await fail(ledger)
    await ledger.redrive({}, RedrivePlan(provider="second"), 10, ACTION)
    (claim,) = await claims(ledger, provider="second")
    assert not claim.forced


async def test_routes_of_a_lane_without_workers_wait_in_another(engine: Engine, ledger: Ledger) -> None:
    await fail(ledger, lane=0)
    await fail(ledger, lane=3)
    await ledger.redrive({}, RedrivePlan(unqueued=(0,), instead=1), 10, ACTION)
    assert sorted(row["lane"] for row in await engine.rows("routes")) == [1, 3]


@pytest.mark.req("S2-127")
async def test_who_did_it_is_written_with_it(engine: Engine, ledger: Ledger) -> None:
    (known,) = await fail(ledger)
    action = AdminAction(actor="ops", action="retry", reason="customer asked", subject=known, detail={"id": "r-1"})
    redriven = await ledger.redrive({"notification_id": known}, RedrivePlan(), 10, action)
    rows, total = await ledger.actions({"subject": known}, 10, 0)
    assert total == 1
    assert rows[0]["action_id"] == redriven.action_id
    assert (rows[0]["actor"], rows[0]["action"], rows[0]["reason"]) == ("ops", "retry", "customer asked")
    assert rows[0]["detail"] == {"id": "r-1", "redriven": 1}
    assert abs(rows[0]["at"] - (await ledger.failed_counts({})).now_ms) < 60_000
    assert (await ledger.redrive({"notification_id": known}, RedrivePlan(), 10, action)).action_id is None
    assert len(await engine.execute("SELECT * FROM admin_actions")) == 1


async def test_pages_are_one_action_and_take_the_oldest_first(ledger: Ledger) -> None:
    known = await fail(ledger, 5)
    first = await ledger.redrive({}, RedrivePlan(), 2, ACTION)
    assert [claim.notification_id for claim in await claims(ledger)] == known[:2]
    second = await ledger.redrive({}, RedrivePlan(done=2), 2, ACTION, first.action_id)
    third = await ledger.redrive({}, RedrivePlan(done=4), 2, ACTION, first.action_id)
    assert [first.count, second.count, third.count] == [2, 2, 1]
    assert first.action_id == second.action_id == third.action_id
    rows, total = await ledger.actions({}, 10, 0)
    assert (total, rows[0]["detail"]["redriven"]) == (1, 5)


async def test_a_rate_gives_each_its_turn(engine: Engine, ledger: Ledger) -> None:
    known = await fail(ledger, 6)
    began = (await ledger.failed_counts({})).now_ms
    for done in (0, 3):
        await ledger.redrive({}, RedrivePlan(rate=0.05, began_ms=began, done=done), 3, ACTION)
    due = {row["notification_id"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    waits = [round((due[each] - began) / 1000) for each in known]
    assert waits == [0, 20, 40, 60, 80, 100]
    (claim,) = await claims(ledger)
    assert claim.notification_id == known[0]
    await engine.make_due()
    assert [claim.age_seconds for claim in await claims(ledger) if claim.notification_id != known[0]] == [0.0] * 5


@pytest.mark.req("P-1208")
@pytest.mark.parametrize("rate", [1e-10, 5e-324])
async def test_no_turn_is_after_the_last_year(engine: Engine, ledger: Ledger, rate: float) -> None:
    """Nobody could show it."""
    known = await fail(ledger, 40)
    counts = await ledger.failed_counts({})
    await ledger.redrive({}, RedrivePlan(rate=rate, began_ms=counts.now_ms), 100, ACTION)
    due = {row["notification_id"]: row["next_attempt_at"] for row in await engine.rows("routes")}
    assert (round(due[known[0]] - counts.now_ms, -3), due[known[-1]]) == (0, LATEST_MS)
    assert last_turn_ms(counts, 40, rate) == LATEST_MS


async def test_two_operators_redrive_each_route_once(engine: Engine, ledger: Ledger) -> None:
    await fail(ledger, 30)
    async with engine.ledger() as other:
        pages = [one.redrive({}, RedrivePlan(), 7, ACTION) for one in (ledger, other) * 4]
        counts = [redriven.count for redriven in await asyncio.gather(*pages)]
    left = (await ledger.failed_counts({})).total
    assert sum(counts) + left == 30
    assert sum(row["detail"]["redriven"] for row in (await ledger.actions({}, 100, 0))[0]) == sum(counts)


@pytest.mark.req("S2-127")
async def test_actions_are_found_by_who_what_and_when(ledger: Ledger) -> None:
    await ledger.note_action(AdminAction(actor="a", action="retry", tenant_id="t-1", subject="n-1", reason="r"))
    await ledger.note_action(AdminAction(actor="b", action="redrive"))
    for filters, number in (
        ({}, 2),
        ({"actor": "a"}, 1),
        ({"action": "redrive"}, 1),
        ({"subject": "n-1"}, 1),
        ({"tenant_id": "t-2"}, 0),
        ({"after_ms": 1.0}, 2),
    ):
        assert (await ledger.actions(filters, 10, 0))[1] == number, filters
    assert [row["actor"] for row in (await ledger.actions({}, 1, 0))[0]] == ["b"]


async def test_recent_outcomes_tell_providers_apart(ledger: Ledger) -> None:
    await fail(ledger, 2, tenant_id="t-1")
    rows = await ledger.recent_outcomes(None, 100)
    assert [(row["channel"], row["provider"], row["outcome"]) for row in rows] == [("email", PROVIDER, "refused")] * 2
    assert await ledger.recent_outcomes("t-2", 100) == []
