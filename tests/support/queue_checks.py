"""What must hold of list queues, each as one check: it passes with our scripts and fails without its guard."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from carillon.domain.claims import Settled
from carillon.domain.jobs import message_id
from tests.support.ledger_builders import bury, defer, finish, retry
from tests.support.queue_lists import Lists
from tests.support.queue_stand import QUEUE, envelope

Make: TypeAlias = Callable[[], Lists]
Check: TypeAlias = Callable[[Make], Awaitable[None]]


async def whereabouts(lists: Lists) -> list[str]:
    """The id of every message wherever it is, one for each copy."""
    delayed = [text for text, _ in await lists.delayed()]
    everything = [*await lists.main(), *await lists.processing(), *delayed, *await lists.failed()]
    return sorted(message_id(text) for text in everything)


async def zombies_touch_nothing_that_came_back_unchanged(make: Make) -> None:
    """As after an operator, or a worker of another make, has put orphans back."""
    zombies, heirs = make(), make()
    await zombies.put(*[envelope(id=f"m{n}") for n in range(4)])
    late = await zombies.claim()
    await zombies.expire()
    while await heirs.redis.lmove(f"{QUEUE}:processing", QUEUE, "RIGHT", "LEFT"):
        continue
    held = await heirs.claim()
    locks = await heirs.locks()
    verdicts = [retry(late[0]), bury(late[1]), finish(late[2]), defer(late[3], 0.0)]
    assert await zombies.backlog.settle(verdicts) == [Settled.STALE] * 4
    assert await heirs.locks() == locks
    assert len(await heirs.processing()) == 4
    assert await heirs.backlog.settle([finish(claim) for claim in held]) == [Settled.APPLIED] * 4


async def zombies_touch_nothing(make: Make) -> None:
    zombies, heirs = make(), make()
    await zombies.put(*[envelope(id=f"m{n}") for n in range(3)])
    late = await zombies.claim()
    await zombies.expire()
    await heirs.sweep_all()
    await heirs.make_due()
    await heirs.upkeep.pump()
    held = await heirs.claim()
    assert len(held) == 3
    locks = await heirs.locks()
    settled = await zombies.backlog.settle([retry(late[0]), bury(late[1]), finish(late[2])])
    assert settled == [Settled.STALE] * 3
    assert await heirs.locks() == locks
    assert await whereabouts(heirs) == ["m0", "m1", "m2"]
    assert await zombies.backlog.extend(late) == late
    assert await heirs.backlog.settle([finish(claim) for claim in held]) == [Settled.APPLIED] * 3
    assert await whereabouts(heirs) == []


async def claims_are_never_without_a_lock(make: Make) -> None:
    """A sweeper without any patience looks between every two steps of a worker."""
    workers, sweepers = make(), make()
    await workers.put(*[envelope(id=f"m{n}") for n in range(5)])
    claims = await workers.claim()
    assert await sweepers.sweep_all() == 0
    assert await workers.backlog.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 5
    assert await whereabouts(workers) == []


async def what_is_held_is_not_swept_whatever_its_id(make: Make) -> None:
    lists = make()
    await lists.put({"transaction_id": "t1"}, {"id": 7}, {"id": "x", "attempts": 1})
    claims = await lists.claim()
    assert await lists.sweep_all() == 0
    assert await lists.backlog.settle([finish(claim) for claim in claims]) == [Settled.APPLIED] * 3


async def a_crash_costs_an_attempt(make: Make) -> None:
    lists = make()
    await lists.put(envelope(id="poison"))
    for _ in range(10):
        if not await lists.claim():
            break
        await lists.expire()
        await lists.sweep_all()
        await lists.make_due()
        await lists.upkeep.pump()
    assert [json.loads(text)["attempts"] for text in await lists.failed()] == [2]
    assert await whereabouts(lists) == ["poison"]


async def equal_messages_stay_two(make: Make) -> None:
    lists = make()
    await lists.put(*[{"transaction_id": "t1"}] * 2)
    for _ in range(2):
        for claim in await lists.claim(1):
            await lists.backlog.settle([retry(claim, 30.0)])
    assert len(await whereabouts(lists)) == 2


async def pumps_move_each_message_once(make: Make) -> None:
    pumps = [make() for _ in range(3)]
    due = {json.dumps(envelope(id=f"m{n}")): time.time() - 5 for n in range(300)}
    await pumps[0].redis.zadd(f"{QUEUE}:delayed", due)
    await asyncio.gather(*(pump.upkeep.pump() for pump in pumps))
    assert await whereabouts(pumps[0]) == sorted(f"m{n}" for n in range(300))


async def a_worker_that_dies_while_settling_loses_nothing(make: Make) -> None:
    """Its connection ends right after the first command it sends."""
    lists = make()
    await lists.put(envelope(id="m0"), envelope(id="m1"), envelope(id="m2"))
    one, two, three = await lists.claim()
    for each in (retry(one), bury(two), finish(three)):
        try:
            await lists.backlog.settle([each])
        except ConnectionAbortedError:
            continue
    assert set(await whereabouts(lists)) >= {"m0", "m1"}


async def rivals_never_share_a_message(make: Make) -> None:
    workers = [make() for _ in range(4)]
    await workers[0].put(*[envelope(id=f"m{n % 50}") for n in range(100)])
    held = [claim for found in await asyncio.gather(*(each.claim(40) for each in workers)) for claim in found]
    ids = [claim.notification_id for claim in held]
    assert len(ids) == len(set(ids)) == 50
    assert len(await whereabouts(workers[0])) == 100
