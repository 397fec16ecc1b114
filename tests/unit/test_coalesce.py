"""Batches that form by themselves, and what a bad item, an absent ledger or an impatient caller does to the others."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.coalesce import Coalescer
from carillon.domain.errors import LedgerUnavailable, Overloaded
from tests.support.examples import examples

PROPERTY = examples(100)


class Store:
    """Writes numbers down; negative ones are poison, and the gate decides when a write ends."""

    def __init__(self) -> None:
        self.flushes: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.flushing = asyncio.Event()
        self.away_from = 1000
        """The flush from which on the ledger is away."""

    async def flush(self, items: Sequence[int]) -> list[str]:
        self.flushes.append(list(items))
        self.flushing.set()
        await self.gate.wait()
        if len(self.flushes) >= self.away_from:
            raise LedgerUnavailable("away")
        if any(item < 0 for item in items):
            raise ValueError("poison")
        return [f"#{item}" for item in items]


def coalescer(store: Store, max_batch: int = 100, max_pending: int = 1000) -> Coalescer[int, str]:
    return Coalescer(store.flush, max_batch=max_batch, max_pending=max_pending)


async def settled(*answers: asyncio.Future[str]) -> list[str]:
    """Every answer as text, exceptions by their name."""
    results = await asyncio.gather(*answers, return_exceptions=True)
    return [type(one).__name__ if isinstance(one, BaseException) else one for one in results]


async def test_what_arrives_together_goes_together() -> None:
    store = Store()
    batches = coalescer(store)
    answers = [batches.add(number) for number in range(10)]
    assert await settled(*answers) == [f"#{number}" for number in range(10)]
    assert store.flushes == [list(range(10))]


async def test_what_arrives_during_a_flush_goes_into_the_next() -> None:
    store = Store()
    store.gate.clear()
    batches = coalescer(store)
    first = batches.add(0)
    await store.flushing.wait()
    rest = [batches.add(number) for number in range(1, 50)]
    assert not first.done()
    store.gate.set()
    assert await settled(first, *rest) == [f"#{number}" for number in range(50)]
    assert store.flushes == [[0], list(range(1, 50))]


async def test_no_answer_comes_before_its_flush_has_ended() -> None:
    store = Store()
    store.gate.clear()
    batches = coalescer(store)
    answer = batches.add(1)
    await store.flushing.wait()
    assert not answer.done()
    store.gate.set()
    assert await answer == "#1"


async def test_a_batch_is_never_larger_than_allowed() -> None:
    store = Store()
    batches = coalescer(store, max_batch=3)
    await settled(*[batches.add(number) for number in range(8)])
    assert store.flushes == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_one_poison_item_fails_alone() -> None:
    store = Store()
    batches = coalescer(store)
    answers = [batches.add(number) for number in (1, 2, -3, 4)]
    assert await settled(*answers) == ["#1", "#2", "ValueError", "#4"]
    assert await batches.add(5) == "#5"


async def test_an_absent_ledger_fails_the_whole_batch_at_once() -> None:
    store = Store()
    store.away_from = 1
    batches = coalescer(store)
    assert await settled(*[batches.add(number) for number in range(20)]) == ["LedgerUnavailable"] * 20
    assert len(store.flushes) == 1
    store.away_from = 1000
    assert await batches.add(7) == "#7"


async def test_a_ledger_that_goes_away_while_poison_is_sought_fails_only_the_rest() -> None:
    store = Store()
    # The first flush fails for the poison in it, the second writes 1, the third poison alone, the fourth finds nobody.
    store.away_from = 4
    batches = coalescer(store)
    answers = [batches.add(number) for number in (1, -2, 3)]
    assert await settled(*answers) == ["#1", "ValueError", "LedgerUnavailable"]


async def test_too_many_waiting_items_are_refused_before_memory_grows() -> None:
    store = Store()
    store.gate.clear()
    batches = coalescer(store, max_pending=2)
    first = batches.add(0)
    await store.flushing.wait()
    waiting = [batches.add(1), batches.add(2)]
    with pytest.raises(Overloaded):
        batches.add(3)
    store.gate.set()
    assert await settled(first, *waiting) == ["#0", "#1", "#2"]
    assert await batches.add(4) == "#4"


async def test_a_caller_that_leaves_harms_nobody_and_its_item_is_still_written() -> None:
    store = Store()
    store.gate.clear()
    batches = coalescer(store)
    gone, stays = batches.add(1), batches.add(2)
    await store.flushing.wait()
    gone_too = batches.add(3)
    gone.cancel()
    gone_too.cancel()
    store.gate.set()
    assert await stays == "#2"
    await batches.drain()
    assert store.flushes == [[1, 2], [3]]


@pytest.mark.parametrize("number", [-1, 1])
async def test_a_caller_that_left_is_not_told_of_a_failure(number: int) -> None:
    store = Store()
    store.away_from = 1 if number > 0 else 1000
    batches = coalescer(store)
    batches.add(number).cancel()
    await batches.drain()
    assert store.flushes == [[number]]


async def test_draining_waits_for_everything_and_then_for_nothing() -> None:
    store = Store()
    batches = coalescer(store, max_batch=2)
    answers = [batches.add(number) for number in range(5)]
    await batches.drain()
    assert all(answer.done() for answer in answers)
    await batches.drain()


@pytest.mark.parametrize("given_back", [0, 1, 3])
async def test_a_flush_that_miscounts_its_answers_leaves_nobody_waiting(given_back: int) -> None:
    async def flush(_: Sequence[int]) -> list[str]:
        return ["?"] * given_back

    batches: Coalescer[int, str] = Coalescer(flush, max_batch=10, max_pending=10)
    answers = [batches.add(1), batches.add(2)]
    async with asyncio.timeout(30):
        await asyncio.wait(answers)
        await batches.drain()


@PROPERTY
@given(st.lists(st.integers(min_value=-3, max_value=50), max_size=40), st.integers(min_value=1, max_value=7))
def test_every_item_is_answered_for_itself(items: list[int], max_batch: int) -> None:
    async def story() -> None:
        store = Store()
        batches = coalescer(store, max_batch=max_batch)
        answers = await settled(*[batches.add(item) for item in items])
        assert answers == [f"#{item}" if item >= 0 else "ValueError" for item in items]
        assert all(len(flush) <= max_batch for flush in store.flushes)
        written = [item for flush in store.flushes if min(flush) >= 0 for item in flush]
        assert sorted(written) == sorted(item for item in items if item >= 0), "each good item is written once"

    asyncio.run(story())


async def test_items_that_stay_together_are_answered_together() -> None:
    store = Store()
    batches = coalescer(store, max_batch=4)
    one, three, two = batches.add(0), batches.add_all([1, 2, 3]), batches.add_all([4, 5])
    assert (await one, await three, await two) == ("#0", ["#1", "#2", "#3"], ["#4", "#5"])
    assert store.flushes == [[0, 1, 2, 3], [4, 5]]


async def test_more_than_a_batch_goes_alone() -> None:
    store = Store()
    batches = coalescer(store, max_batch=2)
    one, many = batches.add(0), batches.add_all([1, 2, 3])
    assert (await one, await many) == ("#0", ["#1", "#2", "#3"])
    assert store.flushes == [[0], [1, 2, 3]]


async def test_poison_among_those_that_stay_together_fails_alone() -> None:
    store = Store()
    batches = coalescer(store)
    together, other = batches.add_all([1, -2, 3]), batches.add(4)
    first, bad, last = await together
    assert (first, type(bad), last) == ("#1", ValueError, "#3")
    assert await other == "#4"


async def test_an_absent_ledger_fails_those_that_stay_together_at_once() -> None:
    store = Store()
    store.away_from = 1
    batches = coalescer(store)
    with pytest.raises(LedgerUnavailable):
        await batches.add_all([1, 2])
    assert len(store.flushes) == 1


async def test_together_they_count_as_many() -> None:
    batches = coalescer(Store(), max_pending=3)
    waiting = batches.add_all([1, 2])
    with pytest.raises(Overloaded):
        batches.add_all([3, 4])
    assert await waiting == ["#1", "#2"]
    assert await batches.add_all([3, 4]) == ["#3", "#4"]
