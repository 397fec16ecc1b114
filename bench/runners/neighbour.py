"""A neighbour's notifications, one after the other, while an endpoint beside its own is slow, hangs, or is flooded."""

import asyncio
import json
import sys
import time
from contextlib import suppress

import uvloop

from bench.runners.our_latency import ANSWER
from bench.stage import WELCOME
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest

WARM_UP = 10
SLOW_SECONDS = 0.05
LONGEST_SECONDS = 60.0
BETWEEN_SECONDS = 0.02


class Endpoint:
    """Answers after `seconds`; None never answers. Remembers when the calls came and ended."""

    def __init__(self, seconds: float | None = 0.0) -> None:
        self._seconds = seconds
        self.arrived = asyncio.Event()
        self.at = 0.0
        self.ends: list[float] = []
        self.calling = 0
        self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                await reader.readexactly(next(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
                self.at = time.perf_counter()
                self.arrived.set()
                await self._answer(writer)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        self.calling += 1
        self.most = max(self.most, self.calling)
        try:
            if self._seconds is None:
                await asyncio.sleep(3600)
            elif self._seconds:
                await asyncio.sleep(self._seconds)
            writer.write(ANSWER)
            self.ends.append(time.perf_counter())
        finally:
            self.calling -= 1

    def rate(self) -> float:
        """Calls a second, without the first and the last tenth."""
        cut = len(self.ends) // 10
        inner = self.ends[cut : len(self.ends) - cut]
        return (len(inner) - 1) / (inner[-1] - inner[0]) if len(inner) > 1 and inner[-1] > inner[0] else 0.0


class Sender:
    """Sends to one endpoint through Carillon, as one tenant."""

    def __init__(self, client: HttpClient, address: str, port: int, tenant: str) -> None:
        self._client = client
        self._url = f"{address}/api/v1/notifications/send"
        self._body = json.dumps(
            {**WELCOME, "channel": "webhook", "recipient": f"http://127.0.0.1:{port}/hook", "tenantId": tenant}
        ).encode()

    async def __call__(self) -> None:
        headers = {"Content-Type": "application/json"}
        answer = await self._client.post(
            HttpRequest(url=self._url, timeout_seconds=30, body=self._body, headers=headers)
        )
        if not isinstance(answer, HttpAnswer) or not answer.ok:
            raise RuntimeError(str(answer))


async def flood(send: Sender, count: int) -> None:
    """At full speed over four connections."""
    left = iter(range(count))

    async def connection() -> None:
        for _ in left:
            await send()

    await asyncio.gather(*(connection() for _ in range(4)))


async def timed(send: Sender, own: Endpoint) -> float:
    own.arrived.clear()
    began = time.perf_counter()
    await send()
    with suppress(TimeoutError):
        await asyncio.wait_for(own.arrived.wait(), LONGEST_SECONDS)
        return (own.at - began) * 1000
    return LONGEST_SECONDS * 1000


async def main(port: int, beside_port: int, kind: str, count: int) -> None:
    own = Endpoint()
    beside = Endpoint({"slow": SLOW_SECONDS, "hanging": None}.get(kind, 0.0))
    servers = [
        await asyncio.start_server(one.serve, "127.0.0.1", at) for one, at in ((own, port), (beside, beside_port))
    ]
    print(json.dumps({"event": "ready"}), flush=True)
    address = (await asyncio.to_thread(sys.stdin.readline)).strip()
    client = HttpClient()
    send = Sender(client, address, port, "neighbour")
    noise = None
    if kind == "flood":
        noise = asyncio.create_task(flood(Sender(HttpClient(), address, beside_port, "stranger"), 1_000_000))
    took: list[float] = []
    for _ in range(count + WARM_UP):
        took.append(await timed(send, own))
        await asyncio.sleep(BETWEEN_SECONDS)
    if noise is not None:
        noise.cancel()
    print(json.dumps({"took_ms": took[WARM_UP:], "rate": beside.rate(), "most": beside.most}), flush=True)
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
