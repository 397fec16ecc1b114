"""Carillon whose own clock is wrong: `python -m tests.support.wrong_clock serve …`, by `CLOCK_SHIFT` seconds.

libfaketime changes what a process reads, but not what the kernel waits for. A library that asks the kernel to wake it
at a time of day, as librdkafka does, then sleeps for an hour, or not at all and spins: joining a group took 4.7 seconds
of processor time instead of 0.1, and once it did not end. On a machine whose clock is wrong, process and kernel agree.
So a program that uses such a library gets the wrong time from Python alone.
"""

import os
import time

SHIFT = "CLOCK_SHIFT"


def shift_clock(seconds: int) -> None:
    """Make the time of day wrong; clocks that only measure durations stay right."""
    true_seconds, true_nanoseconds = time.time, time.time_ns
    vars(time)["time"] = lambda: true_seconds() + seconds
    vars(time)["time_ns"] = lambda: true_nanoseconds() + seconds * 1_000_000_000


if __name__ == "__main__":
    shift_clock(int(os.environ[SHIFT]))
    # Later, so that a name imported from `time` is the wrong clock too.
    from carillon import cli

    cli.main()
