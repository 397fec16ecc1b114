"""`make fleet`, `make prove` and `make soak`."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

from tests.fleet import crews, page, soak
from tests.fleet.running import Fleet, Plan, run
from tests.fleet.topology import PlainServers, WholeServers

os.environ["PGSSLMODE"] = "disable"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("what", choices=["fleet", "prove", "soak"])
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults (30)")
    parser.add_argument("--rate", type=float, default=60.0, help="notifications a second over all doors (60)")
    parser.add_argument("--processes", type=int, default=3, help="of each blueprint (3)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the order of faults and their victims (1)")
    parser.add_argument("--blueprints", default=",".join(crews.EVERY), help="some of them, separated by commas")
    parser.add_argument(
        "--only", default="", help="only faults whose names hold one of these texts, each at least once"
    )
    parser.add_argument(
        "--least", type=int, default=0, help="go on until so many were accepted, for half as long again"
    )
    parser.add_argument("--older", default="HEAD", help="the revision that the rolling upgrade starts from")
    parser.add_argument("--keep", default="", help="a folder for the journals, ledgers and logs of the run")
    parser.add_argument("--plain", action="store_true", help="one server of each kind, as in make test")
    parser.add_argument(
        "--no-page", action="store_true", help="print the figures and leave the page as it is, as --only does"
    )
    return parser.parse_args()


async def _play(plan: Plan, *, plain: bool) -> None:
    """Until Ctrl-C."""
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with Fleet(PlainServers if plain else WholeServers, plan, _say) as fleet:
        servers = fleet.world.servers
        _say(f"PostgreSQL  {servers.dsn('postgres')}\nRedis       {servers.redis_url()}")
        _say(f"RabbitMQ    {servers.rabbit_url()}\nKafka       {servers.kafka.bootstrap}")
        for crew in fleet.crews:
            pids = " ".join(f"{crew.ports[number]} (pid {program.pid})" for number, program in crew.alive())
            _say(f"{crew.name:<14}{pids}\n{'':<14}{crew.url}")
        _say(f"logs and ledgers in {fleet.folder}; Ctrl-C ends everything")
        await over.wait()
        _say("ending")


def main() -> int:
    given = _arguments()
    names = tuple(given.blueprints.split(","))
    plan = Plan(
        seconds=given.minutes * 60,
        rate=given.rate,
        size=given.processes,
        seed=given.seed,
        names=names,
        only=given.only,
        older=given.older,
        least=given.least,
        ends_on_signals=given.what != "fleet",
        keep=given.keep,
    )
    servers = PlainServers if given.plain else WholeServers
    # Connections break all the time here, and its client would say each time how.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    # A job in the background of a script ignores Ctrl-C; SIGTERM ends it as cleanly.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        if given.what == "fleet":
            asyncio.run(_play(plan, plain=given.plain))
            return 0
        if given.what == "soak":
            return soak.main(servers, plan, _say, write=not given.no_page)
        outcome = asyncio.run(run(servers, plan, _say))
        _say(page.text(outcome, servers.__name__))
        if not (given.no_page or given.only):
            page.write(outcome, servers.__name__)
        if not outcome.sound:
            _say(f"NOT SOUND\n{outcome.wrong()}")
        return not outcome.sound
    return 130


if __name__ == "__main__":
    sys.exit(main())
