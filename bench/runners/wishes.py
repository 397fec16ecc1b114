"""Accepts and claims in turns on two ledgers, one with few people and one with many: microseconds of each operation."""

import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop
from msgspec.structs import replace

from bench.runners.fill import enrolment
from carillon.domain.claims import AttemptNote, Settlement, Want
from carillon.domain.digests import DigestEntry, ThrottleEntry, ThrottleRule
from carillon.domain.notifications import Enrolment, Status
from carillon.domain.verdicts import Finish
from carillon.ledger.opening import Ledger, open_ledger
from carillon.system import new_id

BATCH = 100
NOTE = AttemptNote(provider="sandbox", outcome="sent", duration_ms=0.1, provider_message_id="bench")
# Nobody is ever over it: what is over is skipped, and the few people of the small ledger would be over it soon.
RULE = ThrottleRule(3, 0.001, "3 in 1ms")


class Side:
    """One ledger, and the people in it."""

    def __init__(self, ledger: Ledger, people: int, digests: int) -> None:
        self.ledger = ledger
        self._people = people
        self._digests = digests
        self._dice = random.Random(7)

    def _some(self, most: int) -> list[str]:
        """A batch of different people, on both sides: two events of one person share a row."""
        return [f"user-{number}" for number in self._dice.sample(range(most), BATCH)]

    async def accept(self) -> None:
        people: list[tuple[str | None, str]] = [(None, person) for person in self._some(self._people)]
        await self.ledger.preferences(people)
        await self.ledger.enrol([enrolment("push", "sandbox", "device-1") for _ in people])

    async def throttled(self) -> None:
        await self.ledger.enrol([_throttled(person) for person in self._some(self._people)])

    async def gathered(self) -> None:
        await self.ledger.enrol([_gathered(person) for person in self._some(self._digests)])

    async def claim(self) -> float:
        """Claim what `accept` made and settle it; only the claim counts."""
        began = time.perf_counter()
        claims = await self.ledger.claim([Want(2, "sandbox", BATCH)], BATCH, "bench")
        took = time.perf_counter() - began
        await self.ledger.settle([Settlement(claim=claim, verdict=Finish(), note=NOTE) for claim in claims])
        return took / max(1, len(claims))


def _throttled(person: str) -> Enrolment:
    entry = ThrottleEntry(audience=f"user:{person}", category="news", throttle=RULE)
    return replace(enrolment("push", "sandbox", "device-1"), throttles=(entry,))


def _gathered(person: str) -> Enrolment:
    event = enrolment("push", "sandbox", "device-1")
    entry = DigestEntry(
        digest_id=new_id(),
        audience=f"user:{person}",
        channels="push",
        key="news",
        closes_at_ms=round(time.time() * 1000) + 3_600_000,
        most=1_000_000,
        size=10,
        intent_json="{}",
    )
    waits = replace(event.routes[0], status=Status.SKIPPED, skipped_because="gathered in a digest")
    return replace(event, routes=(waits,), digests=(entry,))


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) / BATCH


async def main(few: str, many: str, people: int, digests: int, rounds: int) -> None:
    sides = [Side(await open_ledger(few), 1000, 100), Side(await open_ledger(many), people, digests)]
    found: dict[str, list[list[float]]] = {name: [[], []] for name in ("accept", "claim", "throttle", "digest")}
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            side = sides[which]
            found["accept"][which].append(await _timed(side.accept))
            found["claim"][which].append(await side.claim())
            found["throttle"][which].append(await _timed(side.throttled))
            found["digest"][which].append(await _timed(side.gathered))
            await side.claim()
    for side in sides:
        await side.ledger.aclose()
    print(json.dumps({name: [statistics.median(each) * 1e6 for each in both] for name, both in found.items()}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], *(int(text) for text in sys.argv[3:6])))
