"""From a request to Carillon to the call that arrives at a sink in this process, one after the other."""

import asyncio
import json
import sys
import time

import uvloop

from bench.stage import WELCOME
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest

WARM_UP = 20
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Sink:
    """Answers every request at once and remembers when the last one came."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.at = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                await reader.readexactly(next(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
                self.at = time.perf_counter()
                writer.write(ANSWER)
                self.arrived.set()
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()


async def main(port: int, count: int) -> None:
    sink = Sink()
    server = await asyncio.start_server(sink.serve, "127.0.0.1", port)
    print(json.dumps({"event": "ready"}), flush=True)
    address = (await asyncio.to_thread(sys.stdin.readline)).strip()
    client = HttpClient()
    body = json.dumps({**WELCOME, "channel": "webhook", "recipient": f"http://127.0.0.1:{port}/hook"}).encode()
    url, headers = f"{address}/api/v1/notifications/send", {"Content-Type": "application/json"}
    took: list[float] = []
    for _ in range(count + WARM_UP):
        sink.arrived.clear()
        began = time.perf_counter()
        answer = await client.post(HttpRequest(url=url, timeout_seconds=10, body=body, headers=headers))
        if not isinstance(answer, HttpAnswer) or not answer.ok:
            raise RuntimeError(str(answer))
        await asyncio.wait_for(sink.arrived.wait(), 10)
        took.append((sink.at - began) * 1000)
        await asyncio.sleep(0.005)
    print(json.dumps({"took_ms": took[WARM_UP:]}), flush=True)
    await client.aclose()
    server.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
