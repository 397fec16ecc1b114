"""Enrols, claims and settles through the ledger at a constant depth, and says how the rate went."""

import asyncio
import json
import sys
import time

import uvloop

from bench.runners.fill import enrolment
from carillon.domain.claims import AttemptNote, Settlement, Want
from carillon.domain.verdicts import Finish
from carillon.ledger.opening import open_ledger

BATCH = 500
NOTE = AttemptNote(provider="sandbox", outcome="sent", duration_ms=0.1, provider_message_id="bench")


async def main(dsn: str, seconds: float) -> None:
    ledger = await open_ledger(dsn)
    counts: list[int] = []
    began = time.perf_counter()
    claiming, settling = 0.0, None
    while (now := time.perf_counter() - began) < seconds:
        asked = time.perf_counter()
        claims = await ledger.claim([Want(2, "sandbox", BATCH)], BATCH, "bench")
        claiming += time.perf_counter() - asked
        if settling is not None:
            await settling
        if not claims:
            raise RuntimeError("the backlog ran dry")
        settling = asyncio.ensure_future(
            ledger.settle([Settlement(claim=claim, verdict=Finish(), note=NOTE) for claim in claims])
        )
        await ledger.enrol([enrolment("push", "sandbox", "device-1") for _ in claims])
        counts += [0] * (int(now) + 1 - len(counts))
        counts[int(now)] += len(claims)
    if settling is not None:
        await settling
    await ledger.aclose()
    print(json.dumps({"per_second": counts, "rate": sum(counts) / seconds, "claims": sum(counts) / claiming}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2])))
