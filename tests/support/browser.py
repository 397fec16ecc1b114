"""A real Chromium without a screen, driven from outside; one for all tests of a module."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, BrowserContext, async_playwright

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


_shared: "WeakKeyDictionary[Browser, BrowserContext]" = WeakKeyDictionary()


async def shared_context(browser: Browser) -> BrowserContext:
    """One context for many pages: a page in a context of its own takes four times the processor time to open.

    Pages of one context share what the browser remembers of a site; tabs have their own session.
    """
    if browser not in _shared:
        _shared[browser] = await browser.new_context(reduced_motion="reduce")
    return _shared[browser]
