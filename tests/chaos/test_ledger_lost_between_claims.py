"""A ledger that goes away between two claims of one turn: the worker attempts the routes of the first claim."""

import asyncio
from collections.abc import Sequence
from typing import Any

from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Event
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.verdicts import Finish
from carillon.ledger.local_signal import LocalSignal
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.worker import Worker, WorkerRules
from carillon.system import SystemClock
from tests.support.dispatches import claim

LANES = Lanes(
    {"urgent": Lane(rank=1, queue_name="urgent", weight=1), "bulk": Lane(rank=2, queue_name="bulk", weight=1)}
)


class LeavingLedger:
    """Gives as many urgent routes as are asked for, goes away at the second question, and has nothing more."""

    def __init__(self) -> None:
        self.questions = 0
        self.given: list[Claim] = []
        self.settled: list[Settlement] = []
        self.done = asyncio.Event()

    async def claim(self, wants: Sequence[Want], _total: int, _owner: str) -> list[Claim]:
        self.questions += 1
        if self.questions == 1:
            self.given = [
                claim(notification_id=f"n{token}", token=token, channel="push", lane=1, provider="p")
                for token in range(wants[0].limit)
            ]
            return list(self.given)
        if self.questions == 2:
            raise LedgerUnavailable("gone between two claims")
        self.done.set()
        return []

    async def extend(self, _claims: Sequence[Claim]) -> list[Claim]:
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.settled += settlements
        return [Settled.APPLIED for _ in settlements]


class Delivering:
    """Every attempt succeeds."""

    def takes_many(self, _claim: Claim) -> bool:
        return False

    def goes_side_by_side(self, _claim: Claim) -> bool:
        return False

    async def attempt(self, claim: Claim) -> Settlement:
        return Settlement(claim=claim, verdict=Finish())


def _ignore(_event: Event) -> None:
    """Nobody listens here."""


async def test_claims_are_attempted_although_the_ledger_goes_away() -> None:
    ledger, clock = LeavingLedger(), SystemClock()
    attempts: Any = Delivering()
    leases = Leases(ledger, clock, _ignore, 30.0)
    worker = Worker(
        backlog=ledger,
        signal=LocalSignal(),
        attempts=attempts,
        settler=Settler(ledger, _ignore),
        leases=leases,
        breakers=MemoryBreakers({}, clock, _ignore),
        rules=WorkerRules(lanes=LANES, chains={"push": ("p",)}, concurrency=10, batch=10, poll_seconds=0.01),
        clock=clock,
        observer=_ignore,
        owner="here",
    )
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(ledger.done.wait(), 40)
    worker.stop()
    await running
    assert ledger.given
    assert [each.claim for each in ledger.settled] == ledger.given
