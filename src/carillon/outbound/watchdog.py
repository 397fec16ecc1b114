"""The watchdog: it ends a process whose event loop hangs, so that a supervisor starts a new one."""

import asyncio
import os
import threading
import time

EXIT_CODE = 70
TICK_SECONDS = 1.0


class Watchdog:
    """Counts ticks instead of reading the clock: a process that was suspended and resumed has not hung."""

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
                os._exit(EXIT_CODE)
