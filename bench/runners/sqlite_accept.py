"""Accepts notifications into a ledger on SQLite from many callers at once, one for each call, as the HTTP door does."""

import asyncio
import json
import sys
import time

import uvloop

from bench.runners.fill import enrolment
from carillon.ledger.opening import open_ledger


async def main(url: str, callers: int, each: int) -> None:
    ledger = await open_ledger(url)
    await ledger.migrate()

    async def call() -> None:
        for _ in range(each):
            await ledger.enrol([enrolment("push", "sandbox", "device-1")])

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    seconds = time.perf_counter() - began
    await ledger.aclose()
    print(json.dumps({"rate": callers * each / seconds}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
