"""Every guard of the list queue has a check that goes red without it."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from carillon.domain.claims import Settled, Settlement
from carillon.domain.jobs import with_attempts
from carillon.domain.verdicts import Bury, Retry
from carillon.ledger.redis import lists_upkeep
from carillon.ledger.redis import scripts as redis_lists_scripts
from carillon.ledger.redis.lists import RedisLists
from carillon.ledger.redis.lists_upkeep import ListUpkeep
from tests.support import queue_checks
from tests.support.queue_checks import Check, Make
from tests.support.queue_lists import Lists
from tests.support.queue_stand import QUEUE
from tests.support.servers import Redis

Sabotage = Callable[[pytest.MonkeyPatch], None]


def scripted(name: str, old: str, new: str) -> Sabotage:
    """One piece of one script replaced; the shared rules count as part of each."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        texts = redis_lists_scripts.script_texts()
        assert old in texts[name], f"{name} does not contain {old!r} any more; mend the control"
        patch.setattr(redis_lists_scripts, "script_texts", lambda: {**texts, name: texts[name].replace(old, new)})

    return apply


def two_step_pump(patch: pytest.MonkeyPatch) -> None:
    async def pump(self: Any) -> int:
        redis = self._scripts._redis  # noqa: SLF001 - past the scripts on purpose
        due = await redis.zrangebyscore(f"{QUEUE}:delayed", "-inf", "+inf")
        for text in due:
            await redis.lpush(QUEUE, text)
        return int(await redis.zremrangebyscore(f"{QUEUE}:delayed", "-inf", "+inf"))

    patch.setattr(ListUpkeep, "pump", pump)


def two_step_settle(patch: pytest.MonkeyPatch) -> None:
    """As the document's pseudocode would be if it removed first; the worker dies in between."""

    async def settle(self: Any, settlements: Sequence[Settlement]) -> list[Settled]:
        redis = self._scripts._redis  # noqa: SLF001 - past the scripts on purpose
        for each in settlements:
            place = each.claim.place
            await redis.lrem(f"{QUEUE}:processing", 1, place.raw)
            if isinstance(each.verdict, Retry | Bury):
                raise ConnectionAbortedError
        return [Settled.APPLIED] * len(settlements)

    patch.setattr(RedisLists, "settle", settle)


def crashes_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lists_upkeep, "with_attempts", lambda raw, _: with_attempts(raw, json.loads(raw)["attempts"]))


def another_id_in_the_sweeper(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lists_upkeep, "hints_for", lambda texts: {_sha1(text): f"h:{_sha1(text)}" for text in texts})


def _sha1(text: bytes) -> str:
    return redis_lists_scripts._digest(text)  # noqa: SLF001 - the name a script knows a text by


TOKEN = "if ours or (verb == 'ack' and not holder) then"
LOCKED = "if redis.call('SET', lock_of(queue, id), given.owner .. number, 'NX', 'PX', lock_ms) then"
CONTROLS: dict[str, tuple[Check, Sabotage]] = {
    "settle without the token": (
        queue_checks.zombies_touch_nothing_that_came_back_unchanged,
        scripted("settle", TOKEN, "if true then"),
    ),
    "release of whatever lock": (
        queue_checks.zombies_touch_nothing,
        scripted("settle", "local answer, score = 0, ''", "local answer, score = 0, '' redis.call('DEL', lock)"),
    ),
    "renew without the token": (
        queue_checks.zombies_touch_nothing,
        scripted("extend", "if holder_of(lock) == item[3] then", "if true then"),
    ),
    "claim without a lock": (
        queue_checks.claims_are_never_without_a_lock,
        scripted("claim", LOCKED, "if true then"),
    ),
    "lock without NX": (
        queue_checks.rivals_never_share_a_message,
        scripted("claim", LOCKED, LOCKED.replace("'NX', ", "")),
    ),
    "sweep without a look at the lock": (
        queue_checks.claims_are_never_without_a_lock,
        lambda patch: (
            scripted("look", "== 1 and 'locked'", "== 2 and 'locked'")(patch),
            scripted("sweep", "if not holder_of(lock_of(item[1], id)) then", "if true then")(patch),
        )[0],
    ),
    "another id in the sweeper": (
        queue_checks.what_is_held_is_not_swept_whatever_its_id,
        another_id_in_the_sweeper,
    ),
    "crashes cost nothing": (queue_checks.a_crash_costs_an_attempt, crashes_are_free),
    "equal members in the delayed set": (
        queue_checks.equal_messages_stay_two,
        scripted("settle", "while added == 0 do", "while false do"),
    ),
    "two-step pump": (queue_checks.pumps_move_each_message_once, two_step_pump),
    "two-step settle": (queue_checks.a_worker_that_dies_while_settling_loses_nothing, two_step_settle),
}


@pytest.fixture
async def make(redis_server: Redis) -> AsyncIterator[Make]:
    redis_server.flush()
    clients: list[Client] = []

    def make() -> Lists:
        clients.append(Client.from_url(redis_server.url()))
        return Lists(clients[-1])

    yield make
    for client in clients:
        await client.aclose()


@pytest.mark.req("S3-33", "S3-38", "S3-44")
@pytest.mark.parametrize("name", list(dict.fromkeys(check.__name__ for check, _ in CONTROLS.values())))
async def test_the_check_passes(name: str, make: Make) -> None:
    await getattr(queue_checks, name)(make)


@pytest.mark.parametrize("guard", CONTROLS)
async def test_without_the_guard_its_check_fails(guard: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    check, sabotage = CONTROLS[guard]
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        await check(make)
