"""The cap of a group over a fleet: two processes, their places and the ledger, step by step in any order."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from carillon.domain.claims import Claim, Want
from carillon.domain.groups import Groups, Turns
from carillon.ledger.leases import Ended, LeaseBook
from carillon.ledger.opening import Ledger
from carillon.outbound.places import Places
from tests.contract.test_ledger_turns import claimed, counted, fill
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import LANE, PROVIDER, defer, enrolment, finish, retry, route
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

CAP, GROUP, STEPS, SEEDS = 3, -7, 150, 8
GROUPS = Groups(by="endpoint", cap=CAP)


class Process:
    """A worker as far as places go: what it asked, what it calls, what has ended, and what is settled."""

    def __init__(self, name: str, ledger: Ledger, dice: random.Random) -> None:
        self.name = name
        self.ledger = ledger
        self.places = Places({PROVIDER: GROUPS}, ManualClock())
        self.dice = dice
        self.answer: list[Claim] | None = None
        self.accepted: list[Claim] = []
        self.calling: list[Claim] = []
        self.ended: list[Claim] = []
        self.sent: list[Claim] = []

    def steps(self) -> list[Callable[[], object]]:
        """What may happen next in this process."""
        found: list[Callable[[], object]] = [self.accept, self.renew]
        found.append(self.ask if self.answer is None else self.admit)
        if self.accepted:
            found.append(self.start)
        if self.calling:
            found += [self.end] * 3
        if self.ended:
            found += [self.send] * 3
        if self.sent:
            found += [self.settle] * 4
        return found

    async def ask(self) -> None:
        self.places.asking()
        turns = GROUPS.turns(self.places.ahead(PROVIDER))
        self.answer = await self.ledger.claim([Want(LANE, PROVIDER, 50, turns)], 50, self.name)

    def admit(self) -> None:
        claims, self.answer = self.answer or [], None
        self._begin(claims)
        self.places.answered()

    async def accept(self) -> None:
        batch = [enrolment(route(f"r{number}", group=GROUP)) for number in range(self.dice.randint(1, 2))]
        written = await self.ledger.enrol_claimed(batch, self.name, 300.0, {GROUP: CAP})
        self.accepted += [claim for each in written for claim in each.claims]

    def start(self) -> None:
        claims, self.accepted = self.accepted, []
        self._begin(claims)

    def _begin(self, claims: list[Claim]) -> None:
        calling, back = self.places.admit(claims)
        self.calling += calling
        self.sent += back

    def end(self) -> None:
        claim = self.calling.pop(self.dice.randrange(len(self.calling)))
        self.calling += self.places.ended([claim])
        self.ended.append(claim)

    def send(self) -> None:
        """The settlement leaves: the next claim was answered, or it took too long."""
        claim = self.ended.pop(self.dice.randrange(len(self.ended)))
        self.places.free([claim])
        self.sent.append(claim)

    async def settle(self) -> None:
        """The settlement is committed; of several claims at once."""
        self.dice.shuffle(self.sent)
        some = self.dice.randint(1, len(self.sent))
        claims, self.sent = self.sent[:some], self.sent[some:]
        verdict = self.dice.choice([finish, finish, retry, defer])
        await self.ledger.settle([verdict(claim) for claim in claims])
        self.places.settled(claims)

    async def renew(self) -> None:
        await self.ledger.extend([*self.calling, *self.ended])


async def played(engine: Engine, seed: int) -> tuple[int, int]:
    """The most calls at once, and how many calls there were; somebody ends called routes by hand meanwhile."""
    dice = random.Random(seed)
    async with AsyncExitStack() as stack:
        ledgers = [await stack.enter_async_context(engine.ledger(lease_seconds=300.0)) for _ in range(2)]
        fleet = [Process(name, ledger, dice) for name, ledger in zip("ab", ledgers, strict=True)]
        most, seen = 0, set[int]()
        for _ in range(STEPS):
            under_way = [claim for process in fleet for claim in process.calling]
            if under_way and dice.random() < 0.05:
                await engine.execute(_ended_by_hand(dice.choice(under_way)))
            step = dice.choice(dice.choice(fleet).steps())
            done = step()
            if done is not None:
                await done  # type: ignore[misc]
            now = [claim.token for process in fleet for claim in process.calling]
            most = max(most, len(now))
            seen.update(now)
    await engine.empty()
    return most, len(seen)


def _ended_by_hand(claim: Claim) -> str:
    where = f"notification_id = '{claim.notification_id}' AND route_id = '{claim.route_id}'"
    return f"UPDATE routes SET status = 'skipped', next_attempt_at = NULL WHERE {where}"  # noqa: S608 - our own ids


@pytest.mark.slow
@pytest.mark.req("P-522")
async def test_no_order_of_steps_exceeds_the_cap(engine: Engine) -> None:
    found = [await played(engine, seed) for seed in range(SEEDS)]
    assert max(most for most, _ in found) == CAP
    assert sum(calls for _, calls in found) > 80, "something was called"


async def calls_after_a_lost_one(engine: Engine, ledger: Ledger) -> list[int]:
    """One of three calls is lost and goes on, the two beside it are settled: how many are claimed then, and later."""
    await ledger.enrol([enrolment(route(f"r{number}", group=GROUP)) for number in range(9)])
    want = Want(LANE, PROVIDER, 50, GROUPS.turns())
    lost, *rest = await ledger.claim([want], 50, "w")
    await engine.execute(_ended_by_hand(lost))
    assert await ledger.extend([lost, *rest]) == [lost]
    await ledger.settle([finish(claim) for claim in rest])
    beside = await ledger.claim([want], 50, "w")
    await ledger.settle([finish(lost), *(finish(claim) for claim in beside)])
    return [len(beside), len(await ledger.claim([want], 50, "w"))]


@pytest.mark.req("P-522")
async def test_a_call_whose_claim_was_lost_keeps_its_place_until_it_ends(engine: Engine, ledger: Ledger) -> None:
    assert await calls_after_a_lost_one(engine, ledger) == [CAP - 1, CAP]


@pytest.mark.req("P-522")
async def test_control_a_book_that_forgets_lost_claims(
    engine: Engine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four calls at a cap of three."""
    monkeypatch.setattr(LeaseBook, "ended_by", lambda _, claims: Ended([claim.lease for claim in claims], [], []))
    assert await calls_after_a_lost_one(engine, ledger) == [CAP, CAP]


@pytest.mark.req("P-1080")
async def test_a_process_says_how_many_claims_ahead_it_wants(ledger: Ledger) -> None:
    await fill(ledger, {-1: 20, -2: 20})
    calling = Turns(CAP, ahead={1: 7, 2: 1})
    claims = await claimed(ledger, 50, calling)
    assert counted(claims) == {-1: CAP + 7, -2: CAP + 1}
    assert Counter(claim.group for claim in claims if not claim.ahead) == {-1: CAP, -2: CAP}, "the cap holds"
    assert await claimed(ledger, 50, calling) == []
    assert counted(await claimed(ledger, 50, Turns(CAP, ahead={1: 9}))) == {-1: 2}
