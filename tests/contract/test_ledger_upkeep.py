"""What operators see and do: stories, searches, counts, dead letters, redriving, cancelling, retention."""

import asyncio

import pytest
from msgspec.structs import replace

from carillon.domain.claims import Settled, Want
from carillon.domain.digests import ThrottleEntry, ThrottleRule
from carillon.domain.groups import Turns
from carillon.domain.intents import Malformed
from carillon.domain.notifications import Status
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import (
    LANE,
    PROVIDER,
    bury,
    enrolment,
    fail_over,
    finish,
    redrive,
    retry,
    route,
    want,
)
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()


async def found(ledger: Ledger, **filters: object) -> list[str]:
    stories, total = await ledger.search(filters, 100, 0)
    assert total == len(stories)
    return [str(story.notification["notification_id"]) for story in stories]


async def buried(ledger: Ledger) -> tuple[str, str]:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([bury(claim)])
    return claim.key


async def test_a_story_holds_everything(ledger: Ledger) -> None:
    given = enrolment(route("ann"), route("bob"), tenant_id="t", recipient_user_ids=["ann"], is_bulk=True)
    await ledger.enrol([given])
    first, second = await ledger.claim([want()], 10, "w")
    await ledger.settle([retry(first, 0.0), finish(second)])
    (again,) = await ledger.claim([want()], 10, "w")
    await ledger.settle([finish(again)])
    story = await ledger.story(given.notification.notification_id, None)
    assert story is not None
    assert story.notification["recipient_user_ids"] == ["ann"]
    assert story.notification["is_bulk"] is True
    assert type(story.notification["accepted_at"]) is int
    assert [row["route_id"] for row in story.routes] == ["email:user:ann", "email:user:bob"]
    assert [row["attempt_id"] for row in story.attempts] == [first.token, second.token, again.token]
    assert [row["verdict"] for row in story.attempts] == ["retry", "finish", "finish"]


@pytest.mark.req("P-786")
async def test_what_waits_is_found_in_a_short_and_in_a_long_queue(ledger: Ledger) -> None:
    """SQLite reads a short queue by its index, and a long one in the order of time: the answers are the same."""
    waiting = {"statuses": ["pending", "failed"]}
    ended, tried, fresh, pushed = (
        enrolment(route("ended")),
        enrolment(route("tried"), route("done")),
        enrolment(route("fresh")),
        enrolment(route("pushed", channel="push", address="token")),
    )
    await ledger.enrol([ended])
    await ledger.settle([finish(await claim_one(ledger))])
    await ledger.enrol([tried])
    first, second = await ledger.claim([want()], 10, "w")
    await ledger.settle([retry(first, 3600.0), finish(second)])
    await ledger.enrol([fresh, pushed])
    of = [one.notification.notification_id for one in (tried, fresh, pushed)]
    assert sorted(await found(ledger, **waiting)) == sorted(of)
    assert await found(ledger, **waiting, channel="push") == [of[2]]
    assert await found(ledger, statuses=["failed"]) == [of[0]]
    assert await found(ledger, statuses=["pending", "published"], user_id="nobody") == []
    many = enrolment(*(route(f"many-{number}", channel="sms") for number in range(2001)))
    await ledger.enrol([many])
    assert sorted(await found(ledger, **waiting)) == sorted([*of, many.notification.notification_id])
    assert await found(ledger, **waiting, channel="push") == [of[2]]
    assert await found(ledger, statuses=["failed"]) == [of[0]]


async def test_a_tenant_sees_only_its_own(ledger: Ledger) -> None:
    given = enrolment(tenant_id="t1")
    await ledger.enrol([given])
    key = given.notification.notification_id
    assert await ledger.story(key, "t1") is not None
    assert await ledger.story(key, "t2") is None
    assert await ledger.story("nobody", None) is None


async def test_every_filter_filters(engine: Engine, ledger: Ledger) -> None:
    odd = enrolment(
        route("odd", channel="push", address="token"),
        user_id="u",
        notification_type="x",
        tenant_id="t",
        trace_id="tr",
        origin="o",
    )
    key = odd.notification.notification_id
    await ledger.enrol([enrolment(user_id="v", tenant_id="s")])
    await engine.grow_old("records", "accepted_at", 100)
    await ledger.enrol([odd])
    await ledger.settle(
        [finish(claim) for claim in await ledger.claim([want()], 10, "w") if claim.notification_id == key]
    )
    accepted = next(row["accepted_at"] for row in await engine.rows("records") if row["notification_id"] == key)
    only_odd = {
        "user_id": "u",
        "notification_type": "x",
        "statuses": ["published"],
        "channel": "push",
        "tenant_id": "t",
        "trace_id": "tr",
        "recipient": "token",
        "origin": "o",
        "accepted_after_ms": accepted - 1000,
    }
    for name, value in only_odd.items():
        assert await found(ledger, **{name: value}) == [key], name
    assert await found(ledger, **only_odd) == [key]
    assert await found(ledger, statuses=["published"], recipient="ann@example.com") == []
    assert key not in await found(ledger, accepted_before_ms=accepted - 1000)
    assert len(await found(ledger)) == 2
    assert len(await found(ledger, user_id=None)) == 2


async def test_unknown_filters_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="unknown filter colour"):
        await ledger.search({"colour": "red"}, 10, 0)
    with pytest.raises(ValueError, match="unknown filter status"):
        await ledger.dead_letters({"status": "x"}, 10, 0)


async def test_pages_are_newest_first_and_know_the_total(ledger: Ledger) -> None:
    for _ in range(5):
        await ledger.enrol([enrolment()])
    pages = [await ledger.search({}, 2, offset) for offset in (0, 2, 4, 6)]
    ids = [story.notification["notification_id"] for stories, _ in pages for story in stories]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5
    assert {total for _, total in pages} == {5}


async def test_a_place_goes_on_after_its_row(ledger: Ledger) -> None:
    # All are accepted in the same microsecond: the ids alone order them.
    await ledger.enrol([enrolment() for _ in range(7)])
    place: dict[str, object] = {}
    ids: list[str] = []
    for _ in range(4):
        stories, total = await ledger.search(place, 2, 0, 0)
        assert total == 0
        ids += [story.notification["notification_id"] for story in stories]
        last = stories[-1].notification
        place = {"before_us": last["place"], "before_id": last["notification_id"]}
    assert len(ids) == 7
    assert ids == sorted(ids, reverse=True)
    assert (await ledger.search(place, 2, 0))[0] == []
    assert (await ledger.search({}, 2, 0, 5))[1] == 5


async def test_a_text_is_found_in_ids_people_addresses_and_errors(ledger: Ledger) -> None:
    odd = enrolment(route("odd", address="odd_one@example.org"), user_id="person-7", notification_type="order.paid")
    await ledger.enrol([odd])
    (claim,) = await ledger.claim([want()], 10, "w")
    await ledger.settle([bury(claim)])
    await ledger.enrol([enrolment(route("ann", address="oddXone@example.org"))])
    key = odd.notification.notification_id
    story = await ledger.story(key, None)
    assert story is not None
    error = story.routes[0]["last_error_message"]
    for text in (key, "person-7", "order.pa", "odd_one@example.org", "odd_one@", error[1:].upper()):
        assert await found(ledger, text=text) == [key], text
    assert await found(ledger, text="person-") == []
    assert await found(ledger, text="%") == []


async def test_counts(engine: Engine, ledger: Ledger) -> None:
    empty = await ledger.counts()
    assert (empty["due"], empty["leased"], empty["oldest_due_seconds"]) == (0, 0, None)
    skipped = route("skip", status=Status.SKIPPED, skipped_because="no")
    await ledger.enrol([enrolment(route("a"), route("b"), route("c", lane=3), skipped)])
    await engine.grow_old("routes", "next_attempt_at", 10)
    first, second = await ledger.claim([want(2)], 2, "w")
    await ledger.settle([retry(first)])
    counts = await ledger.counts()
    assert counts["routes"] == {"pending": 2, "failed": 1, "published": 0, "dead_letter": 0, "skipped": 1}
    assert (counts["due"], counts["leased"]) == (1, 1)
    assert 9 < counts["oldest_due_seconds"] < 60
    assert counts["lanes"][3]["due"] == 1
    assert counts["lanes"][2]["leased"] == 1
    assert second.lane == 2


async def test_dead_letters_are_listed_and_filtered(ledger: Ledger) -> None:
    first, second = await buried(ledger), await buried(ledger)
    letters, total = await ledger.dead_letters({}, 10, 0)
    assert [(row["notification_id"], row["route_id"]) for row in letters] == [second, first]
    assert total == 2
    created = letters[0]["created_at"]
    for filters in ({"channel": "email"}, {"classification": "recipient_gone"}, {"created_after_ms": created - 60_000}):
        assert (await ledger.dead_letters(filters, 10, 0))[1] == 2
    for filters in (
        {"channel": "push"},
        {"classification": "x"},
        {"tenant_id": "t"},
        {"created_after_ms": created + 1},
    ):
        assert await ledger.dead_letters(filters, 10, 0) == ([], 0)
    letters, total = await ledger.dead_letters({"notification_id": first[0]}, 10, 0)
    assert (letters[0]["notification_id"], total) == (first[0], 1)
    assert await ledger.dead_letters({}, 1, 5) == ([], 2)


async def test_redriving_gives_a_fresh_budget_under_the_old_id(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    await ledger.settle([fail_over(await claim_one(ledger), "second")])
    (claim,) = await ledger.claim([want(provider="second")], 10, "w")
    await ledger.settle([bury(claim)])
    for column in ("budget_since", "created_at"):
        await engine.grow_old("routes", column, 1000)
    assert await redrive(ledger, claim.key, claim.key, ("nobody", "x")) == 1
    assert not await engine.rows("dead_letters")
    assert len(await engine.rows("attempts_told")) == 2
    (again,) = await ledger.claim([want(provider="second")], 10, "w")
    assert again.key == claim.key
    assert (again.attempt, again.attempts_before, again.abandoned) == (1, 0, False)
    assert again.age_seconds < 500
    assert await ledger.settle([finish(claim), finish(again)]) == [Settled.ADOPTED, Settled.STALE]


async def test_redriving_may_name_another_provider_and_wakes_claimers(ledger: Ledger) -> None:
    key = await buried(ledger)
    waiting = asyncio.create_task(ledger.signal.wait(30))
    assert await redrive(ledger, key, provider="third") == 1
    await waiting
    (claim,) = await ledger.claim([want(provider="third")], 10, "w")
    assert claim.key == key


async def test_only_dead_letters_are_redriven(engine: Engine, ledger: Ledger) -> None:
    key = await buried(ledger)
    given = enrolment()
    await ledger.enrol([given])
    assert await redrive(ledger, (given.notification.notification_id, "email:user:ann")) == 0
    answers = await asyncio.gather(*(redrive(ledger, key) for _ in range(5)))
    assert sorted(answers) == [0, 0, 0, 0, 1]
    assert len(await engine.rows("dead_letters")) == 0


async def test_cancelling_skips_what_no_worker_holds(engine: Engine, ledger: Ledger) -> None:
    given = enrolment(route("ann"), route("bob"), route("cid"), tenant_id="t")
    await ledger.enrol([given])
    held, failed = await ledger.claim([want(2)], 2, "w")
    await ledger.settle([retry(failed)])
    key = given.notification.notification_id
    assert await ledger.cancel(key, "other") == 0
    assert await ledger.cancel(key, "t") == 2
    assert await ledger.cancel(key) == 0
    rows = {row["route_id"]: row for row in await engine.rows("routes")}
    assert rows[held.route_id]["status"] == "pending"
    assert rows[failed.route_id]["status"] == "skipped"
    assert rows[failed.route_id]["last_error_classification"] == "cancelled"
    assert rows[failed.route_id]["next_attempt_at"] is None
    assert await ledger.settle([finish(held), finish(failed)]) == [Settled.APPLIED, Settled.STALE]


@pytest.mark.req("S1-111", "S1-163", "S1-164", "S1-165", "S1-166")
async def test_retention_deletes_in_bounded_steps(engine: Engine, ledger: Ledger) -> None:
    keys = [await buried(ledger) for _ in range(5)]
    await ledger.keep_malformed(
        [Malformed(stream_entry_id=f"{n}-0", failure_code="c", failure_message="m", raw_fields={}) for n in range(3)]
    )
    assert await ledger.prune(3600, 3600, 100) == (0, 0)
    await engine.grow_old("records", "accepted_at", 7200)
    assert await ledger.prune(3600, 3600, 2) == (2, 0)
    left = {row["notification_id"] for row in await engine.rows("dead_letters")}
    assert left == {key[0] for key in keys[2:]}
    await engine.grow_old("malformed_intents", "recorded_at", 7200)
    assert await ledger.prune(3600, 3600, 2) == (2, 2)
    assert await ledger.prune(3600, 3600, 2) == (1, 1)
    for table in ("records", "routes", "attempts", "dead_letters", "malformed_intents"):
        assert not await engine.rows(table)


async def test_retention_forgets_expired_suppressions(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann")), enrolment(route("bob"))])
    await ledger.settle([bury(claim, suppress=True) for claim in await ledger.claim([want()], 10, "w")])
    await engine.execute("UPDATE suppressions SET expires_at = created_at WHERE address = 'bob@example.com'")
    await ledger.prune(3600, 3600, 10)
    assert (await engine.only("suppressions"))["address"] == "ann@example.com"


async def test_check_speaks_of_the_engine(engine: Engine, ledger: Ledger) -> None:
    answer = await ledger.check()
    assert answer["engine"] == {"postgres": "postgresql", "sqlite": "sqlite"}[engine.dialect]
    assert answer["version"]
    assert answer["durable"] is (engine.dialect == "sqlite")
    assert set(answer["settings"]) >= ({"fsync"} if engine.dialect == "postgres" else {"synchronous"})
    assert abs(answer["clock_skew_seconds"]) < 2
    assert answer["response_time_ms"] > 0


async def test_retention_removes_the_fence_of_a_group_that_is_gone(engine: Engine, ledger: Ledger) -> None:
    if not isinstance(engine, PostgresEngine):
        return
    capped = Want(LANE, PROVIDER, 10, Turns(2))
    await ledger.enrol([enrolment(route(f"user{group}", group=group)) for group in (-1, -2, -3)])
    claims = {claim.group: claim for claim in await ledger.claim([capped], 10, "w")}
    await ledger.settle([finish(claims[-1]), finish(claims[-3])])
    await engine.execute("UPDATE slots SET taken_at = now() - interval '2 h' WHERE grp > -3")
    await ledger.prune(3600, 3600, 100)
    left = {row["grp"] for row in await engine.execute("SELECT grp FROM slots")}
    assert left == {-2, -3}, "one has a call, the other was claimed from of late"
    await ledger.enrol([enrolment(route(f"again{number}", group=-1)) for number in range(3)])
    assert len(await ledger.claim([capped], 10, "w")) == 2, "the group comes back, and its cap holds"


@pytest.mark.req("P-1111")
async def test_retention_forgets_what_throttles_counted_long_ago(engine: Engine, ledger: Ledger) -> None:
    rule = ThrottleRule(5, 3600.0, "5 in 1h")

    async def count(person: str) -> None:
        counted = (ThrottleEntry(audience=f"user:{person}", category="news", throttle=rule),)
        await ledger.enrol([replace(enrolment(route(person)), throttles=counted)])

    await count("ann")
    await count("bob")
    await engine.grow_old("throttles", "updated_at", 10_000)
    await count("bob")
    await ledger.prune(60, 60, 10)
    assert len(await engine.execute("SELECT audience FROM throttles")) == 2, "records may be kept for a shorter time"
    assert [await ledger.prune_throttles(older, 10) for older in (7200, 3600, 3600)] == [0, 1, 0]
    assert [dict(row)["audience"] for row in await engine.execute("SELECT audience FROM throttles")] == ["user:bob"]
