"""Everything around a running galaxy: PostgreSQL, Redis, the User Service, and the processes, all private."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import asyncpg
from redis.asyncio import Redis as RedisClient

from tests.support.galaxy import fields_for
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.servers import Redis
from tests.support.vendor import Entry, Reply, Vendor
from tests.support.waiting import until

PASSWORD = "galaxy-secret"
INTENTS, GATEWAY, MAIL = "notification:intents", "gateway:client-events", "mail:delivery_commands"
OFFSET = "notification:stream_offsets:bm90aWZpY2F0aW9uOmludGVudHM"
READER = "notification:stream_leases:bm90aWZpY2F0aW9uOmludGVudHM"
"""A killed reader's lease; who deletes it need not wait for its end."""
USERS_PATH = "/api/v1/internal/users/"

EntryFields = dict[str, Any]


class Users(Vendor):
    """Answers as the galaxy blueprint's User Service does; knows everybody unless `people` says otherwise."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.people: dict[str, dict[str, Any] | None] = {}
        """A user's body; None is nobody of that name."""
        self.default = self.known

    @property
    def asked(self) -> list[str]:
        """Whom it was asked about, in order."""
        return [unquote(entry["path"].removeprefix(USERS_PATH)) for entry in list(self.entries)]

    def known(self, entry: Entry) -> Reply:
        """Answer as a service in order does."""
        user_id = unquote(entry["path"].removeprefix(USERS_PATH))
        body = self.people.get(user_id, {"email": f"{user_id}@example.com", "preferred_language": "en"})
        if body is None:
            return Reply(404, body={"error": {"code": "subject_not_found", "message": "no such user"}})
        return Reply(body=body)


class Galaxy:
    """A stand; `start()` runs `carillon serve --blueprint galaxy` with the document's own environment."""

    def __init__(self, folder: Path, dsn: str, redis: Redis, **environment: str) -> None:
        self.folder = folder
        self.dsn = f"{dsn}{'&' if '?' in dsn else '?'}search_path=notification"
        self.server = redis
        self.users = Users(folder / "users.jsonl")
        self.programs: list[Program] = []
        self.port = free_port()
        self._environment = environment
        self.redis: Any = RedisClient.from_url(redis.url(), username="default", password=PASSWORD)
        self._database: asyncpg.Connection | None = None

    async def __aenter__(self) -> Self:
        self.users.__enter__()
        await self.redis.flushall()
        address = re.sub(r"[?&]search_path=\w+", "", self.dsn)
        self._database = await asyncpg.connect(address, server_settings={"search_path": "notification"})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self.programs:
            program.close()
        if self._database is not None:
            await self._database.close()
        await self.redis.aclose()
        self.users.__exit__()

    @property
    def address(self) -> str:
        """Of the probe listener of the first process."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, **changes: str) -> dict[str, str]:
        """The four required variables, the listener, and what the test says."""
        given = {
            "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{self.server.port}",
            "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": self.dsn,
            "NOTIFICATION_USER_SERVICE_BASE_URL": self.users.url,
            "NOTIFICATION_INTERNAL_HTTP_ADDR": f"127.0.0.1:{self.port if not self.programs else 0}",
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
        }
        return {name: value for name, value in (given | self._environment | changes).items() if value}

    def launch(self, *arguments: str, **environment: str) -> Program:
        """A process that may never become ready."""
        program = Program(
            "serve",
            "--blueprint",
            "galaxy",
            *arguments,
            env=self.environment(**environment),
            cwd=self.folder,
        )
        self.programs.append(program)
        return program

    def start(self, *arguments: str, **environment: str) -> Program:
        """A process that is ready."""
        program = self.launch(*arguments, **environment)
        program.wait_ready(60)
        return program

    async def publish(self, fields: Mapping[str, Any] | None = None, /, **changes: str | None) -> str:
        """XADD an intent: `game.turn.ready` to user-1 and user-2 unless other fields are given; returns its id."""
        fields = fields or fields_for("game.turn.ready", **changes)
        entry_id = await self.redis.xadd(INTENTS, dict(fields))
        return str(entry_id.decode())

    async def published(self, stream: str, number: int, *, within: float = 60) -> list[tuple[str, EntryFields]]:
        """The entries of an outgoing stream, once there are that many; text where it is text."""

        async def enough() -> bool:
            return bool(await self.redis.xlen(stream) >= number)

        await until(enough, timeout=within, what=f"{number} entries in {stream}")
        return [(entry_id.decode(), _readable(fields)) for entry_id, fields in await self.redis.xrange(stream)]

    async def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """What a SELECT finds; `records`, `routes` and the like live in the schema `notification`."""
        assert self._database is not None
        return [dict(row) for row in await self._database.fetch(query, *values)]

    async def execute(self, statement: str, *values: Any) -> None:
        assert self._database is not None
        await self._database.execute(statement, *values)

    async def row_once(self, query: str, *values: Any, within: float = 60) -> dict[str, Any]:
        """The first row, once there is one."""
        found: list[dict[str, Any]] = []

        async def there() -> bool:
            found[:] = await self.rows(query, *values)
            return bool(found)

        await until(there, timeout=within, what=query)
        return found[0]

    async def routes(self, notification_id: str, *, status: str | None = None, within: float = 60) -> dict[str, Any]:
        """The routes of a notification by id; with a status, once all that are not skipped have it."""
        found: dict[str, Any] = {}

        async def there() -> bool:
            rows = await self.rows("SELECT * FROM routes WHERE notification_id = $1", notification_id)
            found.clear()
            found.update({row["route_id"]: row for row in rows})
            open_ones = [row for row in rows if row["status"] != "skipped"]
            return bool(rows) and (status is None or all(row["status"] == status for row in open_ones))

        await until(there, timeout=within, what=f"routes of {notification_id} as {status}")
        return found

    async def malformed(self, entry_id: str, *, within: float = 60) -> dict[str, Any]:
        """The row of a malformed entry, once it is there."""
        row = await self.row_once("SELECT * FROM malformed_intents WHERE stream_entry_id = $1", entry_id, within=within)
        return row | {"raw_fields": json.loads(row["raw_fields"])}

    async def offset(self) -> str | None:
        """The stored offset of the stream."""
        value = await self.redis.get(OFFSET)
        return None if value is None else value.decode()

    async def offset_reaches(self, entry_id: str, *, within: float = 60) -> None:
        async def there() -> bool:
            return await self.offset() == entry_id

        await until(there, timeout=within, what=f"offset {entry_id}")


def _readable(fields: Mapping[bytes, bytes]) -> EntryFields:
    return {name.decode(): value if name == b"payload_bytes" else value.decode() for name, value in fields.items()}
