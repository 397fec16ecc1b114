"""Claim on accept: only an idle worker claims, and only routes that it can start at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from carillon.domain.breaker import BreakerPolicy
from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import Accepted, Enrolment
from carillon.domain.synchronous import ClaimedEnrolment
from carillon.domain.verdicts import Finish
from carillon.ledger.local_signal import LocalSignal
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.worker import Worker, WorkerClaimOnAccept, WorkerRules
from carillon.system import SystemClock
from tests.support.ledger_builders import PROVIDER, enrolment, route
from tests.support.waiting import until as awaited
from tests.unit.test_outbound_attempt import CLAIM


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await awaited(holds, timeout=30.0, what="the worker")


class Ledger:
    """Writes everything down, has nothing due, and remembers who asked for what."""

    def __init__(self) -> None:
        self.away = False
        self.tokens = 0
        self.settled: list[Settlement] = []

    async def enrol_claimed(
        self, batch: Sequence[Enrolment], owner: str, seconds: float, caps: Mapping[int, int] | None = None
    ) -> list[ClaimedEnrolment]:
        if self.away:
            raise LedgerUnavailable("away")
        assert (owner, seconds, caps) == ("here", 30.0, {})
        return [ClaimedEnrolment(Accepted(one.notification.notification_id), tuple(self._claims(one))) for one in batch]

    def _claims(self, one: Enrolment) -> list[Claim]:
        claims = []
        for each in one.routes:
            self.tokens += 1
            key = {"notification_id": one.notification.notification_id, "route_id": each.route_id}
            claims.append(msgspec.structs.replace(CLAIM, **key, token=self.tokens, provider=each.provider))
        return claims

    async def queue_unclaimed(self, _lane: int, _instead: int) -> int:
        return 0

    async def claim(self, _wants: Sequence[Want], _total: int, _owner: str) -> list[Claim]:
        return []

    async def extend(self, _claims: Sequence[Claim]) -> list[Claim]:
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.settled += settlements
        return [Settled.APPLIED for _ in settlements]


class Gated:
    """Attempts that end when the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    def sends_batches(self, _claim: Claim) -> bool:
        return False

    def calls_concurrently(self, _claim: Claim) -> bool:
        return False

    async def attempt(self, claim: Claim) -> Settlement:
        await self.gate.wait()
        return Settlement(claim=claim, verdict=Finish())


class Desk:
    """A worker that has found nothing to do, and claim on accept with it."""

    def __init__(self, **rules: int | dict[str, int]) -> None:
        clock = SystemClock()
        self.ledger, self.calls = Ledger(), Gated()
        self.breakers = MemoryBreakers({"*": BreakerPolicy(failure_threshold=1)}, clock, lambda _: None)
        self.leases = Leases(self.ledger, clock, lambda _: None, 30.0)
        self.signal = LocalSignal()
        self.worker = Worker(
            backlog=self.ledger,
            signal=self.signal,
            attempts=self.calls,  # type: ignore[arg-type]
            settler=Settler(self.ledger, lambda _: None),
            leases=self.leases,
            breakers=self.breakers,
            rules=WorkerRules(
                lanes=Lanes({"standard": Lane(rank=1, queue_name="standard")}),
                chains={"email": (PROVIDER,)},
                poll_seconds=60.0,
                **rules,  # type: ignore[arg-type]
            ),
            clock=clock,
            observer=lambda _: None,
            owner="here",
        )
        self.accept = WorkerClaimOnAccept(self.worker, self.ledger, "here", 30.0)

    async def grow_up(self) -> None:
        """Carry out enough to be trusted with a batch."""
        for _ in range(4):
            assert await self.accept([enrolment()]) is not None
            await until(lambda: self.worker.in_flight == 0)


@asynccontextmanager
async def working(**rules: int | dict[str, int]) -> AsyncIterator[Desk]:
    desk = Desk(**rules)
    running = asyncio.create_task(desk.worker.run())
    # One turn that finds nothing: from then on the worker waits to be rung for.
    await until(lambda: desk.worker._idle)  # noqa: SLF001 - what is under test
    yield desk
    desk.calls.gate.set()
    desk.worker.stop()
    await running


async def test_an_idle_worker_carries_out_what_is_accepted() -> None:
    async with working() as desk:
        given = enrolment()
        assert await desk.accept([given]) == [Accepted(given.notification.notification_id)]
        await until(lambda: len(desk.ledger.settled) == 1)
        await until(lambda: desk.worker.in_flight == 0)
        assert len(desk.leases) == 0


async def test_a_worker_that_does_not_run_takes_nothing() -> None:
    assert await Desk().accept([enrolment()]) is None


async def test_a_worker_that_was_told_to_stop_takes_nothing() -> None:
    async with working() as desk:
        desk.worker.stop()
        assert await desk.accept([enrolment()]) is None


async def test_a_new_worker_claims_one_route_at_a_time() -> None:
    async with working() as desk:
        assert await desk.accept([enrolment(), enrolment()]) is None
        desk.calls.gate.clear()
        assert await desk.accept([enrolment()]) is not None
        assert await desk.accept([enrolment()]) is None


async def test_no_more_than_the_worker_may_hold() -> None:
    async with working(concurrency=3) as desk:
        await desk.grow_up()
        desk.calls.gate.clear()
        assert await desk.accept([enrolment(route("a"), route("b"))]) is not None
        assert await desk.accept([enrolment(route("a"), route("b"))]) is None
        assert await desk.accept([enrolment()]) is not None


async def test_no_more_than_a_provider_bears() -> None:
    async with working(max_in_flight={PROVIDER: 1}) as desk:
        await desk.grow_up()
        desk.calls.gate.clear()
        assert await desk.accept([enrolment(route("a"), route("b"))]) is None
        assert await desk.accept([enrolment()]) is not None
        assert await desk.accept([enrolment()]) is None


async def test_nothing_for_a_provider_that_is_not_well() -> None:
    async with working() as desk:
        await desk.breakers.record(PROVIDER, ok=False)
        assert await desk.accept([enrolment()]) is None


async def test_what_is_to_be_sent_later_is_left_to_the_ledger() -> None:
    async with working() as desk:
        assert await desk.accept([enrolment(scheduled_for_ms=1)]) is None


async def test_an_absent_ledger_costs_no_room() -> None:
    async with working() as desk:
        desk.ledger.away = True
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                await desk.accept([enrolment()])
            assert desk.worker.in_flight == 0
        desk.ledger.away = False
        assert await desk.accept([enrolment()]) is not None
