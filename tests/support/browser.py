"""A real Chromium without a screen, driven from outside; one for all tests of a module."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, Page, async_playwright

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        raise RuntimeError("chromium is not installed; run scripts/ensure-servers")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(_QUIET), timeout=60_000)
        try:
            yield browser
        finally:
            await browser.close()


_keepers: "WeakKeyDictionary[Browser, Page]" = WeakKeyDictionary()


async def new_tab(browser: Browser, address: str) -> Page:
    """A tab in the process of the other tabs: a page in a context of its own takes four times the processor time.

    A page that stays open keeps the process, and opens the tab. Tabs share what the browser remembers of a site, but
    for a tab's own session.
    """
    if browser not in _keepers:
        context = await browser.new_context(reduced_motion="reduce")
        _keepers[browser] = await context.new_page()
        await _keepers[browser].goto(f"{address}/console/icon.svg")
    keeper = _keepers[browser]
    async with keeper.expect_popup() as opened:
        await keeper.evaluate("() => { window.open('about:blank'); }")
    page = await opened.value
    await page.evaluate("() => { window.opener = null; }")
    return page
