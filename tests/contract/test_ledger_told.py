"""A plain success has no row in `attempts`: its route tells it, once, to everybody who asks."""

import asyncio

from carillon.domain.claims import Settled
from carillon.domain.receipts import ReceiptKind
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture
from tests.support.ledger_mutants import Mutants, clauses_needed
from tests.support.ledger_properties import claim_one
from tests.support.receipt_builders import RULES, SECOND, delivered, effect, failed, publish, receipt, resend, sent_as

engine = engine_fixture()
ledger = ledger_fixture()


async def test_a_success_is_told_and_not_written_down(engine: Engine, ledger: Ledger) -> None:
    given = enrolment()
    await ledger.enrol([given])
    claim = await claim_one(ledger)
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert await engine.rows("attempts") == []
    story = await ledger.story(given.notification.notification_id, None)
    assert story is not None
    (attempt,) = story.attempts
    assert attempt["attempt_id"] == claim.token
    assert (attempt["route_id"], attempt["attempt"], attempt["provider"]) == (claim.route_id, 1, claim.provider)
    assert (attempt["outcome"], attempt["verdict"], attempt["settled"]) == ("sent", "finish", "applied")
    assert (attempt["provider_message_id"], attempt["duration_ms"]) == (f"m-{claim.token}", 12.0)
    assert [attempt[name] for name in ("classification", "error", "delay_ms")] == [None] * 3
    assert attempt["started_at"] < story.routes[0]["published_at"]


async def test_failures_before_it_stay_rows(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    first = await claim_one(ledger)
    await ledger.settle([retry(first)])
    await engine.make_due()
    second = await claim_one(ledger)
    await ledger.settle([finish(second)])
    assert [row["attempt_id"] for row in await engine.rows("attempts")] == [first.token]
    story = await ledger.story(first.notification_id, None)
    assert story is not None
    assert [(each["attempt"], each["verdict"]) for each in story.attempts] == [(1, "retry"), (2, "finish")]


async def a_repeat_is_told_once(engine: Engine, ledger: Ledger) -> None:
    """The COMMIT's answer was lost: the same settlement comes again, alone and in a batch, and is applied."""
    await ledger.enrol([enrolment(route("ann"), route("bob"))])
    ann, bob = await ledger.claim([want()], 10, "w")
    for batch in ([finish(ann)], [finish(ann)], [finish(ann), finish(bob)], [retry(bob), finish(ann)]):
        settled = await ledger.settle(batch)
        assert settled[batch.index(finish(ann))] is Settled.APPLIED
    told = await engine.rows("attempts_told")
    assert [(row["attempt_id"], row["settled"]) for row in told if row["attempt_id"] == ann.token] == [
        (ann.token, "applied")
    ]


async def test_a_repeat_is_told_once(engine: Engine, ledger: Ledger) -> None:
    await a_repeat_is_told_once(engine, ledger)


async def test_a_failure_under_the_same_claim_changes_nothing(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    await ledger.settle([finish(claim)])
    before = await engine.only("routes")
    assert await ledger.settle([retry(claim)]) == [Settled.STALE]
    assert await engine.only("routes") == before


async def test_a_late_success_beside_the_heirs_is_a_row(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    late = await claim_one(ledger)
    await engine.expire_leases()
    heir = await claim_one(ledger)
    assert await ledger.settle([finish(heir)]) == [Settled.APPLIED]
    assert await ledger.settle([finish(late)]) == [Settled.STALE]
    assert {row["attempt_id"]: row["settled"] for row in await engine.rows("attempts_told")} == {
        heir.token: "applied",
        late.token: "stale",
    }
    assert (await engine.only("attempts"))["attempt_id"] == late.token


async def a_reopened_route_keeps_what_it_told(engine: Engine, ledger: Ledger) -> None:
    """The vendor says later that it failed: the attempt becomes a row, and the next success is told beside it."""
    claim = await publish(ledger, "m-1")
    assert await effect(ledger, failed("m-1")) == "failed_over"
    rows, told = await engine.rows("attempts"), await engine.rows("attempts_told")
    assert (len(rows), len(told)) == (1, 1)
    kept = rows[0]
    assert (kept["attempt_id"], kept["provider_message_id"], kept["settled"]) == (claim.token, "m-1", "applied")
    assert (kept["attempt"], kept["verdict"], kept["duration_ms"]) == (1, "finish", 12.0)
    again = await resend(ledger, "s-1")
    both = sorted((row["attempt_id"], row["provider"]) for row in await engine.rows("attempts_told"))
    assert both == [(claim.token, claim.provider), (again.token, SECOND)]
    assert await ledger.settle([sent_as(claim, "m-1")]) == [Settled.APPLIED], "a repeat gets the answer of the first"
    assert len(await engine.rows("attempts_told")) == 2
    # The first message arrived after all: a word about it still finds its route.
    assert await effect(ledger, delivered("m-1")) == "noted"


async def test_a_reopened_route_keeps_what_it_told(engine: Engine, ledger: Ledger) -> None:
    await a_reopened_route_keeps_what_it_told(engine, ledger)


async def test_a_complaint_keeps_what_the_route_told(engine: Engine, ledger: Ledger) -> None:
    claim = await publish(ledger, "m-1")
    assert await effect(ledger, receipt(ReceiptKind.COMPLAINED, "m-1")) == "buried"
    assert (await engine.only("attempts"))["attempt_id"] == claim.token
    assert len(await engine.rows("attempts_told")) == 1


async def test_words_about_a_published_route_change_nothing_that_it_tells(engine: Engine, ledger: Ledger) -> None:
    await publish(ledger, "m-1")
    before = await engine.only("attempts_told")
    assert await effect(ledger, delivered("m-1"), receipt(ReceiptKind.CLICKED, "m-1")) == "noted"
    assert await engine.only("attempts_told") == before
    assert await engine.rows("attempts") == []


async def test_an_early_word_finds_the_message_once_it_is_told(ledger: Ledger) -> None:
    await ledger.enrol([enrolment()])
    claim = await claim_one(ledger)
    (waiting,) = await ledger.take_receipts([delivered("m-1")], RULES)
    assert waiting.effect == "waiting"
    await ledger.settle([sent_as(claim, "m-1")])
    (taken,) = await ledger.take_waiting_receipts(RULES, 10)
    assert (taken.effect, taken.notification_id) == ("noted", claim.notification_id)


async def test_a_message_id_named_twice_means_the_later_attempt(ledger: Ledger) -> None:
    first, second = await publish(ledger, "m-1"), await publish(ledger, "m-1")
    (taken,) = await ledger.take_receipts([delivered("m-1")], RULES)
    assert first.token < second.token
    assert taken.notification_id == second.notification_id


async def test_the_newest_outcomes_are_told_and_written(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(route(name)) for name in ("ann", "bob", "cid")])
    ann, bob, cid = await ledger.claim([want()], 10, "w")
    await ledger.settle([retry(ann), finish(bob)])
    await asyncio.sleep(0.02)
    await ledger.settle([finish(cid)])
    found = await ledger.recent_outcomes(None, 10)
    assert sorted(row["outcome"] for row in found) == ["sent", "sent", "unavailable"]
    (last,) = await ledger.recent_outcomes(None, 1)
    assert last["outcome"] == "sent"


async def test_without_records_of_attempts_nothing_is_told(engine: Engine) -> None:
    async with engine.ledger(record_attempts=False) as ledger:
        await ledger.enrol([enrolment()])
        await ledger.settle([finish(await claim_one(ledger))])
        assert await engine.rows("attempts_told") == []


MUTANTS: Mutants = {
    "a repeat is noted again": (
        a_repeat_is_told_once,
        {"settle": ("AND r.finished_by IS DISTINCT FROM judged.token", "")},
        {"settle_note": ("AND finished_by = :token", "AND 0")},
    ),
    "a repeat does not find its token": (
        a_repeat_is_told_once,
        {"settle": ("AND r.finished_by = judged.token AND", "AND FALSE AND")},
        {"settle_answered": ("AND finished_by = :token", "AND 0")},
    ),
    "a reopened route forgets": (
        a_reopened_route_keeps_what_it_told,
        {"receipts_change": ("given.status <> 'published' AND r.finished_by", "FALSE AND r.finished_by")},
        {"receipts_keep": ("AND finished_by IS NOT NULL", "AND 0")},
    ),
    "a reopened route tells it twice": (
        a_reopened_route_keeps_what_it_told,
        {"receipts_change": ("CASE WHEN given.status = 'published' THEN r.finished_by END", "r.finished_by")},
        {"receipts_change": ("CASE WHEN :status = 'published' THEN finished_by END", "finished_by")},
    ),
}

test_each_clause_is_needed = clauses_needed(MUTANTS)


async def test_a_word_of_a_vendor_is_one_look_into_each_index(ledger_dsn: str) -> None:
    """However many routes there are: a callback never reads the tables from end to end."""
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        for _ in range(4):
            await ledger.enrol([enrolment() for _ in range(500)])
            claims = await ledger.claim([want(500)], 500, "w")
            await ledger.settle([sent_as(claim, f"m-{claim.token}") for claim in claims])
        await engine.execute("ANALYZE")
        asked = engine.statements()["receipts_messages"]
        for placeholder, value in (("$1::int[]", "'{0}'::int[]"), ("$2::text[]", "'{mailer}'::text[]")):
            asked = asked.replace(placeholder, value)
        plan = await engine.execute("EXPLAIN " + asked.replace("$3::text[]", "'{m-7}'::text[]"))
        said = "\n".join(str(line["QUERY PLAN"]) for line in plan)
        assert "routes_message_idx" in said
        assert "Seq Scan on routes" not in said
