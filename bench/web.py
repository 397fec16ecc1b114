"""The web room against Starlette and Litestar: what one accepted notification costs, with and without the ledger."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.measure import Figure, Outcome, Ratio, interleaved
from bench.peers.install import libraries
from bench.stage import started, wrk
from tests.support.servers import Postgres

PART = "web"
FOLDER = Path(".bench/web")
PINS = Path(__file__).parent / "peers" / "requirements-web.txt"
OURS = "Carillon on granian"
RIVALS = {
    f"{framework.capitalize()} on {server}": (framework, server)
    for framework in ("starlette", "litestar")
    for server in ("granian", "uvicorn")
}
_FEW = 0.02
MODES = {"no ledger": "bare", "ledger": "coalesced"}


def measure(postgres: Postgres, progress: Callable[[str], None], rounds: int = 3, seconds: float = 3.0) -> Outcome:
    """Processor time of the server process for one request at 64 connections: JSON checked against its type, 202.

    Time of the processor and not of the clock, because the load comes from the same machine; requests a second are
    shown beside it.
    """
    versions = libraries(PINS, FOLDER, progress)
    rates: dict[str, list[float]] = {}

    def cost(name: str, module: str, *args: str) -> float:
        command = [sys.executable, "-m", f"bench.runners.{module}", *args, postgres.database(), str(FOLDER.absolute())]
        with started(command) as (process, ready):
            wrk(ready["addresses"][0], 1.0)
            before = _processor_seconds(process.pid)
            found = wrk(ready["addresses"][0], seconds)
            spent = _processor_seconds(process.pid) - before
        # On a busy machine wrk gives up on a few requests; a server that refuses would refuse all.
        if found["bad"] > _FEW * found["rate"] * seconds:
            raise RuntimeError(f"{name}: {found['bad']:.0f} requests were not accepted")
        rates.setdefault(name, []).append(found["rate"])
        return spent / (found["rate"] * seconds) * 1e6

    subjects: dict[str, Callable[[], float]] = {}
    for words, mode in MODES.items():
        subjects[f"{OURS}, {words}"] = partial(cost, f"{OURS}, {words}", "door", mode)
        for rival, (framework, server) in RIVALS.items():
            name = f"{rival}, {words}"
            subjects[name] = partial(cost, name, "web_door", framework, server, mode)
    outcome = Outcome(interleaved(PART, "µs/request", subjects, rounds, progress))
    for words, mode in MODES.items():
        ours = outcome.median(f"{OURS}, {words}")
        outcome.ratios += [
            Ratio(f"web/{framework}-{server}/{mode}", outcome.median(f"{rival}, {words}") / ours, 1.0)
            for rival, (framework, server) in RIVALS.items()
        ]
    outcome.figures += [Figure(PART, name, "requests/s", found) for name, found in rates.items()]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    outcome.settings = {"web": f"wrk, 1 thread, 64 connections, {seconds:g} s, {rounds} rounds; {named}"}
    return outcome


def _processor_seconds(pid: int) -> float:
    """User and system time of a process with all of its threads."""
    # The name in parentheses may hold spaces; the fields are counted behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
