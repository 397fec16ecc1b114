"""The real clock, dice and ids, which tests replace, and the watchdog of a hanging event loop."""

import asyncio
import gc
import os
import random
import threading
import time

# Seeded once: ids must be unique, not secret, and a system call for each would cost more than the id.
_noise = random.Random()  # noqa: S311 - see above


_NEW_OBJECTS = 20_000
HUNG_EXIT_CODE = 70
TICK_SECONDS = 1.0


class SystemClock:
    """The machine's time; `scale` below 1 shortens every wait, for drills and tests only."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._scale)


def collect_rarely() -> None:
    """Call after the start: exempt all objects so far from garbage collection, and collect the rest seldom.

    Hardly any of our objects are part of a cycle; a search at every 700th new object costs more than the cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


def collect_no_more() -> None:
    """Call after closing: skip the last garbage collection, which would take longer than the closing."""
    gc.freeze()


def system_dice() -> float:
    """Uniform in [0, 1); jitter needs no cryptography."""
    return random.random()  # noqa: S311 - jitter, not a secret


_given = 0
"""The time of the last id, in units of 1/4096 ms."""


def new_id() -> str:
    """A UUIDv7: unique, and growing with each call, so that ids of one process say what came first."""
    global _given  # noqa: PLW0603 - a process has one clock
    whole, rest = divmod(time.time_ns(), 1_000_000)
    # A clock that stands still, or goes back, must not make a later id smaller.
    moment = _given = max(_given + 1, whole << 12 | rest * 4096 // 1_000_000)
    value = (moment >> 12 & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (moment & 0xFFF) << 64
    value |= 0b10 << 62 | _noise.getrandbits(62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Watchdog:
    """Ends a process whose event loop hangs; counts ticks, so that a suspended process does not count as hanging."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = max(2, round(limit_seconds / TICK_SECONDS))
        self._beats = 0
        self._done = threading.Event()

    async def run(self) -> None:
        """Count heartbeats in the event loop while a thread watches them."""
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            while True:
                self._beats += 1
                await asyncio.sleep(TICK_SECONDS / 2)
        finally:
            self._done.set()

    def _watch(self) -> None:
        seen, missed = 0, 0
        while not self._done.wait(TICK_SECONDS):
            missed = missed + 1 if self._beats == seen else 0
            seen = self._beats
            if missed >= self._limit:
                line = f'{{"level":"critical","event":"loop_hung","message":"no heartbeat for {missed} s, exiting"}}\n'
                os.write(1, line.encode())
                time.sleep(0.05)
                os._exit(HUNG_EXIT_CODE)
