"""`make fuzz`: hostile inputs for every reader, listener and queue; bounded in number and time, repeatable by seed."""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fuzz import messages, parsers, requests, running, web
from tests.fuzz.running import Counts, Finding, Row, Target, feed, table
from tests.support.every_blueprint import EVERY, World
from tests.support.galaxy_stand import PASSWORD
from tests.support.kafka import Kafka
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis

KEPT = Path("build/fuzz")
SHARE_OF_SERVERS = 0.1
"""Of the inputs: a request over a socket costs about ten times as much as a call."""
SHARE_OF_SECONDS = 0.6
EXAMPLES = """examples:
  make fuzz                                          readers, listeners and queues, five minutes at most
  make fuzz ARGS="--seed 7"                          the same inputs as another run with this seed
  make fuzz ARGS="--part readers --number 2000000 --seconds 1800"
  make fuzz ARGS="--only door. --seconds 30"         the readers whose name holds "door."
  make fuzz ARGS="--again build/fuzz/template-7-0"   one kept input again

A finding is an exception that is no refusal, a 5xx, an input that takes more than a second, memory that grows, or
something stored of what was refused. Findings are kept in build/fuzz, and the exit code is 1."""


def main() -> int:
    options = _options()
    if options.again is not None:
        return _again(options.again)
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    counts = Counts(KEPT / "counts.json")
    if options.counts:
        say(table(list(counts.rows.values())))
        return 0
    say(f"seed {seed}; {counts.total:,} inputs in earlier runs")
    rows: list[Row] = []
    findings: list[Finding] = []
    for part in (_readers, _servers):
        if options.part in {"all", part.__name__.strip("_")}:
            found_rows, found = part(options, counts, seed)
            rows += found_rows
            findings += found
    say(f"\n{table(rows)}\n")
    for number, found_one in enumerate(findings):
        path = KEPT / f"{found_one.target}-{found_one.seed}-{number}"
        path.write_bytes(found_one.body)
        say(f"FOUND {found_one.target}: {found_one.error[:1000]}\n  {_repeat(found_one, path, options)}")
    say(f"seed {seed}: {sum(row.tried for row in rows):,} inputs, {len(findings)} found; {counts.total:,} in all runs")
    return 1 if findings else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def targets() -> dict[str, Target]:
    """Every reader of one process, by name."""
    return {**parsers.targets(), **web.targets()}


def _readers(options: argparse.Namespace, counts: Counts, seed: int) -> tuple[list[Row], list[Finding]]:
    chosen = {name: one for name, one in targets().items() if options.only in name}
    if not chosen:
        return [], []
    both = options.part == "all"
    return running.run(
        chosen,
        counts,
        seed=seed,
        number=round(options.number * (1 - SHARE_OF_SERVERS)) if both else options.number,
        seconds=options.seconds * (1 - SHARE_OF_SECONDS) if both else options.seconds,
        say=say,
    )


def _servers(options: argparse.Namespace, counts: Counts, seed: int) -> tuple[list[Row], list[Finding]]:
    """Every blueprint on private servers: its listener, then its broker."""
    listeners = [name for name in EVERY if options.only in f"listener {name}"]
    ways = [name for name in messages.WAYS if options.only in name]
    if not listeners and not ways:
        return [], []
    both = options.part == "all"
    number = round(options.number * SHARE_OF_SERVERS) if both else options.number
    seconds = options.seconds * SHARE_OF_SECONDS if both else options.seconds
    each, long = number // (len(listeners) + len(ways)), seconds / (len(listeners) + len(ways))
    rows: list[Row] = []
    findings: list[Finding] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Postgres() as postgres,
        Redis(password=PASSWORD) as redis_server,
        RabbitMQ() as rabbit,
        Kafka() as kafka,
        World(Path(folder), postgres=postgres, redis_server=redis_server, rabbit=rabbit, kafka=kafka) as world,
    ):
        for name in listeners:
            world.redis.flushall()
            with EVERY[name](world) as blueprint:
                found_rows, found = requests.run(blueprint, seed, number=each, seconds=long, say=say)
            for row in found_rows:
                counts.add(row)
            rows += found_rows
            findings += found
        for name in ways:
            world.redis.flushall()
            with messages.opened(name, world) as blueprint:
                row, found = messages.run(name, blueprint, seed, number=each, seconds=long, say=say)
            counts.add(row)
            rows.append(row)
            findings += found
    return rows, findings


def _repeat(found: Finding, path: Path, options: argparse.Namespace) -> str:
    if found.target in targets() and found.body:
        return f'again: make fuzz ARGS="--again {path}"'
    shape = f"--part {options.part} --number {options.number} --seconds {options.seconds:g}"
    return f'again: make fuzz ARGS="--seed {found.seed} {shape} --only {options.only!r}"; the inputs are in {path}'


def _again(path: Path) -> int:
    """Feed one kept input to the reader that its name says."""
    name = path.name.rsplit("-", 2)[0]
    target = targets().get(name)
    if target is None:
        say(f"{path}: there is no reader {name!r}; the readers are {', '.join(targets())}")
        return 2
    with running.hangs_end() as begin:
        begin()
        answer, wrong = feed(target, path.read_bytes())
    say(f"{name}: {answer if wrong is None else wrong}")
    return 0 if wrong is None else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=200_000, help="inputs, shared out (default: 200000)")
    parser.add_argument("--seconds", type=float, default=300.0, help="the longest time for feeding (default: 300)")
    parser.add_argument("--seed", type=int, help="repeat the run with this seed")
    parser.add_argument("--part", choices=["all", "readers", "servers"], default="all", help="default: all")
    parser.add_argument("--only", default="", help="only those whose name holds this")
    parser.add_argument("--again", type=Path, help="feed one kept input again")
    parser.add_argument("--counts", action="store_true", help="show the sum of all runs in build/fuzz, and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
