"""A vendor that is down: an open breaker uses up no attempt, Retry-After is kept, and nothing is dead-lettered."""

import time
from collections.abc import Callable

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.stand import Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

MESSAGES, THRESHOLD, PROBES = 300, 5, 4
ASKED = 2


async def outage(stand: Stand, mutant: str | None = None) -> tuple[int, int]:
    """Down until the breaker has probed a few times, then well again; returns calls and probes while down."""
    stand.vendor.default = Reply(status=503)
    await stand.start("doors")
    await stand.send(stand.webhooks(f"m{place}" for place in range(MESSAGES)))
    worker = await stand.start("outbound,upkeep", mutant=mutant)

    def probes() -> int:
        return sum(line["after"] == "half_open" for line in worker.events("breaker_changed"))

    async def seen_enough() -> bool:
        return probes() >= PROBES or bool(await tables.read(stand.url, tables.DEAD))

    await until(seen_enough, timeout=60, what="a few probes")
    stand.vendor.default = Reply()
    calls = len(stand.vendor.entries)
    properties.no_attempt_burnt(calls, THRESHOLD + stand.rules.concurrency + probes())
    await stand.until_terminal(MESSAGES)
    return calls, probes()


async def asked_to_wait(stand: Stand, mutant: str | None = None) -> float:
    """The vendor's first answer is `come back later`; returns the shortest wait it got."""
    stand.vendor.answer(*(Reply(status=503, headers={"Retry-After": str(ASKED)}) for _ in range(10)))
    await stand.start(mutant=mutant)
    began = time.monotonic()
    await stand.send(stand.webhooks(f"m{place}" for place in range(10)))
    await stand.until_terminal(10)
    assert time.monotonic() - began < ASKED + 40
    return properties.waited_as_asked(stand, ASKED)


async def test_an_outage_burns_no_attempts_and_buries_nobody(
    make_stand: MakeStand, figures: Callable[..., None]
) -> None:
    async with make_stand(attempts=3, failures=THRESHOLD, open_seconds=0.5, delay=0.1) as stand:
        calls, probes = await outage(stand)
        await properties.all_published(stand)
        report = await properties.everything_holds(stand)
        assert report.duplicates == {}
        figures(messages=MESSAGES, calls_while_down=calls, probes=probes, dead_letters=0, repeats=0)


async def test_a_retry_after_is_kept(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand() as stand:
        shortest = await asked_to_wait(stand)
        await properties.all_published(stand)
        figures(asked=ASKED, shortest_wait=round(shortest, 3))
