"""A reader of one stream, frame by frame, over a socket that tests can also leave unread."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

PATIENCE = 60.0


@dataclass(frozen=True)
class Frame:
    """One event as the browser's parser would see it, and its bytes."""

    event: str
    data: str
    id: str | None
    raw: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class StreamReader:
    """Opened as a context; reads until it is told to stall or to leave."""

    def __init__(
        self,
        address: str,
        query: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        self.port = int(address.rpartition(":")[2])
        self.target = "/notifications/stream" + (f"?{query}" if query else "")
        self.given = dict(headers or {})
        self.receive_buffer = receive_buffer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.frames: list[Frame] = []
        self.ended = asyncio.Event()
        self._news = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        if self.receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        limit = 2**20 if self.receive_buffer is None else 1024
        self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=limit)
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.given.items())
        self._writer.write(f"GET {self.target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE)).decode()
        first, *rest = head.strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if self.status == 200:
            self.go_on()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"{self.target}: {[(each.event, each.id) for each in self.frames[-10:]]}")
        await self.leave()

    async def leave(self) -> None:
        """Hang up without a word."""
        await self.stall()
        self._writer.transport.abort()

    async def stall(self) -> None:
        """Read nothing any more; the connection stays."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    def go_on(self) -> None:
        """Read again."""
        self._reading = asyncio.create_task(self._read())

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self._writer.write_eof()

    @property
    def told(self) -> list[Frame]:
        """The notifications so far."""
        return [frame for frame in self.frames if frame.event == "notification"]

    @property
    def payloads(self) -> list[Any]:
        return [frame.json["payload"] for frame in self.told]

    @property
    def last_id(self) -> str:
        return next(frame.id for frame in reversed(self.frames) if frame.id is not None)

    async def until(
        self, wanted: Callable[[list[Frame]], bool], what: str = "frames", within: float = PATIENCE
    ) -> None:
        async with self._news:
            try:
                async with asyncio.timeout(within):
                    await self._news.wait_for(lambda: wanted(self.frames))
            except TimeoutError:
                seen = [(frame.event, frame.id) for frame in self.frames[-10:]]
                raise TimeoutError(f"{what}: not within {within} s; {seen}") from None

    async def event(self, name: str) -> Frame:
        """The first frame of that name, as soon as it is there."""
        await self.until(lambda frames: any(frame.event == name for frame in frames), name)
        return next(frame for frame in self.frames if frame.event == name)

    async def number(self, wanted: int) -> list[Frame]:
        """So many notifications."""
        await self.until(lambda _: len(self.told) >= wanted, f"{wanted} notifications")
        return self.told

    async def closed(self) -> None:
        await asyncio.wait_for(self.ended.wait(), PATIENCE)

    async def _read(self) -> None:
        chunked = self.headers.get("transfer-encoding") == "chunked"
        text = b""
        try:
            while True:
                piece = await self._chunk() if chunked else await self._reader.read(65536)
                if not piece:
                    break
                text += piece
                *whole, text = text.split(b"\n\n")
                for frame in whole:
                    await self._take(frame.decode())
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        self.ended.set()
        async with self._news:
            self._news.notify_all()

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def _take(self, raw: str) -> None:
        fields: dict[str, list[str]] = {}
        for line in raw.split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        frame = Frame(
            event=fields.get("event", ["message"])[-1],
            data="\n".join(fields.get("data", [])),
            id=fields["id"][-1] if "id" in fields else None,
            raw=raw,
        )
        async with self._news:
            self.frames.append(frame)
            self._news.notify_all()
