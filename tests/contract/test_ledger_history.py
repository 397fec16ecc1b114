"""Reading history from both engines: every ended route after its commit, in order, to one process at a time."""

from typing import Any

import asyncpg
import msgspec
import pytest

from carillon.domain.history import Cursor, EndedRoute, Mark
from carillon.ledger.opening import Ledger
from carillon.ledger.postgres.pools import Address
from tests.support.ledger_builders import PROVIDER, bury, enrolment, finish, redrive, retry, route, want
from tests.support.ledger_engines import Engine, PostgresEngine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

FOR_EVER = 1 << 60


async def ended(ledger: Ledger, *, how: Any = finish, **changes: Any) -> str:
    """One notification that has come to its end; its id."""
    given = enrolment(route(), **changes)
    await ledger.enrol([given])
    (claim,) = await ledger.claim([want(1)], 1, "w")
    await ledger.settle([how(claim)])
    return given.notification.notification_id


async def taken(ledger: Ledger, owner: str = "me", *, lease: float = 60.0) -> Cursor:
    cursor = await ledger.take_history(owner, lease, 0.0)
    assert cursor is not None
    return cursor


async def kept(ledger: Ledger, limit: int = 100) -> list[EndedRoute]:
    """What would be copied now, and is then taken as copied."""
    cursor = await taken(ledger)
    endings = await ledger.endings(cursor.mark, cursor.until_us, limit)
    if endings:
        assert await ledger.advance_history("me", endings[-1].mark)
    return endings


async def settled_later(ledger: Ledger) -> None:
    """A clock of milliseconds must move on before the last ending lies in the past."""
    before = (await taken(ledger)).until_us
    while (await taken(ledger)).until_us <= before + 2000:
        pass


@pytest.mark.req("S4-12")
async def test_an_ending_says_how_and_when_and_nothing_private(ledger: Ledger) -> None:
    given = enrolment(route(), tenant_id="t-1", user_id="u-1", notification_type="order.shipped", producer="shop")
    await ledger.enrol([given])
    (claim,) = await ledger.claim([want(1)], 1, "w")
    await ledger.settle([finish(claim)])
    await settled_later(ledger)
    (one,) = await kept(ledger)
    assert (one.notification_type, one.producer, one.tenant_id, one.user_id) == ("order.shipped", "shop", "t-1", "u-1")
    assert (one.channel, one.provider, one.status, one.attempts, one.error) == ("email", PROVIDER, "published", 1, None)
    assert one.accepted_us <= one.ended_us <= one.changed_us
    assert one.delivered_us is None
    assert one.latency_ms == (one.ended_us - one.accepted_us) // 1000
    assert "example.com" not in str(msgspec.to_builtins(one))


async def test_every_way_to_end_is_an_ending_and_nothing_else_is(ledger: Ledger) -> None:
    published, buried = await ended(ledger), await ended(ledger, how=bury)
    await ended(ledger, how=retry)
    waiting = enrolment(route())
    await ledger.enrol([waiting])
    assert await ledger.cancel(waiting.notification.notification_id, None)
    await settled_later(ledger)
    endings = await kept(ledger)
    assert {one.notification_id: (one.status, one.error) for one in endings} == {
        published: ("published", None),
        buried: ("dead_letter", "recipient_gone"),
        waiting.notification.notification_id: ("skipped", "cancelled"),
    }


async def in_order_and_once(ledger: Ledger) -> None:
    expected = [await ended(ledger) for _ in range(7)]
    await settled_later(ledger)
    found: list[EndedRoute] = []
    while batch := await kept(ledger, limit=3):
        assert len(batch) <= 3
        found += batch
    assert [one.notification_id for one in found] == expected
    assert [one.mark for one in found] == sorted(one.mark for one in found)


async def test_batches_go_on_where_the_last_one_ended(ledger: Ledger) -> None:
    await in_order_and_once(ledger)


async def test_a_whole_batch_of_one_moment_is_read_in_pieces(ledger: Ledger, engine: Engine) -> None:
    expected = {await ended(ledger) for _ in range(7)}
    await engine.execute("UPDATE routes SET updated_at = (SELECT min(updated_at) FROM routes)")
    await settled_later(ledger)
    found = []
    while batch := await kept(ledger, limit=3):
        found += [one.notification_id for one in batch]
    assert sorted(found) == sorted(expected)


async def test_what_ends_again_comes_again(ledger: Ledger) -> None:
    name = await ended(ledger, how=bury)
    await settled_later(ledger)
    (first,) = await kept(ledger)
    assert await redrive(ledger, (name, first.route_id)) == 1
    await settled_later(ledger)
    assert not await kept(ledger)
    (claim,) = await ledger.claim([want(1)], 1, "w")
    await ledger.settle([finish(claim)])
    await settled_later(ledger)
    (again,) = await kept(ledger)
    assert (again.notification_id, again.status) == (name, "published")
    assert again.changed_us > first.changed_us


async def test_one_process_keeps_history_until_its_lease_ends(ledger: Ledger, engine: Engine) -> None:
    await taken(ledger, "me")
    assert await ledger.take_history("you", 60.0, 0.0) is None
    await taken(ledger, "me")
    await engine.grow_old("history_cursor", "held_until", 61)
    await taken(ledger, "you")


async def who_lost_the_lease_changes_nothing(ledger: Ledger, engine: Engine) -> None:
    await taken(ledger, "me")
    await engine.grow_old("history_cursor", "held_until", 61)
    await taken(ledger, "you")
    assert await ledger.advance_history("you", Mark(1_000_000, "n", "r"))
    assert not await ledger.advance_history("me", Mark(500_000, "n", "r"))
    assert (await taken(ledger, "you")).mark == Mark(1_000_000, "n", "r")


async def test_who_lost_the_lease_changes_nothing(ledger: Ledger, engine: Engine) -> None:
    await who_lost_the_lease_changes_nothing(ledger, engine)


async def test_rewinding_copies_everything_again_and_stops_the_running_copier(ledger: Ledger) -> None:
    name = await ended(ledger)
    await settled_later(ledger)
    (one,) = await kept(ledger)
    await ledger.rewind_history(one.changed_us - 1_000_000)
    assert not await ledger.advance_history("me", Mark(FOR_EVER // 1000))
    assert [again.notification_id for again in await kept(ledger)] == [name]


CONTROLS = {
    ("postgres", "fence"): ("advance_history", "WHERE owner = :owner", "WHERE :owner <> ''"),
    ("sqlite", "fence"): ("advance_history", "WHERE owner = :owner", "WHERE :owner <> ''"),
    ("postgres", "place"): ("endings", "      > (timestamptz", "      >= (timestamptz"),
    ("sqlite", "place"): (
        "endings",
        "> (:changed_us / 1000, :notification_id, :route_id)",
        ">= (:changed_us / 1000, '', '')",
    ),
}


@pytest.mark.parametrize("guard", ["fence", "place"])
async def test_without_a_guard_it_is_missed(engine: Engine, guard: str) -> None:
    name, old, new = CONTROLS[engine.dialect, guard]
    async with engine.ledger(statements=engine.statements({name: (old, new)})) as ledger:
        if guard == "fence":
            with pytest.raises(AssertionError):
                await who_lost_the_lease_changes_nothing(ledger, engine)
        else:
            await ended(ledger)
            await settled_later(ledger)
            assert [one.mark for one in await kept(ledger)] == [one.mark for one in await kept(ledger)] != []


async def _late_commit(ledger: Ledger, dsn: str) -> list[str]:
    """One change reads the clock and commits after a second change, which was read meanwhile; what was copied."""
    slow = await ended(ledger)
    await settled_later(ledger)
    await kept(ledger)
    writer: asyncpg.Connection[Any] = await Address.parse(dsn).connect("settle")
    try:
        change = writer.transaction()
        await change.start()
        await writer.execute("UPDATE routes SET updated_at = clock_timestamp() WHERE notification_id = $1", slow)
        quick = await ended(ledger)
        await settled_later_or_held(ledger)
        found = [one.notification_id for one in await kept(ledger)]
        await change.commit()
    finally:
        await writer.close()
    await settled_later(ledger)
    found += [one.notification_id for one in await kept(ledger)]
    assert quick in found
    return [name for name in found if name == slow]


async def settled_later_or_held(ledger: Ledger) -> None:
    """As settled_later, where a change under way may hold the time back."""
    for _ in range(20):
        await taken(ledger)


async def test_a_change_that_commits_late_is_not_passed_by(ledger_dsn: str) -> None:
    async with PostgresEngine(ledger_dsn).ledger() as ledger:
        assert len(await _late_commit(ledger, ledger_dsn)) == 1


async def test_without_looking_at_what_is_under_way_it_is_lost(ledger_dsn: str) -> None:
    engine = PostgresEngine(ledger_dsn)
    blind = engine.statements({"history_horizon": ("min(xact_start)", "max(clock_timestamp())")})
    async with engine.ledger(statements=blind) as ledger:
        assert not await _late_commit(ledger, ledger_dsn)
