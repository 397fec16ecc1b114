"""From a request to Carillon to the call that arrives at a sink in this process, one after the other."""

import asyncio
import json
import sys
import time

import uvloop

from bench.stage import WELCOME
from carillon.providers.http import Answer, HttpClient, Request


async def main(port: int, count: int) -> None:
    arrived = asyncio.Event()
    at = 0.0

    async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
                at = time.perf_counter()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                arrived.set()
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(sink, "127.0.0.1", port)
    print(json.dumps({"event": "ready"}), flush=True)
    address = (await asyncio.to_thread(sys.stdin.readline)).strip()
    client = HttpClient()
    body = json.dumps({**WELCOME, "channel": "webhook", "recipient": f"http://127.0.0.1:{port}/hook"}).encode()
    took: list[float] = []
    for number in range(count + 20):
        arrived.clear()
        began = time.perf_counter()
        request = Request(
            url=f"{address}/api/v1/notifications/send",
            timeout_seconds=10,
            body=body,
            headers={"Content-Type": "application/json"},
        )
        answer = await client.post(request)
        if not isinstance(answer, Answer) or not answer.ok:
            raise RuntimeError(str(answer))
        await asyncio.wait_for(arrived.wait(), 10)
        if number >= 20:
            took.append((at - began) * 1000)
        await asyncio.sleep(0.005)
    print(json.dumps({"took_ms": took}), flush=True)
    await client.aclose()
    server.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
