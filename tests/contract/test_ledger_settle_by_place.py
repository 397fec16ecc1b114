"""Settling by the place of a row: the place is only a hint, and the token decides whether the row changes."""

import msgspec

from carillon.domain.claims import Settled
from carillon.domain.verdicts import Finish
from tests.support.ledger_builders import enrolment, finish, note, retry, route, settlement, want
from tests.support.ledger_engines import PostgresEngine
from tests.support.ledger_properties import claim_one, place_of_another_row_is_left_alone


async def test_a_place_that_is_anothers_by_now(ledger_dsn: str) -> None:
    await place_of_another_row_is_left_alone(PostgresEngine(ledger_dsn))


async def test_the_negative_control_notices(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    blind = engine.statements({"settle_finished": ("AND (r.ticket = given.token OR r.claim_token = given.token)", "")})
    noticed = False
    try:
        await place_of_another_row_is_left_alone(engine, blind)
    except AssertionError:
        noticed = True
    assert noticed


async def test_a_claim_whose_row_has_moved_takes_the_long_way(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment()])
        claim = await claim_one(ledger)
        await engine.execute("UPDATE routes SET recipient_ref = recipient_ref")
        assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
        assert (await engine.only("attempts_told"))["provider_message_id"] == f"m-{claim.token}"


async def test_a_renewed_lease_of_a_live_stream_knows_its_new_place(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    short = engine.statements({"settle": ("UPDATE routes r", "UPDATE no_such_table r")})
    async with engine.ledger(statements=short) as ledger:
        await ledger.enrol([enrolment(route(channel="sse", provider="sse"))])
        (claim,) = await ledger.claim([want(provider="sse")], 1, "w")
        before = claim.place
        assert await ledger.extend([claim]) == []
        assert claim.place != before
        assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]


async def test_both_ways_write_the_same(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment(route("ann")), enrolment(route("ann"))])
        short, long = await ledger.claim([want()], 10, "w")
        long.place = None
        said = [msgspec.structs.replace(finish(claim), note=note(provider_message_id="m")) for claim in (short, long)]
        assert await ledger.settle(said) == [Settled.APPLIED] * 2
        for table, own in (
            (
                "routes",
                {
                    "notification_id",
                    "created_at",
                    "budget_since",
                    "published_at",
                    "updated_at",
                    "finished_by",
                    "claimed_at",
                    "took_ms",
                },
            ),
            ("attempts_told", {"notification_id", "attempt_id", "started_at"}),
        ):
            first, second = [
                {name: value for name, value in row.items() if name not in own} for row in await engine.rows(table)
            ]
            assert first == second


async def test_a_mixed_batch_is_one_commit_and_each_is_answered(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    async with engine.ledger() as ledger:
        await ledger.enrol([enrolment(route(name)) for name in ("ann", "bob", "cid", "dan")])
        ann, bob, cid, dan = await ledger.claim([want()], 10, "w")
        await ledger.settle([finish(dan)])
        batch = [finish(ann), retry(bob), settlement(cid, Finish()), finish(dan)]
        assert await ledger.settle(batch) == [Settled.APPLIED] * 4, "a repeat gets the answer of the first"
        rows = {row["recipient_ref"]: row for row in await engine.rows("routes")}
        assert [rows[f"user:{name}"]["status"] for name in ("ann", "bob", "cid", "dan")] == [
            "published",
            "failed",
            "published",
            "published",
        ]
        assert len(await engine.rows("attempts_told")) == 4
