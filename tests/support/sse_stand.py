"""A running blueprint sse: its processes, its producer and its readers."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.support import tables
from tests.support.process import Program, add_last_words
from tests.support.sse_reader import StreamReader
from tests.support.stand import ROOT
from tests.support.waiting import until

SECRET = "sse-test-secret-of-forty-characters-or-more"
_numbers = count(1)


class Answer:
    """A response, read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], json: Any) -> None:
        self.status = status
        self.headers = headers
        self.json = json


class SseStand:
    """`start()` runs `carillon serve --blueprint sse`; readers and processes are gone when the context ends."""

    def __init__(self, folder: Path, url: str, settings: str = "", **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.programs: list[Program] = []
        self.addresses: list[str] = []
        self._environment = environment
        self._config = folder / "sse.toml"
        self._config.write_text(f'extends = "sse"\n[task_picker]\npoll_interval = "100ms"\n{settings}')
        self._stack = AsyncExitStack()
        self._tables = tables.Kept(url)
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        add_last_words(error, self.programs)
        await self._stack.aclose()
        self._tables.close()
        for program in self.programs:
            await asyncio.to_thread(program.close)

    @property
    def address(self) -> str:
        """Of the last process that was started."""
        return self.addresses[-1]

    def launch(self, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        given = {
            "DATABASE_URL": self.url,
            "CARILLON_HTTP__PORT": "0",
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tests.support.sse_mutant", mutant] if mutant else None
        program = Program(
            *("serve", "--config", str(self._config), *arguments),
            env={**given, **self._environment, **environment},
            cwd=self.folder,
            command=command,
        )
        self.programs.append(program)
        return program

    async def start(self, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        program = self.launch(*arguments, mutant=mutant, **environment)
        ready = await program.until("ready", timeout=60)
        self.addresses.append(ready["addresses"][0])
        return program

    async def read(self, user: str = "", *, at: str | None = None, query: str = "", **options: Any) -> StreamReader:
        """A reader who is connected."""
        asked = "&".join(part for part in (f"user_id={user}" if user else "", query) if part)
        reader = StreamReader(at or self.address, asked, **options)
        await self._stack.enter_async_context(reader)
        if reader.status == 200:
            await reader.event("connected")
        return reader

    async def tell(self, user: str, at: str | None = None, **fields: Any) -> str:
        """Post one event for a person; its notification's id."""
        event = {"event_id": f"event-{next(_numbers)}", "event_type": "job.new", "user_id": user, "payload": {}}
        headers = fields.pop("headers", None)
        answer = await self.ask("POST", "/notifications", event | fields, at=at, headers=headers)
        assert answer.status == 202, answer.json
        return str(answer.json["notification_id"])

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        async with self._http.request(method, (at or self.address) + path, json=body, headers=headers) as response:
            return Answer(response.status, response.headers, await response.json(content_type=None))

    async def row(self, notification_id: str) -> dict[str, Any]:
        """Its row in the sse blueprint's table."""
        table = "notifications.notifications" if self.url.startswith("postgres") else "notifications"
        named = f"SELECT * FROM {table} WHERE notification_id = '{notification_id}'"  # noqa: S608 - ids of our own
        (found,) = await self._tables.read(named)
        return found

    async def until_row(self, notification_id: str, **wanted: Any) -> dict[str, Any]:
        """Its row, once it says so."""
        found: dict[str, Any] = {}

        async def done() -> bool:
            found.update(await self.row(notification_id))
            return all(found[name] == value for name, value in wanted.items())

        await until(done, timeout=40, what=f"{notification_id} with {wanted}")
        return found
