"""The console over 100,000 notifications: how long after a click each page shows its content, in Chromium."""

import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from bench.measure import Figure, Outcome, Ratio
from tests.support.browser import chromium
from tests.support.console import Console
from tests.support.process import Program
from tests.support.servers import Postgres
from tests.support.waiting import until

PART = "console"
MANY = 100_000
SEEDS = 160
ROUNDS = 5
TARGET_MS = 300.0
WEEK_MS = 7 * 86_400_000
PAGES = {
    "overview": ".figures dd",
    "notifications": "table[aria-label=Notifications] tbody tr",
    "notifications?status=failed": "table[aria-label=Notifications] tbody tr",
    "dead-letters": "table[aria-label='Dead letters'] tbody tr",
    "suppressions": "main .empty, table[aria-label=Suppressions]",
    "templates": "main table, main .empty",
    "drills": "main .chains",
    "outbox": "main .outbox, main .empty",
}
_SHOWN = """async ([hash, selector]) => {
    location.hash = "#/elsewhere-" + Math.random();
    await new Promise((done) => setTimeout(done, 300));
    document.querySelector("main").replaceChildren();
    const began = performance.now();
    location.hash = hash;
    while (!document.querySelector(selector)) await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""


def measure(_: Postgres, progress: Callable[[str], None]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_measured(Path(folder), progress))
    worst = max(figures, key=lambda figure: figure.median)
    ratio = Ratio(f"console/slowest page ({worst.name}), ms", worst.median, TARGET_MS, at_most=True)
    return Outcome(figures, [ratio], {"console": f"{MANY} notifications, SQLite"})


async def _measured(folder: Path, progress: Callable[[str], None]) -> list[Figure]:
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    async with chromium() as browser:
        with Program("serve", env=environment, cwd=folder) as program:
            async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
                await _seeds(console)
        await asyncio.to_thread(_multiply, folder / "c.db")
        with Program("serve", env=environment, cwd=folder) as program:
            async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
                page = await console.open("notifications")
                return [await _timed(page, name, selector, progress) for name, selector in PAGES.items()]


async def _timed(page: Page, name: str, selector: str, progress: Callable[[str], None]) -> Figure:
    progress(name)
    values = [await page.evaluate(_SHOWN, [f"#/{name}", selector]) for _ in range(ROUNDS)]
    return Figure(PART, name, "ms", values)


async def _seeds(console: Console) -> None:
    """Delivered, failed and waiting ones, which are then copied."""
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    for at in range(SEEDS):
        later = {"scheduledFor": "2999-01-01T00:00:00Z"} if at % 40 == 0 else {}
        await console.send("sms" if at % 16 == 1 else "email", **later)
    waiting = "/api/v1/notifications?status=queued&pageSize=1"

    async def ended() -> bool:
        return bool((await console.ask("GET", waiting))["totalCount"] <= SEEDS / 40)

    await until(ended, timeout=60, what="everything that is due to end")


def _multiply(path: Path) -> None:
    """Copy what there is until there are MANY, spread over a week."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        for table in ("records", "routes", "dead_letters"):
            columns = [row["name"] for row in db.execute(f"PRAGMA table_xinfo({table})") if not row["hidden"]]
            rows = [dict(row) for row in db.execute(f"SELECT {', '.join(columns)} FROM {table}")]  # noqa: S608 - ours
            named = ", ".join(f":{name}" for name in columns)
            into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({named})"  # noqa: S608 - ours
            db.executemany(into, _copies(rows))
        db.commit()


def _copies(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    now = time.time() * 1000
    dice = random.Random(7)
    for number in range(MANY // SEEDS - 1):
        older = WEEK_MS * number * SEEDS // MANY
        for row in rows:
            copy = {
                name: value - older if name.endswith("_at") and isinstance(value, int) and value < now else value
                for name, value in row.items()
            }
            copy["notification_id"] = f"{row['notification_id'][:-8]}{number:08x}"
            if "user_id" in row:
                copy["user_id"] = f"user-{dice.randint(1, 20_000)}"
            if row.get("finished_by") is not None:
                copy["finished_by"] = f"{row['finished_by']}-{number}"
            yield copy
