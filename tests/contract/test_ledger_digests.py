"""Digests in the ledger: events join, a full digest closes, replicas agree, and each event is told in one digest."""

import asyncio
import json
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from carillon.domain.admin import WaitingChange
from carillon.domain.digests import DigestEntry, DueDigest, GatheredEvent
from carillon.domain.events import Event, Trouble
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance, Collapse, Enrolment, Status
from carillon.intake.digests import DigestCloser
from carillon.ledger.opening import Ledger
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import enrolment, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

FAR_MS = 4_000_000_000_000
_ids = count(1)


def event(
    person: str = "ann", *, key: str = "comments", most: int = 100, closes: int = FAR_MS, **changes: Any
) -> Enrolment:
    waits = route(person, status=Status.SKIPPED, skipped_because="gathered in a digest")
    entry = DigestEntry(
        digest_id=f"d-{next(_ids):06}",
        audience=f"user:{person}",
        channels="email",
        key=key,
        closes_at_ms=closes,
        most=most,
        size=changes.pop("size", 10),
        intent_json="{}",
    )
    made = enrolment(waits, **changes)
    return Enrolment(made.notification, made.routes, None, (entry,))


def name(made: Enrolment) -> str:
    return made.notification.notification_id


def members(due: list[DueDigest]) -> list[set[str]]:
    return [{one.notification_id for one in digest.events} for digest in due]


@pytest.mark.req("P-303")
async def test_events_wait_in_one_digest_and_their_stories_name_it(engine: Engine, ledger: Ledger) -> None:
    one, two = event(), event()
    await ledger.enrol([one])
    await ledger.enrol([two])
    assert await ledger.claim([want()], 10, "w") == []
    (row,), total = await ledger.digests({}, 10, 0)
    assert (row["event_count"], total, row["told_at"]) == (2, 1, None)
    routes = await engine.rows("routes")
    assert {(row["status"], row["last_error_classification"]) for row in routes} == {("skipped", "digest")}
    assert {r["last_error_message"] for r in routes} == {f"told in digest {row['digest_id']}"}


@pytest.mark.req("P-767")
async def test_the_story_of_an_event_that_was_replaced_says_so(engine: Engine, ledger: Ledger) -> None:
    score = Collapse("score", "user:ann")
    first, other, second = (replace(event(), collapse=score), event(), replace(event(), collapse=score))
    await ledger.enrol([first, other])
    await ledger.enrol([second])

    async def gate(made: Enrolment) -> tuple[str, str]:
        (row,) = [row for row in await engine.rows("routes") if row["notification_id"] == name(made)]
        return row["last_error_classification"], row["last_error_message"]

    assert await gate(first) == ("collapsed", f"replaced by notification {name(second)}")
    assert [(await gate(one))[0] for one in (other, second)] == ["digest", "digest"]
    # The next replaces an event that is told already: that story stays.
    full = replace(event(most=3), collapse=score)
    await ledger.enrol([full])
    (due,) = await ledger.close_digests(10, 60.0)
    assert {one.notification_id for one in due.events} == {name(other), name(full)}
    await ledger.enrol([replace(event(), collapse=score)])
    assert (await gate(full))[0] == "digest"


@pytest.mark.req("P-303")
async def test_another_person_key_channel_or_tenant_is_another_digest(ledger: Ledger) -> None:
    await ledger.enrol([event(), event("bob"), event(key="likes"), event(tenant_id="acme")])
    _, total = await ledger.digests({}, 10, 0)
    assert total == 4
    _, acme = await ledger.digests({"tenant_id": "acme"}, 10, 0)
    assert acme == 1


@pytest.mark.req("P-303")
async def test_a_full_digest_closes_and_the_next_event_opens_another(ledger: Ledger) -> None:
    events = [event(most=3) for _ in range(7)]
    await ledger.enrol(events)
    due = await ledger.close_digests(10, 60.0)
    assert sorted(len(found) for found in members(due)) == [3, 3]
    assert set.union(*members(due)) == {name(one) for one in events[:6]}
    assert await ledger.close_digests(10, 60.0) == []


@pytest.mark.req("P-303")
async def test_much_data_closes_a_digest(ledger: Ledger) -> None:
    await ledger.enrol([event(size=200_000), event(size=100_000), event()])
    assert [len(found) for found in members(await ledger.close_digests(10, 60.0))] == [2]


@pytest.mark.req("P-303")
async def test_a_repeated_event_joins_once(ledger: Ledger) -> None:
    one = event(idempotency_key="k")
    await ledger.enrol([one])
    await ledger.enrol([one])
    (row,), _ = await ledger.digests({}, 10, 0)
    assert row["event_count"] == 1


@pytest.mark.req("P-303")
async def test_a_closed_digest_keeps_its_events_until_it_is_told(ledger: Ledger) -> None:
    one, two = event(closes=1), event()
    await ledger.enrol([one])
    (first,) = await ledger.close_digests(10, 0.0)
    await ledger.enrol([two])
    (again,) = await ledger.close_digests(10, 60.0)
    assert again == first
    assert members([again]) == [{name(one)}]
    assert await ledger.close_digests(10, 60.0) == []
    await ledger.told_digest(first.digest_id, None)
    await ledger.told_digest(first.digest_id, "too late")
    (open_,), total = await ledger.digests({"open": True}, 10, 0)
    assert (open_["event_count"], total) == (1, 1)
    told, _ = await ledger.digests({"open": False}, 10, 0)
    assert [row["error"] for row in told] == [None]


@pytest.mark.req("P-303", "P-301")
async def test_what_expired_or_was_replaced_is_left_out(engine: Engine, ledger: Ledger) -> None:
    late, gone, fresh = event(closes=1, expires_at_ms=1), event(), event()
    await ledger.enrol([late, gone, fresh])
    await engine.execute(f"UPDATE records SET stopped = 'cancelled' WHERE notification_id = '{name(gone)}'")  # noqa: S608
    assert members(await ledger.close_digests(10, 60.0)) == [{name(fresh)}]
    gates = {row["notification_id"]: row["last_error_classification"] for row in await engine.rows("routes")}
    assert gates[name(late)] == "expired"
    assert gates[name(fresh)] == "digest"


@pytest.mark.req("P-303")
async def test_replicas_open_one_digest_and_no_event_is_lost_or_told_twice(engine: Engine) -> None:
    async with engine.ledger() as one, engine.ledger() as other:
        events = [event(most=7) for _ in range(60)]
        told: list[str] = []

        async def put(ledger: Ledger, mine: list[Enrolment]) -> None:
            for each in mine:
                await ledger.enrol([each])

        async def close(ledger: Ledger) -> None:
            for _ in range(20):
                for digest in await ledger.close_digests(3, 60.0):
                    told.extend(event.notification_id for event in digest.events)
                    await ledger.told_digest(digest.digest_id, None)
                await asyncio.sleep(0.005)

        await asyncio.gather(put(one, events[:30]), put(other, events[30:]), close(one), close(other))
        await engine.execute("UPDATE digests SET closes_at = opened_at")
        await close(one)
        assert sorted(told) == sorted(name(each) for each in events)


@pytest.mark.req("P-303")
async def test_retention_keeps_the_events_of_an_open_digest(engine: Engine, ledger: Ledger) -> None:
    waiting, told = event(), event("bob", closes=1)
    await ledger.enrol([waiting, told])
    (due,) = await ledger.close_digests(10, 60.0)
    await ledger.told_digest(due.digest_id, None)
    for table, column in (("records", "accepted_at"), ("digests", "told_at")):
        await engine.grow_old(table, column, 1000)
    await ledger.prune(500.0, 500.0, 100)
    assert [row["notification_id"] for row in await engine.rows("records")] == [name(waiting)]
    assert (await ledger.digests({}, 10, 0))[1] == 1
    assert json.loads((await engine.rows("records"))[0]["payload_json"])


@pytest.mark.req("P-303")
async def test_a_digest_that_cannot_be_told_keeps_no_other_from_it() -> None:
    """One whose intent cannot be read comes first in the batch; the others are told all the same."""
    said: list[Event] = []
    due = [
        DueDigest(digest_id=name, digest_key="k", intent_json=text, events=(GatheredEvent("n", "{}"),))
        for name, text in (("bad", "{"), ("empty", "{}"))
    ]
    told: list[tuple[str, str | None]] = []

    class Digests:
        async def close_digests(self, limit: int, lease_seconds: float) -> list[DueDigest]:
            del limit, lease_seconds
            return [*due, DueDigest(digest_id="left", digest_key="k", intent_json="{}")]

        async def told_digest(self, digest_id: str, error: str | None) -> None:
            told.append((digest_id, error))

    async def accept(intent: Intent) -> Acceptance:
        raise AssertionError(intent)

    closer = DigestCloser(Digests(), accept, ManualClock(), said.append, lease_seconds=1.0)
    assert await closer.tell_due() == 3
    assert told == [("left", "no event was left to tell")]
    assert [one.error.partition(":")[0] for one in said if isinstance(one, Trouble)] == ["bad", "empty"]


@pytest.mark.req("P-1108")
async def test_the_story_of_an_event_that_leaves_a_full_digest_says_so(engine: Engine, ledger: Ledger) -> None:
    """A digest is full a moment before a process takes it; what is replaced in between is not told in it."""
    score = Collapse("score", "user:ann")
    first, other = replace(event(most=2), collapse=score), event(most=2)
    await ledger.enrol([first, other])
    second = replace(event(), collapse=score)
    await ledger.enrol([second])
    assert members(await ledger.close_digests(10, 60.0)) == [{name(other)}]
    gates = {row["notification_id"]: row["last_error_classification"] for row in await engine.rows("routes")}
    assert gates == {name(first): "collapsed", name(other): "digest", name(second): "digest"}


@pytest.mark.req("P-1110")
async def test_only_the_events_of_a_digest_that_cannot_be_told_say_so(engine: Engine, ledger: Ledger) -> None:
    bad, good = event(closes=1), event("bob", closes=1)
    await ledger.enrol([bad, good])
    for due, error in zip(await ledger.close_digests(10, 60.0), ("switched off", None), strict=True):
        await ledger.told_digest(due.digest_id, error)
        await ledger.told_digest(due.digest_id, "too late")
    said = sorted(str(row["last_error_message"]).partition(" ")[0] for row in await engine.rows("routes"))
    assert said == ["digest", "told"]


@pytest.mark.req("P-1211")
@pytest.mark.parametrize("gate", ["cancelled", "expired"])
async def test_the_story_of_who_was_told_stays_when_others_no_longer_wait(
    engine: Engine, ledger: Ledger, gate: str
) -> None:
    """One notification waits in the digests of two people, and the first of them is told."""
    made, bob = event(user_id="u"), event("bob", closes=1)
    both = replace(made, routes=(*made.routes, *bob.routes), digests=(*made.digests, *bob.digests))
    await ledger.enrol([both])
    (due,) = await ledger.close_digests(10, 60.0)
    await ledger.told_digest(due.digest_id, None)
    if gate == "cancelled":
        assert await ledger.cancel(name(both)) == 1
    else:
        assert (await ledger.change_waiting({"user_id": "u"}, WaitingChange(expires_at_ms=1))).done == 1
        await ledger.hasten(FAR_MS / 1000)
        assert members(await ledger.close_digests(10, 60.0)) == [set()]
    gates = {row["recipient_ref"]: row["last_error_classification"] for row in await engine.rows("routes")}
    assert gates == {"user:ann": gate, "user:bob": "digest"}
