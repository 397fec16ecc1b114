"""Expiry and collapse in the ledger: what a claim learns, what a newer notification replaces, and who wins a race."""

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from carillon.domain.claims import Settled
from carillon.domain.decide import EXPIRY, barred
from carillon.domain.digests import DigestEntry, Overflow, ThrottleEntry, read_throttle
from carillon.domain.notifications import Accepted, Collapse, Duplicate, Enrolment
from carillon.domain.verdicts import Skip
from carillon.ledger.opening import Ledger, open_ledger
from carillon.ledger.sealing import Seals
from tests.support.ledger_builders import defer, enrolment, finish, retry, route, settlement, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ledger_properties import claim_one

engine = engine_fixture()
ledger = ledger_fixture()

SCORE = Collapse("score", "user:ann")
HOUR_MS = 3_600_000
FAR_MS = 4_000_000_000_000


async def states(engine: Engine) -> dict[str, tuple[str, str | None]]:
    return {row["notification_id"]: (row["status"], row["last_error_message"]) for row in await engine.rows("routes")}


@pytest.mark.req("P-301")
async def test_a_claim_knows_how_long_it_may_still_be_sent(ledger: Ledger) -> None:
    await ledger.enrol([enrolment(expires_at_ms=FAR_MS)])
    claim = await claim_one(ledger)
    assert claim.expires_in is not None
    assert claim.expires_in > 0
    assert barred(claim) is None


@pytest.mark.req("P-301")
async def test_what_has_expired_is_skipped_and_no_attempt_is_counted(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(expires_at_ms=1)])
    claim = await claim_one(ledger)
    assert barred(claim) == EXPIRY
    assert await ledger.settle([settlement(claim, EXPIRY)]) == [Settled.APPLIED]
    row = await engine.only("routes")
    assert (row["status"], row["attempt_count"], row["last_error_classification"]) == ("skipped", 0, "expired")
    assert row["skipped_at"] == row["updated_at"]
    assert (row["next_attempt_at"], row["dead_lettered_at"]) == (None, None)
    assert not await engine.rows("attempts")
    assert not await engine.rows("dead_letters")


@pytest.mark.req("P-301")
async def test_what_expires_before_its_time_is_due_when_it_expires(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(scheduled_for_ms=FAR_MS, expires_at_ms=FAR_MS - HOUR_MS)])
    assert (await engine.only("routes"))["next_attempt_at"] == FAR_MS - HOUR_MS


@pytest.mark.req("P-301")
async def test_a_second_settlement_after_a_skip_is_stale(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(expires_at_ms=1)])
    claim = await claim_one(ledger)
    await ledger.settle([settlement(claim, EXPIRY)])
    assert await ledger.settle([finish(claim)]) == [Settled.STALE]
    assert (await engine.only("routes"))["status"] == "skipped"


@pytest.mark.req("P-302")
async def test_a_newer_one_takes_the_place_of_what_waits(engine: Engine, ledger: Ledger) -> None:
    old, new = enrolment(collapse=SCORE, scheduled_for_ms=FAR_MS), enrolment(collapse=SCORE)
    await ledger.enrol([old])
    (answer,) = await ledger.enrol([new])
    assert isinstance(answer, Accepted)
    assert answer.replaced == (old.notification.notification_id,)
    found = await states(engine)
    newer = new.notification.notification_id
    assert found[old.notification.notification_id] == ("skipped", f"replaced by notification {newer}")
    assert found[newer] == ("pending", None)
    assert [claim.notification_id for claim in await ledger.claim([want()], 10, "w")] == [newer]


@pytest.mark.req("P-302")
async def test_another_person_key_or_tenant_is_left_alone(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol(
        [
            enrolment(collapse=SCORE),
            enrolment(collapse=Collapse("score", "user:bob")),
            enrolment(collapse=Collapse("weather", "user:ann")),
            enrolment(collapse=SCORE, tenant_id="acme"),
            enrolment(),
        ]
    )
    assert {status for status, _ in (await states(engine)).values()} == {"pending"}


@pytest.mark.req("P-302")
async def test_of_several_in_one_batch_the_last_stays(engine: Engine, ledger: Ledger) -> None:
    batch = [enrolment(collapse=SCORE) for _ in range(3)]
    await ledger.enrol(batch)
    found = await states(engine)
    assert [found[each.notification.notification_id][0] for each in batch] == ["skipped", "skipped", "pending"]


@pytest.mark.req("P-302")
async def test_what_is_being_sent_is_sent_and_not_tried_again(engine: Engine, ledger: Ledger) -> None:
    old = enrolment(collapse=SCORE)
    await ledger.enrol([old])
    claim = await claim_one(ledger)
    await ledger.enrol([enrolment(collapse=SCORE, scheduled_for_ms=FAR_MS)])
    assert (await states(engine))[old.notification.notification_id][0] == "pending"
    await ledger.settle([retry(claim, 0.0)])
    again = await claim_one(ledger)
    assert again.notification_id == old.notification.notification_id
    verdict = barred(again)
    assert isinstance(verdict, Skip)
    assert verdict.gate == "collapsed"


@pytest.mark.req("P-302")
async def test_a_call_that_succeeds_meanwhile_counts(engine: Engine, ledger: Ledger) -> None:
    old = enrolment(collapse=SCORE)
    await ledger.enrol([old])
    claim = await claim_one(ledger)
    await ledger.enrol([enrolment(collapse=SCORE, scheduled_for_ms=FAR_MS)])
    assert await ledger.settle([finish(claim)]) == [Settled.APPLIED]
    assert (await states(engine))[old.notification.notification_id][0] == "published"


@pytest.mark.req("P-302")
async def test_a_repeat_of_the_older_one_does_not_come_back(engine: Engine, ledger: Ledger) -> None:
    old, new = enrolment(collapse=SCORE, idempotency_key="k"), enrolment(collapse=SCORE)
    await ledger.enrol([old])
    await ledger.enrol([new])
    await ledger.enrol([old])
    found = await states(engine)
    assert found[new.notification.notification_id][0] == "pending"
    assert found[old.notification.notification_id][0] == "skipped"


@pytest.mark.req("P-302")
async def test_of_two_replicas_at_once_one_notification_stays_and_none_is_sent_twice(engine: Engine) -> None:
    async with engine.ledger() as one, engine.ledger() as other:
        for _ in range(10):
            batches = [[enrolment(collapse=SCORE)] for _ in range(8)]

            async def work(ledger: Ledger) -> list[str]:
                claims = await ledger.claim([want()], 1, "w")
                live = [claim for claim in claims if barred(claim) is None]
                await ledger.settle([finish(claim) if claim in live else defer(claim) for claim in claims])
                return [claim.notification_id for claim in live]

            pairs = zip((one, other) * 4, batches, strict=True)
            enrolling = asyncio.gather(*(ledger.enrol(batch) for ledger, batch in pairs))
            claimed = await asyncio.gather(work(one), work(other))
            await enrolling
            sent = [name for names in claimed for name in names]
            found = await states(engine)
            ids = [batch[0].notification.notification_id for batch in batches]
            waiting = [name for name in ids if found[name][0] in ("pending", "failed")]
            published = [name for name in ids if found[name][0] == "published"]
            assert sorted(name for name in sent if name in ids) == sorted(published)
            assert len(waiting) <= 1
            await engine.empty()
            await engine.execute("DELETE FROM collapses")


@pytest.mark.req("P-302")
async def test_old_keys_are_pruned_with_their_notifications(engine: Engine, ledger: Ledger) -> None:
    await ledger.enrol([enrolment(collapse=SCORE)])
    await ledger.settle([finish(await claim_one(ledger))])
    await ledger.enrol([enrolment(route("bob"), collapse=Collapse("score", "user:bob"), scheduled_for_ms=FAR_MS)])
    for table, column in (("records", "accepted_at"), ("collapses", "updated_at")):
        await engine.grow_old(table, column, 1000)
    await ledger.prune(500.0, 500.0, 100)
    assert [row["audience"] for row in await engine.execute("SELECT audience FROM collapses")] == ["user:bob"]


def counted(person: str = "ann", *, overflow: Overflow = "skip", **changes: Any) -> Enrolment:
    throttle = read_throttle("2 in 1h", overflow)
    assert throttle is not None
    made = enrolment(route(person), **changes)
    digest = DigestEntry(
        digest_id=f"d-{made.notification.notification_id}",
        audience=f"user:{person}",
        channels="email",
        key="throttle:news",
        closes_at_ms=FAR_MS,
        most=100,
        size=1,
        intent_json="{}",
    )
    entry = ThrottleEntry(
        audience=f"user:{person}",
        category="news",
        throttle=throttle,
        instead=digest if overflow == "digest" else None,
    )
    return replace(made, throttles=(entry,))


@pytest.mark.req("P-946")
async def test_a_throttle_that_moved_while_an_acceptance_waited_counts(ledger_dsn: str) -> None:
    """Another process counts for the same person: its write moves the row that this one waits for."""
    ledger = await open_ledger(ledger_dsn, allow_unsafe=True)
    other = await asyncpg.connect(ledger_dsn)
    await ledger.enrol([counted()])
    writing = other.transaction()
    await writing.start()
    (before,) = await other.fetch("SELECT ctid FROM throttles")
    await other.execute("UPDATE throttles SET times_json = times_json")
    (after,) = await other.fetch("SELECT ctid FROM throttles")
    assert before != after
    accepting = asyncio.create_task(ledger.enrol([counted()]))
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not await other.fetchval(waits):
        assert not accepting.done(), "it does not wait for the lock"
        await asyncio.sleep(0.01)
    await writing.commit()
    await accepting
    assert len(await ledger.throttle_times(None, "user:ann", "news")) == 2
    (over,) = await ledger.enrol([counted()])
    assert isinstance(over, Accepted)
    assert [one.gate for one in over.gated] == ["throttle"]
    await other.close()
    await ledger.aclose()


@pytest.mark.req("P-304")
async def test_a_throttle_counts_what_is_stored_and_keeps_no_more_than_it_needs(engine: Engine, ledger: Ledger) -> None:
    first = counted(idempotency_key="k")
    await ledger.enrol([first])
    await ledger.enrol([first])
    answers = await ledger.enrol([counted(), counted(), counted("bob")])
    assert [len(answer.gated) for answer in answers if isinstance(answer, Accepted)] == [0, 1, 0]
    assert len(await ledger.throttle_times(None, "user:ann", "news")) == 2
    assert len(await ledger.throttle_times(None, "user:bob", "news")) == 1
    gates = [row["last_error_classification"] for row in await engine.rows("routes")]
    assert gates.count("throttle") == 1
    await ledger.hasten(3601)
    (later,) = await ledger.enrol([counted()])
    assert isinstance(later, Accepted)
    assert later.gated == ()
    assert len(await ledger.throttle_times(None, "user:ann", "news")) == 1


@pytest.mark.req("P-1209")
async def test_a_repeat_beside_a_new_one_counts_once(ledger: Ledger) -> None:
    """They come in one batch: the repeat is in the ledger already, or it is the first one's twin."""
    first = counted(idempotency_key="k")
    await ledger.enrol([first])
    again = [counted(idempotency_key="k") for _ in range(3)]
    *repeats, new, over = await ledger.enrol([first, *again, counted(), counted()])
    assert isinstance(repeats[0], Accepted)
    assert [one.gated for one in repeats[1:] if isinstance(one, Duplicate)] == [()] * 3
    assert isinstance(new, Accepted)
    assert isinstance(over, Accepted)
    assert [len(one.gated) for one in (repeats[0], new, over)] == [0, 0, 1]
    twins = await ledger.enrol([counted("bob", idempotency_key="t") for _ in range(3)] + [counted("bob")])
    assert [type(one) for one in twins].count(Accepted) == 2
    assert [one.gated for one in twins if isinstance(one, Accepted | Duplicate)] == [()] * 4
    assert len(await ledger.throttle_times(None, "user:bob", "news")) == 2


@pytest.mark.req("P-1209")
async def test_what_is_read_again_is_answered_as_it_was_stored(ledger: Ledger) -> None:
    """A door reads it again after a crash, or the answer to its commit was lost."""
    passed, over = [counted(), counted()], counted()
    await ledger.enrol([*passed, over])
    answers = await ledger.enrol([*passed, over])
    assert [[gate.gate for gate in one.gated] for one in answers if isinstance(one, Accepted)] == [[], [], ["throttle"]]


@pytest.mark.req("P-304")
async def test_what_is_too_much_goes_into_a_digest(ledger: Ledger) -> None:
    await ledger.enrol([counted(overflow="digest") for _ in range(5)])
    ((row,), _) = await ledger.digests({}, 10, 0)
    assert row["event_count"] == 3
    assert len(await ledger.claim([want()], 10, "w")) == 2


@pytest.mark.req("P-1212")
async def test_a_throttle_is_shown_as_the_next_acceptance_counts_it(engine: Engine) -> None:
    """Another key gives an address another name, and what the older one has counted counts no more."""
    ref, older, newer = "email:ann@example.com", bytes(range(32)), bytes(range(1, 33))
    made = counted()
    (entry,) = made.throttles
    (to,) = made.routes
    bare = {
        "routes": (replace(to, recipient_ref=ref, route_id="email:x"),),
        "throttles": (replace(entry, audience=ref),),
    }
    shown: list[int] = []
    for ring in ([older], [newer, older]):
        async with engine.ledger(seals=Seals(ring)) as ledger:
            shown.append(len(await ledger.throttle_times(None, ref, "news")))
            for _ in range(2):
                (answer,) = await ledger.enrol([replace(counted(), **bare)])
                assert isinstance(answer, Accepted)
                assert answer.gated == ()
            shown.append(len(await ledger.throttle_times(None, ref, "news")))
    assert shown == [0, 2, 0, 2]
