"""People's logs: numbers that only grow, repeats that keep their number, and no entry of another person."""

import asyncio
import json
from typing import Any

import pytest

from carillon.domain.claims import Settled, Settlement
from carillon.domain.content.parts import InAppParts
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Throttled
from carillon.domain.streams import Bounds, InboxCounts, log_of
from carillon.domain.verdicts import Defer, Retry
from carillon.ledger.opening import Ledger
from carillon.outbound.attempt import noted
from tests.support.ledger_builders import bury, failed_note, finish, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.stream_builders import claimed, in_app, told

engine = engine_fixture()
ledger = ledger_fixture()


def held_back(claim: Any, seconds: float = 3600.0) -> Settlement:
    note = noted("sse", Throttled("nobody is connected"), 0.0)
    return Settlement(claim=claim, verdict=Defer(seconds), note=note)


@pytest.mark.req("S4-49")
async def test_each_person_has_numbers_of_their_own_that_grow(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("bob"), told("ann"), told("ann"))
    entries = await ledger.append(claims)
    assert [(entry.user_id, entry.seq) for entry in entries] == [("ann", 1), ("bob", 1), ("ann", 2), ("ann", 3)]
    (more,) = await ledger.append(await claimed(ledger, told("ann")))
    assert more.seq == 4
    assert [entry.seq for entry in await ledger.read("ann", 0, 10)] == [1, 2, 3, 4]


@pytest.mark.req("S4-45", "S4-48")
async def test_what_was_appended_is_what_is_read(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann", priority=1), told("ann", priority=3, occurred_at_ms=None))
    first, second = await ledger.append(claims)
    assert await ledger.read("ann", 0, 10) == [first, second]
    assert (first.event_type, first.priority, second.priority) == ("job.new", 1, 3)
    assert first.notification_id == claims[0].notification_id
    assert first.payload_json == claims[0].payload_json
    assert first.event_timestamp_ms > 1_700_000_000_000
    assert second.event_timestamp_ms == claims[1].accepted_at_ms, "without its own time it has that of its acceptance"
    assert await ledger.read("ann", 1, 10) == [second]
    assert await ledger.read("ann", 0, 1) == [first]
    assert await ledger.read("bob", 0, 10) == []
    assert await ledger.append([]) == []


@pytest.mark.req("S4-48")
async def test_a_repeat_keeps_its_number(engine: Engine, ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann"))
    before = await ledger.append(claims)
    await engine.expire_leases()
    again = await claimed(ledger, told("ann"))
    entries = await ledger.append(again)
    assert {entry.notification_id: entry.seq for entry in entries[:2]} == {
        entry.notification_id: entry.seq for entry in before
    }
    assert sorted(entry.seq for entry in entries) == [1, 2, 3]
    assert [entry.seq for entry in await ledger.append([again[0], again[0]])] == [entries[0].seq] * 2


@pytest.mark.req("S4-50")
async def test_tenants_and_strangers_have_logs_of_their_own(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann", tenant_id="acme"))
    await ledger.append(claims)
    mine, theirs = await ledger.read("ann", 0, 10), await ledger.read(log_of("acme", "ann"), 0, 10)
    assert ([e.seq for e in mine], [e.seq for e in theirs]) == ([1], [1])
    assert mine[0].notification_id != theirs[0].notification_id
    assert not await ledger.acknowledge("ann", theirs[0].notification_id)
    assert await ledger.mark_read("ann", [theirs[0].notification_id]) == 0


@pytest.mark.req("S4-49")
async def test_many_at_once_draw_every_number_once(engine: Engine, ledger: Ledger) -> None:
    claims = await claimed(ledger, *(told(f"u{number % 3}") for number in range(60)))
    async with engine.ledger() as other:
        writers = [ledger, other]
        batches = [claims[start : start + 7] for start in range(0, 60, 7)]
        await asyncio.gather(*(writers[turn % 2].append(batch) for turn, batch in enumerate(batches)))
    for user in ("u0", "u1", "u2"):
        assert [entry.seq for entry in await ledger.read(user, 0, 100)] == list(range(1, 21))


@pytest.mark.req("S4-48", "S4-49")
async def test_who_sees_a_number_can_read_everything_below_it(engine: Engine, ledger: Ledger) -> None:
    claims = await claimed(ledger, *(told("ann") for _ in range(80)))
    done = asyncio.Event()

    async def reader() -> None:
        cursor = 0
        while not (done.is_set() and cursor == 80):
            for entry in await ledger.read("ann", cursor, 100):
                assert entry.seq == cursor + 1, "a number became visible before the one below it"
                cursor = entry.seq

    async with engine.ledger() as other, asyncio.timeout(60):
        reading = asyncio.create_task(reader())
        writers = [ledger, other]
        await asyncio.gather(*(writers[turn % 2].append([claim]) for turn, claim in enumerate(claims)))
        done.set()
        await reading


async def test_the_inbox_is_read_a_page_at_a_time(ledger: Ledger) -> None:
    await ledger.append(await claimed(ledger, *(told("ann") for _ in range(5))))
    assert [entry.seq for entry in await ledger.newest_first("ann", 2)] == [5, 4]
    assert [entry.seq for entry in await ledger.newest_first("ann", 2, before=4)] == [3, 2]
    assert await ledger.newest_first("ann", 2, before=1) == []
    assert await ledger.inbox_counts("ann") == InboxCounts(5, 5)
    assert await ledger.inbox_counts("nobody") == InboxCounts(0, 0)


async def test_reading_is_marked_once(ledger: Ledger) -> None:
    entries = await ledger.append(await claimed(ledger, *(told("ann") for _ in range(4)), told("bob")))
    assert await ledger.mark_read("ann", [entries[0].notification_id, "nothing"]) == 1
    assert await ledger.mark_read("ann", [entries[0].notification_id]) == 0
    assert [entry.read for entry in await ledger.read("ann", 0, 10)] == [True, False, False, False]
    assert await ledger.inbox_counts("ann") == InboxCounts(4, 3)
    assert await ledger.mark_read("ann", None) == 3
    assert await ledger.inbox_counts("ann") == InboxCounts(4, 0)
    assert await ledger.inbox_counts("bob") == InboxCounts(1, 1)
    assert await ledger.mark_read("bob", []) == 0


@pytest.mark.req("P-561")
async def test_what_is_archived_leaves_the_inbox_and_its_count_and_comes_back_as_it_was(ledger: Ledger) -> None:
    entries = await ledger.append(await claimed(ledger, *(told("ann") for _ in range(4)), told("bob")))
    ids = [entry.notification_id for entry in entries]
    await ledger.mark_read("ann", ids[:2])
    assert await ledger.archive("ann", [ids[0], ids[2], "nothing", ids[4]]) == 2
    assert await ledger.archive("ann", [ids[0]]) == 0
    assert await ledger.inbox_counts("ann") == InboxCounts(2, 1)
    assert [entry.seq for entry in await ledger.newest_first("ann", 10)] == [4, 2]
    assert [(e.seq, e.archived) for e in await ledger.newest_first("ann", 10, archived=True)] == [(3, True), (1, True)]
    assert [entry.seq for entry in await ledger.newest_first("ann", 1, before=3, archived=True)] == [1]
    # A stream is a log: what a reader may resume from is complete.
    assert [entry.seq for entry in await ledger.read("ann", 0, 10)] == [1, 2, 3, 4]
    assert await ledger.archive("ann", None) == 1, "without names only what is read goes"
    assert await ledger.archive("ann", ids, archived=False) == 3
    assert await ledger.inbox_counts("ann") == InboxCounts(4, 2)
    assert await ledger.mark_read("ann", [ids[0]], read=False) == 1
    assert await ledger.mark_read("ann", [ids[0]], read=False) == 0
    assert await ledger.inbox_counts("ann") == InboxCounts(4, 3)
    assert await ledger.inbox_counts("bob") == InboxCounts(1, 1)


@pytest.mark.req("P-560")
async def test_a_message_of_the_inbox_is_read_as_it_was_rendered(ledger: Ledger) -> None:
    message = Message("It comes tomorrow.", "On its way", in_app=InAppParts(url="/7", icon="/i.png"))
    sent = [in_app("ann", message=message), in_app("bob", recipient_ref="inapp:bob"), in_app("ann", tenant_id="acme")]
    await ledger.enrol(sent)
    claims = await ledger.claim([want(provider="inbox", lane=2)], 10, "worker")
    appended = await ledger.append(claims)
    assert [entry.user_id for entry in appended] == ["ann", "bob", log_of("acme", "ann")]
    assert await ledger.read("ann", 0, 10) == [appended[0]]
    assert json.loads(appended[0].payload_json) == {
        "title": "On its way",
        "body": "It comes tomorrow.",
        "url": "/7",
        "icon": "/i.png",
    }
    assert json.loads((await ledger.newest_first("bob", 1))[0].payload_json) == {"body": "Hello."}


@pytest.mark.req("S4-36")
async def test_an_acknowledgement_counts_once_and_only_from_its_person(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.append([claim])
    await ledger.settle([finish(claim)])
    assert not await ledger.acknowledge("bob", claim.notification_id)
    assert (await engine.only("routes"))["delivered_at"] is None
    assert await ledger.acknowledge("ann", claim.notification_id)
    first = await engine.only("routes")
    assert (first["status"], first["receipt"]) == ("published", "delivered")
    assert await ledger.acknowledge("ann", claim.notification_id)
    again = await engine.only("routes")
    assert (again["delivered_at"], again["updated_at"]) == (first["delivered_at"], first["updated_at"])
    assert first["updated_at"] >= first["delivered_at"] > 0
    (entry,) = await ledger.read("ann", 0, 1)
    assert entry.delivered


@pytest.mark.req("S4-36")
async def test_an_acknowledgement_may_be_faster_than_the_settlement(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.append([claim])
    assert await ledger.acknowledge("ann", claim.notification_id)
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    row = await engine.only("routes")
    assert row["status"] == "published"
    assert row["delivered_at"] is not None


async def test_bounds_of_a_log_nobody_wrote_to(ledger: Ledger) -> None:
    assert await ledger.bounds(["ann"]) == {"ann": Bounds()}
    assert await ledger.bounds([]) == {}


async def test_bounds_tell_where_a_new_reader_begins(ledger: Ledger) -> None:
    claims = await claimed(ledger, *(told("ann") for _ in range(4)), told("bob"))
    await ledger.append(claims)
    await ledger.settle([finish(claims[0]), bury(claims[1]), finish(claims[4])])
    found = await ledger.bounds(["ann", "bob"])
    assert found == {"ann": Bounds(1, 4, 3), "bob": Bounds(1, 1, 0)}


@pytest.mark.req("S4-14")
async def test_retention_takes_the_log_along_and_leaves_a_gap_to_be_told_of(engine: Engine, ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann"), told("ann"))
    await ledger.append(claims)
    await ledger.settle([finish(claims[0]), finish(claims[2])])
    await engine.grow_old("records", "accepted_at", 31 * 86400)
    assert await ledger.prune(30 * 86400.0, 90 * 86400.0, 100) == (2, 0)
    assert [entry.seq for entry in await ledger.read("ann", 0, 10)] == [2], "what is not settled stays"
    assert (await ledger.bounds(["ann"]))["ann"] == Bounds(4, 3, 2)
    (more,) = await ledger.append(await claimed(ledger, told("ann")))
    assert more.seq == 4, "numbers never come again"
    assert (await ledger.bounds(["ann"]))["ann"] == Bounds(4, 4, 2)


@pytest.mark.req("S4-14")
async def test_retention_of_the_oldest_leaves_the_rest_readable(engine: Engine, ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"))
    await ledger.append(claims)
    await ledger.settle([finish(claims[0])])
    await engine.grow_old("records", "accepted_at", 31 * 86400)
    await ledger.append(await claimed(ledger, told("ann")))
    assert await ledger.prune(30 * 86400.0, 90 * 86400.0, 100) == (1, 0)
    assert (await ledger.bounds(["ann"]))["ann"] == Bounds(2, 2, 2)
    assert len(await engine.execute("SELECT * FROM stream_entries")) == 1


@pytest.mark.req("S4-28")
async def test_who_connects_wakes_what_was_held_for_them(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann"), told("bob"), told("ann", tenant_id="acme"))
    await ledger.settle([held_back(claim) for claim in reversed(claims)])
    assert await claimed(ledger) == []
    assert await ledger.wake(["ann"]) == 2
    assert await ledger.wake(["ann"]) == 0, "they are due already"
    woken = await claimed(ledger)
    assert [claim.notification_id for claim in woken] == [claim.notification_id for claim in claims[:2]], "in order"
    assert [claim.attempt for claim in woken] == [1, 1], "waiting has cost no attempt"
    assert await ledger.wake([log_of("acme", "ann"), "nobody"]) == 1
    assert await ledger.wake([]) == 0


@pytest.mark.req("S4-28")
async def test_waking_leaves_alone_what_does_not_wait_for_the_person(ledger: Ledger) -> None:
    later = told("ann", scheduled_for_ms=4_000_000_000_000)
    claims = await claimed(ledger, told("ann"), told("ann"), later)
    await ledger.settle([Settlement(claim=claims[0], verdict=Retry(600.0), note=failed_note())])
    assert await ledger.wake(["ann"]) == 0, "one waits for its retry, one is in a worker's hands, one for its time"


@pytest.mark.req("S4-55")
async def test_what_waits_for_the_person_can_be_looked_at(ledger: Ledger) -> None:
    claims = await claimed(ledger, told("ann"), told("ann"), told("ann"), told("bob"), told("ann", tenant_id="acme"))
    await ledger.append(claims[:1])
    await ledger.settle([held_back(claim) for claim in claims])
    found = await ledger.waiting("ann", 10)
    assert [entry.notification_id for entry in found] == [claim.notification_id for claim in claims[2:0:-1]]
    assert [(entry.seq, entry.user_id, entry.read) for entry in found] == [(0, "ann", False)] * 2
    assert len(await ledger.waiting("ann", 1)) == 1
    assert len(await ledger.waiting(log_of("acme", "ann"), 10)) == 1
    assert await ledger.waiting("nobody", 10) == []


async def test_waking_does_not_take_a_claim_away(engine: Engine, ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.settle([held_back(claim, 0.0)])
    (again,) = await claimed(ledger)
    assert await ledger.wake(["ann"]) == 0
    assert (await engine.only("routes"))["claim_token"] == again.token


async def test_waking_rings(ledger: Ledger) -> None:
    (claim,) = await claimed(ledger, told("ann"))
    await ledger.settle([held_back(claim)])
    waiting = asyncio.create_task(ledger.signal.wait(30.0))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await ledger.wake(["ann"])
        await waiting
