"""Replays: what went to one endpoint since a time is counted, sent again once, and a stop makes it what it was."""

from typing import Any

import pytest

from carillon.domain.admin import AdminAction, RedriveResult
from carillon.domain.notifications import Enrolment, Route
from carillon.domain.suppressions import Suppression
from carillon.domain.targets import endpoint_of
from carillon.ledger.opening import Ledger
from carillon.upkeep import replaying
from carillon.upkeep.redriving import redrive_plan
from carillon.upkeep.replaying import ReplayCounts, ReplayScope, count_replay, replay, replay_action
from tests.contract.test_ledger_skipped import LANES
from tests.support.ledger_builders import PROVIDER, bury, defer, enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

HERE, ELSEWHERE = "hooks.example.org:443", "other.example.org:443"
STOP = AdminAction(actor="ops", action="stop_redrive", reason="wrong")


def hook(name: str, host: str = "hooks.example.org") -> Route:
    return route(name, channel="webhook", route_id=f"webhook:user:{name}", address=f"https://{host}/{name}")


def named(address: str | None) -> str | None:
    return endpoint_of(address or "")


async def scope(ledger: Ledger, **changes: Any) -> ReplayScope:
    plain: dict[str, Any] = {"provider": PROVIDER, "endpoint": HERE, "since_ms": 0}
    return ReplayScope(**(plain | {"until_ms": await ledger.now_ms() + 1} | changes))


async def found(ledger: Ledger, **changes: Any) -> ReplayCounts:
    return await count_replay(ledger, await scope(ledger, **changes), named)


async def again(ledger: Ledger, *, rate: float | None = None, **changes: Any) -> RedriveResult:
    about = await scope(ledger, **changes)
    action = replay_action(actor="ops", reason="it was down", scope=about, matched=9, rate=rate)
    return await replay(ledger, about, named, redrive_plan(LANES, rate=rate), action)


async def ended(ledger: Ledger, end: Any, *all_of_them: Enrolment) -> None:
    """Accept these and end each of them in the same way."""
    await ledger.enrol(list(all_of_them))
    claims = await ledger.claim([want()], 10, "w")
    assert len(claims) == sum(len(one.routes) for one in all_of_them)
    await ledger.settle([end(claim) for claim in claims])


async def states(engine: Engine) -> dict[str, str]:
    return {str(row["route_id"]).rsplit(":", 1)[-1]: row["status"] for row in await engine.rows("routes")}


@pytest.mark.req("P-610")
async def test_dead_letters_of_one_endpoint_go_again_once(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, bury, enrolment(hook("a"), hook("b")), enrolment(hook("c", "other.example.org")))
    await ended(ledger, finish, enrolment(hook("d")))
    await ledger.enrol([enrolment(hook("e"))])
    await ledger.settle([retry(claim) for claim in await ledger.claim([want()], 10, "w")])
    assert await found(ledger) == ReplayCounts(failed=2)
    assert await found(ledger, endpoint=ELSEWHERE) == ReplayCounts(failed=1)
    assert await found(ledger, provider="another") == ReplayCounts()
    done = await again(ledger)
    assert done.count == 2
    assert {claim.address for claim in await ledger.claim([want()], 10, "w")} == {
        "https://hooks.example.org/a",
        "https://hooks.example.org/b",
    }
    assert (await again(ledger)).count == 0, "a repeat sends nothing twice"
    assert await states(engine) == {"a": "failed", "b": "failed", "c": "dead_letter", "d": "published", "e": "failed"}
    (action,), _ = await ledger.actions({"action": "redrive"}, 10, 0)
    assert (action["action_id"], action["subject"]) == (done.action_id, f"{PROVIDER}@{HERE}")
    assert (action["detail"]["endpoint"], action["detail"]["redriven"]) == (HERE, 2)


@pytest.mark.req("P-610")
async def test_what_was_delivered_goes_again_if_asked(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, bury, enrolment(hook("a")))
    one = enrolment(hook("b"))
    await ended(ledger, finish, one, enrolment(hook("c", "other.example.org")))
    assert await found(ledger, delivered=True) == ReplayCounts(failed=1, delivered=1)
    done = await again(ledger, delivered=True)
    assert done.count == 2
    claims = {claim.address: claim for claim in await ledger.claim([want()], 10, "w")}
    sent = claims["https://hooks.example.org/b"]
    assert (sent.notification_id, sent.attempt) == (one.notification.notification_id, 1), "the old id, a fresh budget"
    await ledger.settle([finish(claim) for claim in claims.values()])
    assert (await again(ledger, delivered=True, until_ms=1)).count == 0
    story = await ledger.story(sent.notification_id, None)
    assert story is not None
    assert [attempt["outcome"] for attempt in story.attempts] == ["sent", "sent"], "the first attempt is still told"
    assert story.routes[0]["redriven_by"] == done.action_id
    assert set((await states(engine)).values()) == {"published"}


@pytest.mark.req("P-610")
async def test_filters(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, bury, enrolment(hook("a"), tenant_id="acme"), enrolment(hook("b"), tenant_id="other"))
    await ended(ledger, finish, enrolment(hook("c"), tenant_id="acme"), enrolment(hook("d"), tenant_id="other"))
    now = await ledger.now_ms()
    for filters, number in (
        ({"tenant_id": "acme"}, 2),
        ({"tenant_id": "nobody"}, 0),
        ({"since_ms": round(now) + 60_000}, 0),
        ({"since_ms": round(now) - 60_000}, 4),
        ({"until_ms": now - 60_000}, 0),
    ):
        counts = await found(ledger, delivered=True, **filters)
        assert (counts.failed + counts.delivered, counts.failed) == (number, number // 2), filters
    assert (await again(ledger, delivered=True, tenant_id="acme")).count == 2
    assert await states(engine) == {"a": "failed", "b": "dead_letter", "c": "failed", "d": "published"}


@pytest.mark.req("P-610")
async def test_the_time_is_that_of_the_delivery(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, finish, enrolment(hook("a")))
    await engine.grow_old("records", "accepted_at", 86_400 * 7)
    since = round(await ledger.now_ms()) - 60_000
    assert (await found(ledger, delivered=True, since_ms=since)).delivered == 1, "it waited for a week"
    await engine.grow_old("routes", "published_at", 3600)
    assert (await found(ledger, delivered=True, since_ms=since)).delivered == 0, "a receipt changed it later"


@pytest.mark.req("P-610")
@pytest.mark.parametrize(
    "change",
    [
        "records SET stopped = 'cancelled'",
        "records SET expires_at = accepted_at",
        "routes SET receipt_due = created_at",
    ],
)
async def test_what_stays_delivered(engine: Engine, ledger: Ledger, change: str) -> None:
    await ended(ledger, finish, enrolment(hook("a")))
    about = await scope(ledger, delivered=True)
    (row,) = await ledger.replayable(about.filters(), 10, None, delivered=True)
    await engine.execute(f"UPDATE {change}")
    assert (await again(ledger, delivered=True)).count == 0
    action = replay_action(actor="ops", reason="late", scope=about, matched=1, rate=None)
    key = [(row["notification_id"], row["route_id"])]
    late = await ledger.replay_delivered(key, about.until_ms, redrive_plan(LANES), action)
    assert late == RedriveResult(0, None), "what changed after the count stays too"
    assert await states(engine) == {"a": "published"}


@pytest.mark.req("P-610")
async def test_a_suppressed_address_stays(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, bury, enrolment(hook("a")))
    await ended(ledger, finish, enrolment(hook("b")))
    await ledger.suppress(
        [Suppression("webhook", f"https://hooks.example.org/{name}", "", "manual", "op", None) for name in "ab"]
    )
    assert await found(ledger, delivered=True) == ReplayCounts(failed=1, delivered=1, suppressed=2)
    assert (await again(ledger, delivered=True)).count == 0
    assert await states(engine) == {"a": "dead_letter", "b": "published"}


@pytest.mark.req("P-610")
async def test_many_pages_keep_a_rate(engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PAGE", 2)
    await ended(ledger, bury, *[enrolment(hook(f"f{number}"), hook(f"g{number}", "x.org")) for number in range(3)])
    await ended(ledger, finish, *[enrolment(hook(f"d{number}"), hook(f"h{number}", "x.org")) for number in range(3)])
    assert await found(ledger, delivered=True) == ReplayCounts(failed=3, delivered=3)
    assert (await again(ledger, delivered=True, rate=1.0)).count == 6
    due = sorted(row["next_attempt_at"] for row in await engine.rows("routes") if row["next_attempt_at"])
    assert [round((one - due[0]) / 1000) for one in due] == list(range(6))
    (action,), _ = await ledger.actions({"action": "redrive"}, 10, 0)
    assert action["detail"]["redriven"] == 6, "one action for all pages"


@pytest.mark.req("P-611")
async def test_a_stop_makes_each_what_it_was(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, bury, enrolment(hook("a")), enrolment(hook("b")))
    await ended(ledger, finish, enrolment(hook("c")), enrolment(hook("d")))
    before = {row["route_id"]: row["published_at"] for row in await engine.rows("routes")}
    done = await again(ledger, delivered=True, rate=0.001)
    assert done.action_id is not None
    (held,) = await ledger.claim([want()], 10, "w")
    assert await ledger.stop_redrive(done.action_id, STOP) == 3
    now = await states(engine)
    assert now.pop(held.route_id.rsplit(":", 1)[-1]) == "failed", "what a worker holds goes on"
    assert sorted(now.values()) == ["dead_letter", "published", "published"]
    rows = {row["route_id"]: row for row in await engine.rows("routes")}
    assert all(rows[name]["published_at"] == at for name, at in before.items() if at is not None)
    assert await ledger.stop_redrive(done.action_id, STOP) == 0
    assert await ledger.claim([want()], 10, "w") == []
    assert await found(ledger, delivered=True) == ReplayCounts(failed=1, delivered=2)
    story = await ledger.story(
        next(row["notification_id"] for row in rows.values() if row["status"] == "published"), None
    )
    assert story is not None
    assert [attempt["outcome"] for attempt in story.attempts] == ["sent"]


@pytest.mark.req("P-611")
async def test_a_stop_after_a_pause_held_it_makes_it_delivered(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger, finish, enrolment(hook("a")))
    done = await again(ledger, delivered=True)
    assert done.action_id is not None
    (claim,) = await ledger.claim([want()], 10, "w")
    await ledger.settle([defer(claim)])
    assert await ledger.stop_redrive(done.action_id, STOP) == 1
    row = await engine.only("routes")
    assert (row["status"], row["published_at"] is not None) == ("published", True)


@pytest.mark.req("P-611")
async def test_what_failed_after_its_replay_is_a_dead_letter_after_a_stop(engine: Engine, ledger: Ledger) -> None:
    """It belongs to the newer action, which found it dead."""
    await ended(ledger, finish, enrolment(hook("a")))
    await again(ledger, delivered=True)
    await ledger.settle([bury(claim) for claim in await ledger.claim([want()], 10, "w")])
    done = await again(ledger, rate=0.001)
    assert (done.count, done.action_id is not None) == (1, True)
    assert await ledger.stop_redrive(done.action_id or 0, STOP) == 1
    assert await states(engine) == {"a": "dead_letter"}
