"""A producer that repeats each message under its own key until it is accepted, and journals every answer."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import until

Line = dict[str, Any]


class Producer:
    """Writes one line per answer; status 0 means that no answer came."""

    def __init__(self, journal: Path, address: Callable[[], str]) -> None:
        self.journal = journal
        self.lines: list[Line] = []
        self._asking: set[float] = set()
        self._address = address
        # Appending is one system call per line, so a journal torn by a kill still has whole lines before the tear.
        self._file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def close(self) -> None:
        os.close(self._file)

    async def send(
        self, messages: Mapping[str, Mapping[str, Any]], *, at_once: int = 16, within: float = 60.0
    ) -> list[Line]:
        """Every message until it is accepted or refused for good; returns the last answers."""
        deadline = time.monotonic() + within
        slots = asyncio.Semaphore(at_once)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as session:

            async def one(key: str, body: Mapping[str, Any]) -> Line:
                async with slots:
                    return await self._until_answered(session, key, body, deadline)

            return await asyncio.gather(*(one(key, body) for key, body in messages.items()))

    async def once(self, messages: Mapping[str, Mapping[str, Any]]) -> list[Line]:
        """One try of each message, all at the same time."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as session:
            return await asyncio.gather(*(self._post(session, key, body) for key, body in messages.items()))

    async def until_answered(self) -> None:
        """What was asked before now has got its answer, or it is known that none will come."""
        now = time.monotonic()

        async def over() -> bool:
            return all(began > now for began in self._asking)

        await until(over, timeout=40, what="the end of every request under way")

    async def _until_answered(
        self, session: aiohttp.ClientSession, key: str, body: Mapping[str, Any], deadline: float
    ) -> Line:
        while True:
            line = await self._post(session, key, body)
            if line["status"] not in (0, 429) and line["status"] < 500:
                return line
            if time.monotonic() > deadline:
                raise TimeoutError(f"{key} was not accepted: {line}")
            await asyncio.sleep(0.1)

    async def _post(self, session: aiohttp.ClientSession, key: str, body: Mapping[str, Any]) -> Line:
        began = time.monotonic()
        line: Line = {"key": key, "status": 0, "notification_id": None, "began": began}
        self._asking.add(began)
        try:
            url = f"{self._address()}/api/v1/notifications/send"
            async with session.post(url, json=body, headers={"Idempotency-Key": key}) as answer:
                content = await answer.json(content_type=None)
                line["status"] = answer.status
                line["notification_id"] = content.get("notificationId")
                line["replayed"] = answer.headers.get("Idempotent-Replayed") == "true"
                line["retry_after"] = answer.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            line["error"] = type(error).__name__
        finally:
            self._asking.discard(began)
        os.write(self._file, json.dumps(line).encode() + b"\n")
        self.lines.append(line)
        return line


def messages(channel: str, names: Iterable[str], address: Callable[[str], str]) -> dict[str, dict[str, Any]]:
    """Bodies by key; the user makes the route's id a word that every header can carry."""
    return {
        f"key-{name}": {
            "templateKey": "welcome",
            "channel": channel,
            "userId": name,
            "recipient": address(name),
            "data": {"name": name, "link": "https://example.org/start"},
        }
        for name in names
    }
