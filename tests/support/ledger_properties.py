"""What must always hold of a ledger, as functions that a negative control can watch fail on a mutilated one."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Protocol, TypeAlias

from carillon.domain.claims import Claim, Settled
from carillon.domain.notifications import Accepted, Conflict, Duplicate
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import bury, defer, enrolment, finish, retry, route, want
from tests.support.ledger_engines import Engine

Statements: TypeAlias = Mapping[str, str] | None


class Property(Protocol):
    """Holds on return; raises when it does not."""

    __name__: str

    async def __call__(self, engine: Engine, statements: Statements = None) -> None: ...


async def claim_one(ledger: Ledger, owner: str = "worker") -> Claim:
    claims = await ledger.claim([want()], 100, owner)
    assert len(claims) == 1
    return claims[0]


async def lose_a_lease(engine: Engine, ledger: Ledger) -> tuple[Claim, Claim]:
    """The claim of a worker that overslept, and the claim of the worker that took over."""
    await ledger.enrol([enrolment()])
    zombie = await claim_one(ledger, "zombie")
    await engine.expire_leases()
    return zombie, await claim_one(ledger, "heir")


async def stale_failure_changes_nothing(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        zombie, heir = await lose_a_lease(engine, ledger)
        before = await engine.only("routes")
        for late in (retry(zombie), bury(zombie), defer(zombie)):
            assert await ledger.settle([late]) == [Settled.STALE]
        assert await engine.only("routes") == before
        assert not await engine.rows("dead_letters")
        assert await ledger.settle([finish(heir)]) == [Settled.APPLIED]


async def late_success_is_adopted(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        zombie, heir = await lose_a_lease(engine, ledger)
        assert await ledger.settle([finish(zombie)]) == [Settled.ADOPTED]
        row = await engine.only("routes")
        assert (row["status"], row["next_attempt_at"], row["claim_token"]) == ("published", None, None)
        assert row["provider_message_id"] == f"m-{zombie.token}"
        # The heir finds out at its next heartbeat, and its own word comes too late.
        assert await ledger.extend([heir]) == [heir]
        assert await ledger.settle([retry(heir)]) == [Settled.STALE]
        assert (await engine.only("routes"))["status"] == "published"


async def terminal_stays(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        zombie, heir = await lose_a_lease(engine, ledger)
        assert await ledger.settle([bury(heir)]) == [Settled.APPLIED]
        before = await engine.only("routes")
        assert await ledger.settle([finish(zombie)]) == [Settled.STALE]
        assert await engine.only("routes") == before


async def stranger_cannot_extend(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        zombie, heir = await lose_a_lease(engine, ledger)
        before = await engine.only("routes")
        assert await ledger.extend([zombie]) == [zombie]
        assert await engine.only("routes") == before
        assert await ledger.extend([heir]) == []
        # Two claims share a lease. One is settled and claimed anew: the lease stands for the other one alone.
        await ledger.enrol([enrolment(route("bob"), route("cid"))])
        first, second = await ledger.claim([want()], 2, "worker")
        await ledger.settle([retry(first, 0.0)])
        await claim_one(ledger, "heir")
        assert await ledger.extend([first, second]) == [first]


async def crash_loop_uses_up_its_budget(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment()])
        seen = []
        for _ in range(4):
            claim = await claim_one(ledger)
            seen.append((claim.attempt, claim.abandoned))
            await engine.expire_leases()
        assert seen == [(1, False), (2, True), (3, True), (4, True)]


async def deferral_costs_nothing(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment()])
        for _ in range(5):
            claim = await claim_one(ledger)
            assert (claim.attempt, claim.abandoned) == (1, False)
            assert await ledger.settle([defer(claim)]) == [Settled.APPLIED]
            assert (await engine.only("routes"))["status"] == "pending"
            await engine.make_due()


async def one_record_per_key(engine: Engine, statements: Statements = None, rivals: int = 8) -> None:
    """Many doors, the same keys at once: one record each, and everybody is told the same id."""
    keys = [f"key-{number}" for number in range(20)]
    async with engine.ledger(statements=statements) as ledger:
        batches = [[enrolment(idempotency_key=key) for key in keys] for _ in range(rivals)]
        answers = await asyncio.gather(*(ledger.enrol(batch) for batch in batches))
    told: dict[str, set[str]] = {key: set() for key in keys}
    kinds: Counter[type] = Counter()
    for batch in answers:
        for key, answer in zip(keys, batch, strict=True):
            told[key].add(answer.notification_id)
            kinds[type(answer)] += 1
    assert kinds == {Accepted: len(keys), Duplicate: len(keys) * (rivals - 1)}
    assert all(len(ids) == 1 for ids in told.values())
    assert len(await engine.rows("records")) == len(await engine.rows("routes")) == len(keys)


async def key_in_one_batch_is_taken_once(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        first = enrolment(idempotency_key="k")
        batch = [first, enrolment(idempotency_key="k"), enrolment(idempotency_key="k", request_fingerprint="other")]
        winner = first.notification.notification_id
        assert await ledger.enrol(batch) == [Accepted(winner), Duplicate(winner, 2), Conflict(winner)]
        assert len(await engine.rows("routes")) == 1


async def repeated_settlement_is_harmless(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment(route("ann"), route("bob"), route("cid"))])
        ann, bob, cid = await ledger.claim([want()], 100, "worker")
        batch = [finish(ann), retry(bob), bury(cid)]
        first = await ledger.settle(batch)
        before = [await engine.rows(table) for table in ("routes", "attempts_told", "dead_letters")]
        assert await ledger.settle(batch) == first == [Settled.APPLIED] * 3
        assert [await engine.rows(table) for table in ("routes", "attempts_told", "dead_letters")] == before


async def pruning_keeps_live_work(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        done, half, waiting = enrolment(), enrolment(route("ann"), route("bob")), enrolment(route("cid"))
        await ledger.enrol([done, half, waiting])
        claims = {claim.key: claim for claim in await ledger.claim([want()], 100, "worker")}
        closed = [done.notification.notification_id, half.notification.notification_id]
        await ledger.settle([finish(claims[key, "email:user:ann"]) for key in closed])
        await engine.grow_old("records", "accepted_at", 1000)
        assert await ledger.prune(500, 500, 100) == (1, 0)
        left = {row["notification_id"] for row in await engine.rows("records")}
        assert left == {half.notification.notification_id, waiting.notification.notification_id}
        assert len(await engine.rows("routes")) == 3
        assert len(await engine.rows("attempts_told")) == 1


async def future_work_stands_in_nobodys_way(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        far = 4_000_000_000_000
        await ledger.enrol([enrolment(route(f"later{n}", lane=1), scheduled_for_ms=far) for n in range(20)])
        await ledger.enrol([enrolment(route("now", lane=1)), enrolment(route("low", lane=3))])
        claims = await ledger.claim([want(5, lane=1), want(5, lane=3)], 5, "worker")
        assert [claim.recipient_ref for claim in claims] == ["user:now", "user:low"]


async def dead_addresses_are_left_alone(engine: Engine, statements: Statements = None) -> None:
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment(), enrolment(), enrolment(route("bob"))])
        first = (await ledger.claim([want(1)], 1, "worker"))[0]
        assert not first.suppressed
        await ledger.settle([bury(first, suppress=True)])
        later = await ledger.claim([want()], 100, "worker")
        assert {claim.recipient_ref: claim.suppressed for claim in later} == {"user:ann": True, "user:bob": False}
        fresh = enrolment(route("ann"), route("dan"))
        await ledger.enrol([fresh])
        rows = await engine.rows("routes")
        new = {
            row["recipient_ref"]: row for row in rows if row["notification_id"] == fresh.notification.notification_id
        }
        assert new["user:ann"]["status"] == "skipped"
        assert new["user:ann"]["last_error_classification"] == "suppressed"
        assert new["user:dan"]["status"] == "pending"


async def place_of_another_row_is_left_alone(engine: Engine, statements: Statements = None) -> None:
    """PostgreSQL only: a row's place may be given to another row once its own version is gone."""
    async with engine.ledger(statements=statements) as ledger:
        await ledger.enrol([enrolment(route("ann")), enrolment(route("bob"))])
        ann, bob = await ledger.claim([want()], 10, "w")
        ann.place = bob.place
        assert await ledger.settle([finish(ann)]) == [Settled.APPLIED]
        rows = {row["recipient_ref"]: row for row in await engine.rows("routes")}
        assert (rows["user:ann"]["status"], rows["user:bob"]["status"]) == ("published", "pending")
        assert rows["user:bob"]["claim_token"] == bob.token
