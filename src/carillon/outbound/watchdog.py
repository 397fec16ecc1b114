"""A process whose event loop hangs renews no lease; it is ended, so that a supervisor starts a working one."""

import asyncio
import os
import threading
import time

EXIT_CODE = 70
TICK_SECONDS = 1.0


class Watchdog:
    """Counts its own ticks, not the clock's: a process that was stopped and continued has not hung."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = max(2, round(limit_seconds / TICK_SECONDS))
        self._beats = 0
        self._done = threading.Event()

    async def run(self) -> None:
        """Beat in the loop while a thread outside of it listens."""
        thread = threading.Thread(target=self._listen, name="watchdog", daemon=True)
        thread.start()
        try:
            while True:
                self._beats += 1
                await asyncio.sleep(TICK_SECONDS / 2)
        finally:
            self._done.set()

    def _listen(self) -> None:
        seen, silent = 0, 0
        while not self._done.wait(TICK_SECONDS):
            silent = silent + 1 if self._beats == seen else 0
            seen = self._beats
            if silent >= self._limit:
                line = f'{{"level":"critical","event":"loop_hung","message":"no heartbeat for {silent} s, exiting"}}\n'
                os.write(1, line.encode())
                time.sleep(0.05)
                os._exit(EXIT_CODE)
