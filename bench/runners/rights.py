"""Exports and erases a person with many notifications in a large ledger: seconds, and how the memory grew."""

import json
import resource
import sys
import time

import msgspec
import uvloop

from carillon.ledger.opening import open_ledger
from carillon.system import SystemClock
from carillon.upkeep.consent.rights import erase, exported


async def main(dsn: str) -> None:
    ledger = await open_ledger(dsn)
    encoder = msgspec.json.Encoder()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, lines, size = time.perf_counter(), 0, 0
    async for thing in exported(ledger, None, "canary"):
        lines, size = lines + 1, size + len(encoder.encode(thing))
    took = time.perf_counter() - began
    grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    began = time.perf_counter()
    found = await erase(ledger, SystemClock(), None, "canary", actor="bench")
    erased = time.perf_counter() - began
    began = time.perf_counter()
    await erase(ledger, SystemClock(), None, "nobody", actor="bench")
    again = time.perf_counter() - began
    await ledger.aclose()
    figures = {
        f"export of {lines:,} lines, {size / 1e6:.0f} MB": (took, "s"),
        "memory that the export took": (grew, "MB"),
        f"erasure of {found.removed['records']:,} notifications": (erased, "s"),
        "erasure of a person whom nothing names": (again, "s"),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
