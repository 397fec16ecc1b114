"""Writing notifications down: what is stored, who wins a key, what a repeat is told."""

import asyncio
import json
from typing import Any

import pytest

from carillon.domain.intents import Malformed
from carillon.domain.notifications import Accepted, Conflict, Duplicate, Enrolment, Status
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, notification, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import one_record_per_key

engine = engine_fixture()
ledger = ledger_fixture()


def malformed(entry: str = "1-0", **changes: Any) -> Malformed:
    plain: dict[str, Any] = {"failure_code": "invalid_payload", "failure_message": "no", "raw_fields": {"a": "b"}}
    return Malformed(stream_entry_id=entry, **(plain | changes))


@pytest.mark.req("S1-99", "S1-105", "S1-107", "S1-109")
async def test_a_record_and_its_routes_are_stored_together(engine: Engine, ledger: Ledger) -> None:
    given = enrolment(
        route("ann", message_json='{"text":"hi"}', resolved_locale="en"),
        route("bob", channel="push", route_id="push:user:bob", address="token"),
        tenant_id="t1",
        user_id="ann",
        recipient_user_ids=["ann", "bob"],
        idempotency_key="k",
        idempotency_ttl_seconds=604_800.0,
        request_id="r1",
        trace_id="t1",
        metadata_json='{"x":1}',
        occurred_at_ms=1_700_000_000_123,
        is_bulk=True,
        origin="orders",
    )
    assert await ledger.enrol([given]) == [Accepted(given.notification.notification_id)]
    record = await engine.only("records")
    accepted = record["accepted_at"]
    assert record["idempotency_expires_at"] == accepted + 604_800_000
    assert record["occurred_at"] == 1_700_000_000_123
    assert record["updated_at"] == accepted
    users = record["recipient_user_ids"]
    assert (json.loads(users) if isinstance(users, str) else users) == ["ann", "bob"]
    for row in await engine.rows("routes"):
        assert (row["status"], row["attempt_count"], row["next_attempt_at"]) == ("pending", 0, accepted)
        assert row["resolved_email"] == (row["address"] if row["channel"] == "email" else None)


@pytest.mark.parametrize("spoken", [0, 1, 2])
async def test_what_one_says_and_its_neighbours_do_not_is_its_own(engine: Engine, ledger: Ledger, spoken: int) -> None:
    later = 4_000_000_000_000
    said = {"tenant_id": "t1", "trace_id": "t", "metadata_json": '{"x":1}', "scheduled_for_ms": later}
    batch = [enrolment(**(said if at == spoken else {})) for at in range(3)]
    await ledger.enrol(batch)
    names = ("tenant_id", "trace_id", "metadata_json", "scheduled_for")
    stored = {row["notification_id"]: tuple(row[name] for name in names) for row in await engine.rows("records")}
    expected = [("t1", "t", '{"x":1}', later) if at == spoken else (None,) * 4 for at in range(3)]
    assert [stored[one.notification.notification_id] for one in batch] == expected
    due = {row["notification_id"]: row["next_attempt_at"] == later for row in await engine.rows("routes")}
    assert [due[one.notification.notification_id] for one in batch] == [at == spoken for at in range(3)]


@pytest.mark.req("S1-106")
async def test_a_skipped_route_is_never_due(engine: Engine, ledger: Ledger) -> None:
    skipped = route("ann", status=Status.SKIPPED, skipped_because="no address")
    await ledger.enrol([enrolment(skipped, route("bob"))])
    row = next(row for row in await engine.rows("routes") if row["recipient_ref"] == "user:ann")
    assert (row["status"], row["next_attempt_at"], row["last_error_message"]) == ("skipped", None, "no address")
    assert row["skipped_at"] == row["created_at"]
    assert [claim.recipient_ref for claim in await ledger.claim([want()], 10, "w")] == ["user:bob"]


async def test_scheduled_work_waits_and_ages_from_its_time(engine: Engine, ledger: Ledger) -> None:
    later = 4_000_000_000_000
    await ledger.enrol([enrolment(scheduled_for_ms=later)])
    row = await engine.only("routes")
    assert row["next_attempt_at"] == row["budget_since"] == later
    assert await ledger.claim([want()], 10, "w") == []
    await engine.make_due()
    (claim,) = await ledger.claim([want()], 10, "w")
    assert claim.age_seconds == 0


async def test_past_schedules_are_due_at_once(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(scheduled_for_ms=1_000)])
    assert len(await ledger.claim([want()], 10, "w")) == 1


@pytest.mark.req("S1-55", "S1-56")
async def test_keys_belong_to_their_producer(ledger: Ledger) -> None:
    batch = [enrolment(producer=producer, idempotency_key="k") for producer in ("shop", "bank")]
    assert await ledger.enrol(batch) == [Accepted(each.notification.notification_id) for each in batch]


async def test_without_a_key_nothing_collides(engine: Engine, ledger: Ledger) -> None:
    assert {type(answer) for answer in await ledger.enrol([enrolment() for _ in range(5)])} == {Accepted}
    assert len(await engine.rows("records")) == 5


async def test_a_later_equal_request_is_a_duplicate_and_another_a_conflict(engine: Engine, ledger: Ledger) -> None:
    first = enrolment(route("ann", lane=3), route("bob", lane=3), idempotency_key="k")
    winner = first.notification.notification_id
    await ledger.enrol([first])
    before = [await engine.rows(table) for table in ("records", "routes")]
    same, other = enrolment(idempotency_key="k"), enrolment(idempotency_key="k", request_fingerprint="other")
    assert await ledger.enrol([same, enrolment(), other]) == [
        Duplicate(winner, 3),
        Accepted(f"n-{int(same.notification.notification_id[2:]) + 2:08d}"),
        Conflict(winner),
    ]
    rows = [row for row in await engine.rows("routes") if row["notification_id"] == winner]
    assert rows == before[1]


@pytest.mark.req("S1-57")
async def test_an_expired_key_protects_as_long_as_its_row_lives(engine: Engine, ledger: Ledger) -> None:
    first = enrolment(idempotency_key="k", idempotency_ttl_seconds=1.0)
    await ledger.enrol([first])
    await engine.grow_old("records", "idempotency_expires_at", 100)
    assert await ledger.enrol([enrolment(idempotency_key="k")]) == [Duplicate(first.notification.notification_id, 2)]


@pytest.mark.req("G-05")
async def test_our_own_repeat_is_accepted_and_writes_nothing(engine: Engine, ledger: Ledger) -> None:
    batch = [enrolment(idempotency_key="k"), enrolment()]
    first = await ledger.enrol(batch)
    assert await ledger.enrol(batch) == first
    assert await ledger.enrol([batch[0], batch[0]]) == [first[0], first[0]]
    assert len(await engine.rows("records")) == len(await engine.rows("routes")) == 2


async def test_another_content_under_a_known_id_is_a_conflict(ledger: Ledger) -> None:
    first = enrolment()
    await ledger.enrol([first])
    changed = Enrolment(
        notification(notification_id=first.notification.notification_id, request_fingerprint="x"), first.routes
    )
    assert await ledger.enrol([changed]) == [Conflict(first.notification.notification_id)]


async def test_two_contents_under_one_id_in_one_batch(engine: Engine, ledger: Ledger) -> None:
    first = enrolment()
    key = first.notification.notification_id
    changed = Enrolment(notification(notification_id=key, request_fingerprint="x"), first.routes)
    assert await ledger.enrol([first, changed, first]) == [Accepted(key), Conflict(key), Accepted(key)]
    assert len(await engine.rows("routes")) == 1


@pytest.mark.req("S1-56", "S1-70")
async def test_many_doors_one_key(engine: Engine) -> None:
    await one_record_per_key(engine, rivals=64)


async def test_two_processes_one_key(engine: Engine, ledger: Ledger) -> None:
    async with engine.ledger() as other:
        batches = [[enrolment(idempotency_key=f"k{n}") for n in order] for order in (range(50), reversed(range(50)))]
        answers = await asyncio.gather(ledger.enrol(batches[0]), other.enrol(batches[1]))
    kinds = [type(answer) for batch in answers for answer in batch]
    assert (kinds.count(Accepted), kinds.count(Duplicate)) == (50, 50)


async def test_a_thousand_at_once(ledger: Ledger) -> None:
    answers = await ledger.enrol([enrolment(route("ann"), route("bob")) for _ in range(1000)])
    assert {type(answer) for answer in answers} == {Accepted}
    assert (await ledger.counts())["routes"]["pending"] == 2000


async def test_a_route_named_twice_is_one_route(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route("ann"), route("bob"), route("ann", address="other@example.com"))])
    addresses = {row["recipient_ref"]: row["address"] for row in await engine.rows("routes")}
    assert addresses == {"user:ann": "ann@example.com", "user:bob": "bob@example.com"}
    assert len(await engine.rows("routes")) == 2


async def test_an_empty_batch_is_nothing(ledger: Ledger) -> None:
    assert await ledger.enrol([]) == []
    await ledger.keep_malformed([])


async def test_a_notification_without_routes_can_be_repeated(ledger: Ledger) -> None:
    first = Enrolment(notification(idempotency_key="k"), ())
    await ledger.enrol([first])
    assert await ledger.enrol([enrolment(idempotency_key="k")]) == [Duplicate(first.notification.notification_id, 2)]


@pytest.mark.req("S1-59", "S1-60")
async def test_malformed_intents_are_kept_once(engine: Engine, ledger: Ledger) -> None:
    await ledger.keep_malformed([malformed(), malformed(failure_code="other"), malformed("2-0", producer="shop")])
    await ledger.keep_malformed([malformed(failure_code="later")])
    rows = {row["stream_entry_id"]: row for row in await engine.rows("malformed_intents")}
    assert set(rows) == {"1-0", "2-0"}
    assert rows["1-0"]["failure_code"] == "invalid_payload"
    assert json.loads(rows["1-0"]["raw_fields"]) == {"a": "b"}


async def test_what_is_malformed_may_be_malformed_in_any_way(engine: Engine, ledger: Ledger) -> None:
    raw = {"a\x00": "b\x00", "half": "\ud800", "bytes": b"\xff", "number": float("nan"), "deep": [{"x": "\x00"}]}
    await ledger.keep_malformed([malformed(failure_message="\x00\udfff", raw_fields=raw)])
    kept = json.loads((await engine.only("malformed_intents"))["raw_fields"])
    assert kept["half"] == "\ufffd"
    assert kept["number"] == "nan"
