"""Task pickers of blueprint sse over a sink that records claims, so that no reader is needed."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from carillon.domain.notifications import Enrolment
from carillon.ledger.opening import open_ledger
from tests.support import tables
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

SINK = "sink"
PICKER = ("--roles", "outbound")
KEEPER = ("--roles", "upkeep")


class PickerStand(SseStand):
    """Everything of `sse` but the streams; `book` is what the sink took, line by line in the order of taking."""

    def __init__(
        self, folder: Path, url: str, *, picker: str = "", sink: str = "", policy: str = "", **env: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.book_path = folder / "book.jsonl"
        super().__init__(
            folder,
            url,
            f"{picker}\n"
            f'[channels]\nsse = ["{SINK}"]\n'
            f'[providers.{SINK}]\nkind = "sandbox"\nledger_path = "{self.book_path}"\n{sink}\n'
            f'[policy.retry."*/sse"]\nbase_delay_seconds = 0.1\nmax_delay_seconds = 0.1\n{policy}\n',
            **env,
        )

    def book(self) -> list[dict[str, Any]]:
        if not self.book_path.exists():
            return []
        return [json.loads(line) for line in self.book_path.read_text().splitlines()]

    async def seed(self, enrolments: Iterable[Enrolment], batch: int = 500) -> list[Enrolment]:
        """Write notifications down as a door would; nobody is rung for them."""
        given = list(enrolments)
        ledger = await open_ledger(self.url, allow_unsafe=True)
        try:
            await ledger.migrate()
            for start in range(0, len(given), batch):
                await ledger.enrol(given[start : start + batch])
        finally:
            await ledger.aclose()
        return given

    async def rows(self, columns: str = "*", where: str = "TRUE") -> list[dict[str, Any]]:
        table = "notifications.notifications" if self.url.startswith("postgres") else "notifications"
        return await tables.read(self.url, f"SELECT {columns} FROM {table} WHERE {where}")  # noqa: S608 - a test's own

    async def until_status(self, status: str, number: int, within: float = 90.0) -> list[dict[str, Any]]:
        """The rows, once so many of them are in this state."""
        found: list[dict[str, Any]] = []

        async def done() -> bool:
            found[:] = await self.rows(where=f"status = '{status}'")
            return len(found) >= number

        await until(done, timeout=within, what=f"{number} notifications {status}")
        return found
