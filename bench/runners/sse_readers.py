"""Thousands of readers of live streams in one process, and the producer whose notifications they time."""

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

CONNECTIONS = 32
LIMIT_SECONDS = 120.0
PACE_SECONDS = 0.01
# Half the streams at a time: a thousand connects at once would measure the listener's queue.
CONNECT_AT_ONCE = 250
TABLE = "CREATE TABLE told (user_id text NOT NULL, number bigint PRIMARY KEY, body bytea NOT NULL)"
WRITE_DOWN = "INSERT INTO told VALUES ($1, $2, $3)"
_NUMBER = re.compile(rb'"n": ?(\d+)')


class Wire:
    """How one server is spoken to."""

    def __init__(self, kind: str) -> None:
        self._ours = kind == "ours"

    def subscribe(self, user: str) -> bytes:
        path = f"/notifications/stream?user_id={user}" if self._ours else f"/sub/{user}"
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()

    def publish(self, user: str, number: int) -> bytes:
        payload = {"n": number, "text": "x" * 100}
        said: dict[str, Any] = {"event_id": f"e-{number}", "event_type": "job.new", "user_id": user, "payload": payload}
        body = json.dumps(said).encode()
        path = "/notifications" if self._ours else f"/pub/{user}"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Reader(asyncio.Protocol):
    """One stream; every notification in it is noted with its time."""

    def __init__(self, readers: "Readers") -> None:
        self._readers = readers
        self._open = False

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self._open = True
            self._readers.opened("" if b" 200 " in data[:20] else data.decode(errors="replace"))
        for found in _NUMBER.finditer(data):
            self._readers.heard(int(found[1]))


class Readers:
    """All of them, and what they heard."""

    def __init__(self) -> None:
        self.open = 0
        self.frames = 0
        self.refusal = ""
        self.at: dict[int, float] = {}
        self._wanted = (0, 0)
        self._enough = asyncio.Event()

    def opened(self, refusal: str) -> None:
        self.refusal = self.refusal or refusal
        self.open += 1
        self._look()

    def heard(self, number: int) -> None:
        self.frames += 1
        self.at[number] = time.perf_counter()
        self._look()

    async def until(self, *, open_streams: int = 0, frames: int = 0) -> None:
        self._wanted = (open_streams, frames)
        self._enough.clear()
        self._look()
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._enough.wait()
        if self.refusal:
            raise RuntimeError(f"a stream was refused: {self.refusal[:300]}")

    def _look(self) -> None:
        if self.open >= self._wanted[0] and self.frames >= self._wanted[1]:
            self._enough.set()


class Bench:
    """One server under its readers."""

    def __init__(self, kind: str, port: int, pids: list[int], pool: "asyncpg.Pool[asyncpg.Record] | None") -> None:
        """With a pool the producer writes down what it publishes, and publishes what is committed."""
        self._wire = Wire(kind)
        self._pool = pool
        self._port = port
        self._pids = pids
        self._readers = Readers()
        self._numbers = iter(range(1, 10_000_000))

    async def memory(self, people: int) -> float:
        """Kilobytes of the server for each idle stream."""
        before = self._resident()
        await self._subscribe([f"user-{number}" for number in range(people)])
        # Whatever the server does once for each stream it does before it is weighed.
        await asyncio.sleep(1.0)
        return (self._resident() - before) / people

    async def rate(self, people: int, total: int) -> float:
        """Notifications a second, one for a person at a time, from the first request to the last frame."""
        work = asyncio.Queue[tuple[str, int]]()
        for number in range(total):
            work.put_nowait((f"user-{number % people}", next(self._numbers)))
        wanted = self._readers.frames + total
        began = time.perf_counter()
        await asyncio.gather(*(self._publish(work) for _ in range(CONNECTIONS)))
        await self._readers.until(frames=wanted)
        return total / (time.perf_counter() - began)

    async def fan_out(self, readers: int, total: int) -> float:
        """Frames a second where one person has many streams."""
        await self._subscribe(["crowd"] * readers)
        work = asyncio.Queue[tuple[str, int]]()
        for _ in range(total):
            work.put_nowait(("crowd", next(self._numbers)))
        wanted = self._readers.frames + total * readers
        began = time.perf_counter()
        await self._publish(work)
        await self._readers.until(frames=wanted)
        return total * readers / (time.perf_counter() - began)

    async def latency(self, people: int, total: int) -> list[float]:
        """Milliseconds from a request to its frame, one after the other."""
        took: list[float] = []
        for _ in range(total):
            work = asyncio.Queue[tuple[str, int]]()
            number = next(self._numbers)
            work.put_nowait((f"user-{number % people}", number))
            began = time.perf_counter()
            wanted = self._readers.frames + 1
            await self._publish(work)
            await self._readers.until(frames=wanted)
            took.append((self._readers.at[number] - began) * 1000)
            await asyncio.sleep(PACE_SECONDS)
        return took

    async def _subscribe(self, users: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for start in range(0, len(users), CONNECT_AT_ONCE):
            some = users[start : start + CONNECT_AT_ONCE]
            opening = [loop.create_connection(lambda: Reader(self._readers), "127.0.0.1", self._port) for _ in some]
            wanted = self._readers.open + len(some)
            for user, (transport, _) in zip(some, await asyncio.gather(*opening), strict=True):
                transport.write(self._wire.subscribe(user))
            await self._readers.until(open_streams=wanted)

    async def _publish(self, work: asyncio.Queue[tuple[str, int]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while not work.empty():
                user, number = work.get_nowait()
                request = self._wire.publish(user, number)
                if self._pool is not None:
                    await self._pool.execute(WRITE_DOWN, user, number, request)
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith((b"HTTP/1.1 20", b"HTTP/1.0 20")):
                    raise RuntimeError(head.decode())
                lines = head.lower().split(b"\r\n")
                await reader.readexactly(
                    next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                )
        finally:
            writer.close()

    def processor(self) -> float:
        """Seconds that the server's processes have run; a busy machine makes them late, not longer."""
        stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids)
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")

    def _resident(self) -> float:
        found = 0
        for pid in self._pids:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found += int(line.split()[1])
        return found


async def main(
    *, kind: str, port: int, pids: list[int], streams: int, total: int, dsn: str | None = None
) -> dict[str, Any]:
    pool = None
    if dsn is not None:
        pool = await asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS)
        await pool.execute(TABLE)
    bench = Bench(kind, port, pids, pool)
    found: dict[str, Any] = {"kilobytes": await bench.memory(streams)}
    # What is made on the first use is made before the clock runs.
    await bench.rate(streams, 200)
    found["latency_ms"] = await bench.latency(streams, 200)
    before = bench.processor()
    found["rate"] = await bench.rate(streams, total)
    found["processor_us"] = (bench.processor() - before) / total * 1e6
    found["fan_out"] = await bench.fan_out(1000, 20)
    return found


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(uvloop.run(main(**asked))))
