"""The console over 100,000 notifications, SQLite and PostgreSQL: how soon each page shows its content, in Chromium."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.async_api import Browser, Page

from bench.measure import Figure, Outcome, Ratio
from tests.support.browser import chromium
from tests.support.console import Console
from tests.support.large_ledger import multiply
from tests.support.process import Program
from tests.support.servers import Postgres
from tests.support.waiting import until

PART = "console"
MANY = 100_000
SEEDS = 160
ROUNDS = 5
TARGET_MS = 300.0
ROWS = "main tbody tr"
LISTED = "table[aria-label=Notifications] tbody tr"
PAGES = {
    "overview": ".figures dd",
    "overview?range=7d": ".figures dd",
    "notifications": LISTED,
    "notifications?status=failed": LISTED,
    "notifications?status=queued": LISTED,
    "notifications?q=user-77": LISTED,
    "notifications?q=refused": LISTED,
    "notifications?userId=user-77": LISTED,
    "notifications?recipient=nobody@example.org": "main .empty",
    "dead-letters": "table[aria-label='Dead letters'] tbody tr",
    "people": "main form",
    "people/user-77": ROWS,
    "suppressions": ROWS,
    "templates": ROWS,
    "providers": "main .provider",
    "endpoints": "main .empty, main tbody tr",
    "categories": "main .empty, main tbody tr",
    "digests?open=all": "main .empty, main tbody tr",
    "drills": "main .chains li",
    "outbox": "main .outbox li, main .empty",
    "audit": ROWS,
}
"""Each page, and what its reader waits for: rows, figures, or the sentence that there are none."""
# The page itself notes the first frame with its content; its clock begins with the navigation.
_WATCH = """(selector) => {
    const look = () => {
        if (document.querySelector(selector)) window.shownAfter = performance.now();
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""
_CLICKED = """async ([hash, selector]) => {
    location.hash = hash.startsWith("#/people") ? "#/categories" : "#/people";
    await new Promise((done) => setTimeout(done, 200));
    document.querySelector("main").replaceChildren();
    const began = performance.now();
    location.hash = hash;
    while (!document.querySelector(selector)) {
        if (performance.now() - began > 20_000) throw new Error(`${hash} does not show ${selector}`);
        await new Promise(requestAnimationFrame);
    }
    return performance.now() - began;
}"""


def measure(postgres: Postgres, progress: Callable[[str], None]) -> Outcome:
    found = Outcome(settings={"console": f"{MANY:,} notifications, from a click and from an empty tab to the content"})
    with tempfile.TemporaryDirectory() as folder:
        for engine, url in {"SQLite": f"sqlite:///{folder}/c.db", "PostgreSQL": postgres.database()}.items():
            figures = asyncio.run(_measured(engine, url, Path(folder), progress))
            for kind in ("click", "load"):
                of_kind = [figure for figure in figures if figure.name.endswith(kind)]
                worst = max(of_kind, key=lambda figure: figure.median)
                name = f"console/{engine}, slowest {kind} ({worst.name.split()[1]}), ms"
                found.ratios.append(Ratio(name, worst.median, TARGET_MS, at_most=True))
            found.figures += figures
    return found


async def _measured(engine: str, url: str, folder: Path, progress: Callable[[str], None]) -> list[Figure]:
    environment = {"DATABASE_URL": url, "CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
    async with chromium() as browser:
        progress(f"{engine}: making {MANY:,} notifications")
        with Program("serve", env=environment, cwd=folder) as program:
            async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
                await _seeds(console)
        await multiply(url, MANY)
        with Program("serve", env=environment, cwd=folder) as program:
            address = str(program.wait_ready(60)["addresses"][0])
            figures = []
            for name, selector in PAGES.items():
                progress(f"{engine}: {name}")
                figures += await _of_page(browser, address, f"{engine} {name}", selector)
            return figures


async def _of_page(browser: Browser, address: str, name: str, selector: str) -> list[Figure]:
    hash_ = f"#/{name.split(maxsplit=1)[1]}"
    loads, clicks = [], []
    for _ in range(ROUNDS):
        context = await browser.new_context()
        page = await context.new_page()
        await page.add_init_script(f"({_WATCH})({selector!r})")
        await page.goto(f"{address}/console{hash_}")

        async def shown(page: Page = page) -> bool:
            return bool(await page.evaluate("window.shownAfter ?? 0"))

        await until(shown, timeout=60, what=name)
        loads.append(await page.evaluate("window.shownAfter"))
        clicks.append(await page.evaluate(_CLICKED, [hash_, selector]))
        await context.close()
    return [Figure(PART, f"{name} click", "ms", clicks), Figure(PART, f"{name} load", "ms", loads)]


async def _seeds(console: Console) -> None:
    """Delivered, failed and waiting ones, which are then copied, and a row for each page."""
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    for at in range(SEEDS):
        later = {"scheduledFor": "2999-01-01T00:00:00Z"} if at % 40 == 0 else {}
        await console.send("sms" if at % 16 == 1 else "email", **later)
    body = {"channel": "email", "address": "gone@example.org", "reason": "asked"}
    await console.ask("POST", "/api/v1/suppressions", body)
    await console.send("email", user="user-77", digest={"key": "comments", "window": "1h"})
    waiting = "/api/v1/notifications?status=queued&pageSize=1"

    async def ended() -> bool:
        return bool((await console.ask("GET", waiting))["totalCount"] <= SEEDS / 40 + 1)

    await until(ended, timeout=60, what="everything that is due to end")
