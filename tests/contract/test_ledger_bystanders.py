"""A statement changes what it was asked for and nothing beside it: every ledger here is full of neighbours."""

import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from carillon.domain.claims import Claim, Reset, Settled, Settlement, Want
from carillon.domain.groups import Turns
from carillon.domain.notifications import Duplicate, Enrolment, Status
from carillon.domain.people import PreferenceChange
from carillon.domain.suppressions import Suppression
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import (
    LANE,
    PROVIDER,
    bury,
    defer,
    enrolment,
    fail_over,
    finish,
    retry,
    route,
    settlement,
    want,
)
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

LATER = 4_000_000_000_000
Picture = dict[str, list[dict[str, Any]]]


def several(**changes: Any) -> Enrolment:
    """One notification to ann and bob; every notification here has the same two route ids."""
    return enrolment(route("ann"), route("bob"), **changes)


async def neighbours(ledger: Ledger) -> None:
    """What waits in other lanes, for other providers and groups, for its time, and what has ended."""
    await ledger.enrol(
        [
            enrolment(route("ann", lane=1), route("bob", lane=1, provider="other")),
            enrolment(route("ann", provider="other"), route("bob", provider="other", group=5)),
            several(scheduled_for_ms=LATER),
        ]
    )
    await ledger.enrol([enrolment(route("ann", lane=3), route("bob", lane=3)) for _ in range(2)])
    first, second, third, _ = await ledger.claim([want(lane=3)], 10, "another")
    await ledger.settle([finish(first), retry(second), bury(third)])


async def routes_of(engine: Engine) -> list[dict[str, Any]]:
    """As they are stored."""
    return await engine.execute("SELECT * FROM routes ORDER BY notification_id, route_id")


async def beside(engine: Engine, mine: Collection[tuple[str, str]] = ()) -> Picture:
    """Everything in the tables but these routes, their attempts and their leases."""
    found: Picture = {"routes": await routes_of(engine), "attempts": await engine.rows("attempts_told")}
    found |= {table: await engine.rows(table) for table in ("dead_letters", "due", "outbox")}
    own = {row["ticket"] for row in found["routes"] if key_of(row) in mine and row["ticket"] is not None}
    found["due"] = [row for row in found["due"] if row["ticket"] not in own]
    return {table: sorted((row for row in rows if key_of(row) not in mine), key=repr) for table, rows in found.items()}


def keys_of(each: Enrolment) -> set[tuple[str, str]]:
    return {(each.notification.notification_id, one.route_id) for one in each.routes}


def key_of(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("notification_id"), row.get("route_id")


async def leases(engine: Engine, *, but: Collection[int] = ()) -> list[dict[str, Any]]:
    rows = [row for row in await engine.rows("leases") if row["lease_id"] not in but]
    return sorted(rows, key=lambda row: row["lease_id"])


def skip(claim: Claim) -> Settlement:
    return settlement(claim, Skip("cancelled", "by hand"))


@pytest.mark.req("P-1003")
@pytest.mark.parametrize("end", [finish, retry, bury, defer, fail_over, skip], ids=lambda end: str(end.__name__))
async def test_a_settlement_changes_its_own_route(
    engine: Engine, ledger: Ledger, end: Callable[[Claim], Settlement]
) -> None:
    await neighbours(ledger)
    await ledger.enrol([several(), several()])
    here, *_ = await ledger.claim([want(2)], 2, "here")
    (there, _) = await ledger.claim([want(2)], 2, "there")
    before = (await beside(engine, [here.key]), await leases(engine, but=[here.lease]))
    assert await ledger.settle([end(here)]) == [Settled.APPLIED]
    assert (await beside(engine, [here.key]), await leases(engine, but=[here.lease])) == before
    told = await engine.rows("attempts_told")
    # The repeat of one whose answer was lost; what called nobody left no note of it.
    assert await ledger.settle([end(here)]) == [Settled.APPLIED if end(here).note else Settled.STALE]
    assert (await beside(engine, [here.key]), await leases(engine, but=[here.lease])) == before
    assert len(await engine.rows("attempts_told")) == len(told)
    assert await ledger.settle([finish(there)]) == [Settled.APPLIED]


@pytest.mark.req("P-1003")
async def test_a_late_success_is_adopted_by_its_own_route(engine: Engine, ledger: Ledger) -> None:
    await neighbours(ledger)
    await ledger.enrol([several(), several()])
    late, *_ = await ledger.claim([want()], 10, "late")
    await engine.execute("UPDATE leases SET expires_at = claimed_at WHERE owner = 'late'")
    assert len(await ledger.claim([want()], 10, "heir")) == 4
    before = (await beside(engine, [late.key]), await leases(engine))
    assert await ledger.settle([retry(late)]) == [Settled.STALE]
    assert await ledger.settle([finish(late)]) == [Settled.ADOPTED]
    assert (await beside(engine, [late.key]), await leases(engine)) == before


@pytest.mark.req("P-1003")
async def test_a_heartbeat_renews_its_own_lease(engine: Engine, ledger: Ledger) -> None:
    await neighbours(ledger)
    await ledger.enrol([several(), several()])
    here, beside_it = await ledger.claim([want(2)], 2, "here")
    await ledger.claim([want(2)], 2, "there")
    before = (await beside(engine), await leases(engine, but=[here.lease]))
    assert await ledger.extend([here, beside_it]) == []
    assert (await beside(engine), await leases(engine, but=[here.lease])) == before
    await ledger.settle([finish(here), retry(beside_it)])
    before = (await beside(engine), await leases(engine))
    assert await ledger.extend([here, beside_it]) == [here, beside_it], "both have ended"
    assert (await beside(engine), await leases(engine)) == before


@pytest.mark.req("P-1003")
async def test_a_claim_takes_over_what_ran_out_and_touches_nothing_else(engine: Engine, ledger: Ledger) -> None:
    await neighbours(ledger)
    waits = several()
    await ledger.enrol([several(), several(), waits])
    lost = await ledger.claim([want(2)], 2, "dead")
    await ledger.claim([want(2)], 2, "alive")
    await engine.execute("UPDATE leases SET expires_at = claimed_at WHERE owner = 'dead'")
    mine = {claim.key for claim in lost} | keys_of(waits)
    gone = [claim.lease for claim in lost]
    before = (await beside(engine, mine), await leases(engine, but=gone))
    found = await ledger.claim([want()], 10, "heir")
    assert {claim.key for claim in found} == mine
    assert {claim.abandoned for claim in found} == {True, False}
    gone += [claim.lease for claim in found]
    assert (await beside(engine, mine), await leases(engine, but=gone)) == before


@pytest.mark.req("P-1003")
async def test_a_claim_takes_what_has_become_due_in_its_lane_for_its_provider(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([several() for _ in range(2)])
    await ledger.settle([retry(claim) for claim in await ledger.claim([want()], 10, "w")])
    for lane, provider in ((1, PROVIDER), (LANE, "other")):
        await ledger.enrol([enrolment(route("ann", lane=lane, provider=provider))])
        (claim,) = await ledger.claim([want(lane=lane, provider=provider)], 10, "w")
        await ledger.settle([retry(claim)])
    await engine.make_due()
    await ledger.enrol([several(scheduled_for_ms=LATER)])
    mine = {
        key_of(row)
        for row in await routes_of(engine)
        if (row["lane"], row["provider"], row["status"]) == (LANE, PROVIDER, "failed")
    }
    before = await beside(engine, mine)
    assert {claim.key for claim in await ledger.claim([want()], 10, "w")} == mine
    assert await beside(engine, mine) == before


@pytest.mark.req("P-1003")
async def test_of_one_group_only_what_is_due_is_claimed(engine: Engine, ledger: Ledger) -> None:
    """A row of the turns that somebody has moved into the future stands behind one that is due."""
    await ledger.enrol([enrolment(route("ann", group=7)), enrolment(route("bob", group=7))])
    ahead = {"postgres": "due_at + interval '1 h'", "sqlite": "due_at + 3600000"}[engine.dialect]
    await engine.execute(f"UPDATE due SET due_at = {ahead} WHERE ticket = (SELECT max(ticket) FROM due)")  # noqa: S608
    assert [claim.recipient_ref for claim in await ledger.claim([want()], 10, "w")] == ["user:ann"]


@pytest.mark.req("P-1003")
async def test_a_repeat_after_a_lost_answer_takes_its_own_routes(engine: Engine, ledger: Ledger) -> None:
    await neighbours(ledger)
    ours, others = several(), [several(), several()]
    await ledger.enrol_claimed([ours, *others], "me", 30.0)
    await ledger.enrol_claimed([several()], "somebody", 30.0)
    await ledger.enrol_claimed([several(scheduled_for_ms=LATER)], "me", 30.0)
    ledger._leases._open.clear()  # noqa: SLF001 - what only a broken connection does
    tickets = {row["ticket"] for row in await routes_of(engine) if key_of(row) in keys_of(ours)}
    held = [row["lease_id"] for row in await leases(engine) if tickets & set(json.loads(str(row["tickets"])))]
    before = (await beside(engine, keys_of(ours)), await leases(engine, but=held))
    (again,) = await ledger.enrol_claimed([ours], "me", 30.0)
    assert {claim.key for claim in again.claims} == keys_of(ours)
    anew = [*held, *(claim.lease for claim in again.claims)]
    assert (await beside(engine, keys_of(ours)), await leases(engine, but=anew)) == before
    assert await ledger.settle([finish(claim) for claim in again.claims]) == [Settled.APPLIED] * 2


@pytest.mark.req("P-1003")
async def test_what_is_given_back_leaves_its_own_lane(engine: Engine, ledger: Ledger) -> None:
    """Nobody waits for it any more; what is held or was left by its worker stays, and so do other lanes."""
    await neighbours(ledger)
    await ledger.enrol([enrolment(route("held", lane=0)), enrolment(route("left", lane=0))])
    await ledger.claim([want(1, lane=0)], 1, "w")
    (left,) = await ledger.claim([want(1, lane=0)], 1, "dead")
    await engine.execute("UPDATE leases SET expires_at = claimed_at WHERE owner = 'dead'")
    # Any claim puts what ran out back into its queue.
    assert await ledger.claim([want(lane=9)], 1, "w") == []
    now = enrolment(route("now", lane=0), route("too", lane=0))
    later = enrolment(route("ann", lane=0), route("bob"), scheduled_for_ms=LATER)
    await ledger.enrol([now, later, several(scheduled_for_ms=LATER)])
    mine = {*keys_of(now), (later.notification.notification_id, "email:user:ann")}
    before = (await beside(engine, mine), await leases(engine))
    assert await ledger.queue_unclaimed(0, 1) == len(mine)
    assert (await beside(engine, mine), await leases(engine)) == before
    assert {row["lane"] for row in await routes_of(engine) if key_of(row) in mine} == {1}
    assert left.key not in mine


@pytest.mark.req("P-1003")
async def test_live_leases_that_ran_out_are_reset_alone(engine: Engine, ledger: Ledger) -> None:
    await neighbours(ledger)
    live = [enrolment(route(name, channel="sse", provider="sse"), tenant_id=name) for name in ("ann", "bob", "cid")]
    await ledger.enrol(live)
    dead, _, _ = await ledger.claim([want(provider="sse")], 10, "w")
    past = {"postgres": "next_attempt_at - interval '1 h'", "sqlite": "next_attempt_at - 3600000"}[engine.dialect]
    await engine.execute(
        f"UPDATE routes SET next_attempt_at = {past} WHERE notification_id = '{dead.notification_id}'"  # noqa: S608
    )
    before = (await beside(engine, [dead.key]), await leases(engine))
    assert await ledger.reset_expired(10) == Reset(1, 0)
    assert (await beside(engine, [dead.key]), await leases(engine)) == before


async def stand_aside(ledger: Ledger) -> None:
    """Suppressions that bind nobody here: of another channel, address or tenant; each holds for ever."""
    await ledger.suppress(
        [
            Suppression("sms", "ann@example.com", "", "asked", "operator"),
            Suppression("email", "bob@example.com", "", "asked", "operator"),
            Suppression("email", "ann@example.com", "globex", "asked", "operator"),
        ]
    )


@pytest.mark.req("P-1004")
async def test_suppressions_of_others_stop_nobody(engine: Engine, ledger: Ledger) -> None:
    await stand_aside(ledger)
    await ledger.suppress([Suppression("email", "ann@example.com", "acme", "asked", "operator", 60.0)])
    await engine.grow_old("suppressions", "expires_at", 3600)
    (answer,) = await ledger.enrol([enrolment(tenant_id="acme")])
    assert getattr(answer, "suppressed", None) == ()
    (claim,) = await ledger.claim([want()], 10, "w")
    assert claim.suppression_json is None


@pytest.mark.req("P-1004")
@pytest.mark.parametrize("own", [True, False])
async def test_of_a_tenants_own_and_everybodys_the_one_that_holds_longer_counts(ledger: Ledger, *, own: bool) -> None:
    await ledger.enrol([enrolment(tenant_id="acme")])
    await stand_aside(ledger)
    for tenant, longer in (("acme", own), ("", not own)):
        seconds = 7200.0 if longer else 3600.0
        await ledger.suppress([Suppression("email", "ann@example.com", tenant, "asked", "operator", seconds)])
    rows, _ = await ledger.suppressions({}, 100, 0)
    counts = {row["tenant_id"]: row["suppression_id"] for row in rows if row["expires_at"] is not None}
    (claim,) = await ledger.claim([want()], 10, "w")
    assert claim.suppression().suppression_id == counts["acme" if own else ""]  # type: ignore[union-attr]
    (answer,) = await ledger.enrol([enrolment(tenant_id="acme")])
    (stopped,) = answer.suppressed  # type: ignore[union-attr]
    assert stopped.suppression.suppression_id == counts["acme" if own else ""]


@pytest.mark.req("P-1004")
async def test_wishes_are_those_of_the_person_in_its_tenant(ledger: Ledger) -> None:
    for tenant, user in ((None, "ann"), ("acme", "bob"), ("globex", "ann")):
        await ledger.change_preferences(tenant, user, PreferenceChange(channels={"email": False}))
    await ledger.enrol([enrolment(tenant_id="acme", category="news")])
    (claim,) = await ledger.claim([want()], 10, "w")
    assert claim.wishes_json is None
    await ledger.settle([retry(claim, 0.0)])
    await ledger.change_preferences("acme", "ann", PreferenceChange(channels={"sms": False}))
    (claim,) = await ledger.claim([want()], 10, "w")
    assert '"sms"' in str(claim.wishes_json)


@pytest.mark.req("P-1004")
async def test_a_chain_ends_where_another_route_of_its_person_has_reached_its_goal(
    engine: Engine, ledger: Ledger
) -> None:
    def chain(*names: str) -> Enrolment:
        routes = [
            route(
                name, route_id=f"{channel}:user:{name}", channel=channel, provider=channel, goal="delivered", step=step
            )
            for step, channel in enumerate(("email", "push"))
            for name in names
        ]
        return enrolment(*routes)

    both, one = chain("ann", "bob"), chain("ann")
    await ledger.enrol([both, one])
    told = {"postgres": "now()", "sqlite": "1"}[engine.dialect]
    reached = f"notification_id = '{both.notification.notification_id}' AND route_id = 'push:user:ann'"
    own = f"notification_id = '{one.notification.notification_id}' AND route_id = 'email:user:ann'"
    await engine.execute(f"UPDATE routes SET delivered_at = {told} WHERE ({reached}) OR ({own})")  # noqa: S608
    found = {claim.key: claim.stopped for claim in await ledger.claim([want(provider="email")], 10, "w")}
    assert found == {
        (both.notification.notification_id, "email:user:ann"): "reached:delivered on push",
        (both.notification.notification_id, "email:user:bob"): None,
        (one.notification.notification_id, "email:user:ann"): None,
    }


@pytest.mark.req("P-1003")
async def test_a_repeat_is_answered_with_its_own_notification(ledger: Ledger) -> None:
    """Its neighbours have routes that were skipped for other reasons."""
    gate: dict[str, Any] = {"status": Status.SKIPPED, "skipped_because": "left", "skipped_by": "category"}
    await ledger.suppress([Suppression("email", "cid@example.com", "", "asked", "operator")])
    key: dict[str, Any] = {"idempotency_key": "k", "producer": "shop"}
    plain = enrolment(route("ann"), route("dan", **(gate | {"skipped_by": "skipped"})), **key)
    await ledger.enrol([enrolment(route("bob", **gate), route("cid")), plain, enrolment(route("aaa", lane=1))])
    await ledger.settle([retry(claim) for claim in await ledger.claim([want()], 10, "w")])
    await ledger.enrol([enrolment(route("cid"), idempotency_key="k", producer="bank", priority=3)])
    await ledger.enrol([enrolment(route("cid"), idempotency_key="other", producer="shop")])
    (again,) = await ledger.enrol([enrolment(route("ann"), **key)])
    assert again == Duplicate(plain.notification.notification_id, LANE)
    (mixed,) = await ledger.enrol([enrolment(route("cid"), route("bob", **gate), idempotency_key="k2")])
    (answer,) = await ledger.enrol([enrolment(idempotency_key="k2")])
    assert (type(answer), len(answer.suppressed), len(answer.gated)) == (Duplicate, 1, 1)  # type: ignore[union-attr]
    assert answer.suppressed[0].route_id != answer.gated[0].route_id, mixed  # type: ignore[union-attr]


@pytest.mark.req("P-1003")
async def test_only_live_routes_that_wait_stand_in_turns_of_their_own(engine: Engine, ledger: Ledger) -> None:
    gate: dict[str, Any] = {"status": Status.SKIPPED, "skipped_because": "left", "skipped_by": "category"}
    live: dict[str, Any] = {"channel": "sse", "provider": "sse", "group": 4}
    await ledger.enrol([enrolment(route("waits", **live), route("skipped", **live, **gate), route("mail", group=4))])
    await ledger.enrol([enrolment(route("later", **live), scheduled_for_ms=LATER)])
    await ledger.enrol_claimed([enrolment(route("held", **live))], "w", 30.0)
    turns = {row["recipient_ref"]: row["turn"] for row in await routes_of(engine)}
    assert {who: turn for who, turn in turns.items() if turn is not None} == {"user:waits": 4}


@pytest.mark.req("P-1001")
async def test_a_place_that_comes_back_is_that_of_its_own_group(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(f"{n}", group=group)) for n in range(3) for group in (-3, -4)])
    found = await ledger.claim([Want(LANE, PROVIDER, 50, Turns(2))], 50, "w")
    assert sorted(claim.group for claim in found) == [-4, -4, -3, -3]
    before = await leases(engine, but=[found[0].lease])
    await ledger.settle([finish(found[0])])
    assert await leases(engine, but=[found[0].lease]) == before
    (next_one,) = await ledger.claim([Want(LANE, PROVIDER, 50, Turns(2))], 50, "w")
    assert next_one.group == found[0].group
