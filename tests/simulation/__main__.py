"""`make simulate`: many worlds on every core; `make simulate SEED=17` plays one of them again."""

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec

from tests.simulation.world import Simulated, World

DELIVERIES, EACH, PER_CRASH = 1_000_000, 2000, 50
"""Deliveries in all, in one world, and for each crash."""
_SUMMED: tuple[str, ...] = (
    *("deliveries", "calls", "crashes", "stops", "repeats", "in_flight", "silent"),
    *("stale", "adopted", "leases_lost", "dead_letters", "turns", "virtual_seconds"),
)


def play(seed: int, deliveries: int, crashes: int) -> Simulated:
    """One world."""
    return World(seed, deliveries, crashes).run()


def simulated(seeds: range, deliveries: int, crashes: int, cores: int) -> Iterator[Simulated]:
    """The worlds of these seeds, in the order of the seeds."""
    if cores == 1:
        yield from (play(seed, deliveries, crashes) for seed in seeds)
        return
    with ProcessPoolExecutor(cores) as pool:
        yield from pool.map(play, seeds, *([number] * len(seeds) for number in (deliveries, crashes)))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="play only this world, and twice: its digests must be equal")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first world")
    parser.add_argument("--deliveries", type=int, default=DELIVERIES, help="in all worlds together")
    parser.add_argument("--each", type=int, default=EACH, help="deliveries of one world")
    parser.add_argument("--per-crash", type=int, default=PER_CRASH, help="deliveries for each crash")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _say(figures: object) -> None:
    sys.stdout.write(f"{msgspec.json.format(msgspec.json.encode(figures)).decode()}\n")


def main() -> int:
    """Print the figures as JSON; the exit code says whether a promise was broken."""
    options = asked()
    crashes = options.each // options.per_crash
    if options.seed is not None:
        first, second = (play(options.seed, options.each, crashes) for _ in range(2))
        if first.digest != second.digest:
            first.wrong.append("played twice, it has two digests")
        _say(first)
        return bool(first.wrong)
    began, sums, broken = time.monotonic(), dict.fromkeys(_SUMMED, 0.0), 0
    seeds = range(options.first, options.first + -(-options.deliveries // options.each))
    for world in simulated(seeds, options.each, crashes, options.cores):
        for name in _SUMMED:
            sums[name] += getattr(world, name)
        if world.wrong:
            broken += 1
            sys.stderr.write("\n  ".join([f"SEED={world.seed}:", *world.wrong]) + "\n")
    seconds = time.monotonic() - began
    figures: dict[str, float] = {name: round(number) for name, number in sums.items()}
    figures |= {"worlds": len(seeds), "broken_worlds": broken, "seconds": round(seconds, 1)}
    figures["deliveries_per_second"] = round(sums["deliveries"] / seconds)
    # On a machine that others use too, this says more than the seconds.
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures["processor_seconds"] = round(sum(one.ru_utime + one.ru_stime for one in used), 1)
    _say(figures)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
