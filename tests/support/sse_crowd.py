"""A crowd of readers who come again wherever somebody answers, each from where it stopped."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

_PATIENCE = 40.0
_AGAIN_SECONDS = 0.1


class Told(NamedTuple):
    """One notification as its reader heard it."""

    seq: int
    notification_id: str
    priority: str
    payload: Any


class Listener:
    """One person with one connection at a time."""

    def __init__(self, user: str, addresses: Callable[[], Sequence[str]], dice: random.Random) -> None:
        """`addresses` are those of the processes that live now."""
        self.user = user
        self.told: list[Told] = []
        self.gaps = 0
        self._addresses = addresses
        self._dice = dice
        self._last: int | None = None
        """The last event id, as a browser keeps it; 0 is a position too: a reader without an entry resumes there."""
        self.at: str | None = None
        """Where this person listens now."""
        self._writer: asyncio.StreamWriter | None = None

    async def listen(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._once()
            except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                pass
            finally:
                self.hang_up()
            await asyncio.sleep(_AGAIN_SECONDS * (1 + self._dice.random()))

    def hang_up(self) -> None:
        """As a phone does in a tunnel."""
        self.at = None
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def _once(self) -> None:
        address = self._dice.choice(self._addresses())
        reader, self._writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        since = "" if self._last is None else f"Last-Event-ID: {self._last}\r\n"
        self._writer.write(
            f"GET /notifications/stream?user_id={self.user} HTTP/1.1\r\nHost: localhost\r\n{since}\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
        if b" 200 " not in head.partition(b"\r\n")[0]:
            return
        chunked = b"chunked" in head.lower()
        buffered = b""
        while data := await (_chunk(reader) if chunked else reader.read(65536)):
            *frames, buffered = (buffered + data).split(b"\n\n")
            for frame in frames:
                self._hear(frame.decode())
                # Only who knows a place to resume from listens: before it, nothing can be missed.
                self.at = address

    def _hear(self, frame: str) -> None:
        fields = dict(line.split(": ", 1) for line in frame.split("\n") if ": " in line)
        if "id" in fields:
            self._last = int(fields["id"])
        match fields.get("event"):
            case "notification":
                said = json.loads(fields["data"])
                self.told.append(Told(int(fields["id"]), said["notification_id"], said["priority"], said["payload"]))
            case "gap":
                self.gaps += 1
            case _:
                pass


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int(await reader.readuntil(b"\r\n"), 16)
    data = await reader.readexactly(size + 2)
    return data[:-2]


class Crowd:
    """As many listeners as there are people; a context."""

    def __init__(self, people: int, addresses: Callable[[], Sequence[str]], seed: int) -> None:
        dice = random.Random(seed)
        self.listeners = {
            f"user-{number}": Listener(f"user-{number}", addresses, random.Random(dice.random()))
            for number in range(people)
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        # A group: a listener that fails by itself ends the test at once and says why.
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(each.listen()) for each in self.listeners.values()]
        return self

    async def __aexit__(self, *why: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(*why)  # type: ignore[arg-type]

    @property
    def heard(self) -> int:
        return sum(len(each.told) for each in self.listeners.values())

    @property
    def listening(self) -> int:
        return sum(each.at is not None for each in self.listeners.values())

    def listening_at(self, address: str) -> int:
        return sum(each.at == address for each in self.listeners.values())


def wrong(crowd: Crowd, wanted: dict[str, list[int]]) -> list[str]:
    """What is missing, doubled or not in the order of its numbers; `wanted` are the payloads' numbers by person."""
    found = []
    for user, listener in crowd.listeners.items():
        numbers = [told.payload["n"] for told in listener.told]
        places = [told.seq for told in listener.told]
        if missing := set(wanted.get(user, [])) - set(numbers):
            found.append(f"{user} was never told {sorted(missing)}")
        if len(numbers) != len(set(numbers)):
            found.append(f"{user} was told twice: {sorted(numbers)}")
        if unexpected := set(numbers) - set(wanted.get(user, [])):
            found.append(f"{user} was told {sorted(unexpected)}, which is not theirs")
        if places != sorted(places):
            found.append(f"{user} heard numbers out of order: {places}")
        if listener.gaps:
            found.append(f"{user} got a gap event")
    return found


def out_of_turn(crowd: Crowd, since: int) -> list[str]:
    """Who was told something of one priority before what had come earlier, among what came from this number on."""
    found = []
    for user, listener in crowd.listeners.items():
        for priority in ("HIGH", "MEDIUM", "LOW"):
            numbers = [told.payload["n"] for told in listener.told if told.priority == priority]
            late = [number for number in numbers if number >= since]
            if late != sorted(late):
                found.append(f"{user}, {priority}: {late}")
    return found
