"""What a page of the console owes to everybody: the rules of axe-core, and every control within reach of Tab."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.support.console import Console

AXE = Path(__file__).parent.parent / "console" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CONTENT = "main :is(tbody tr, .chains li, .outbox > li, form.rehearse)"
MOST_STOPS = 400
_REGISTRY = "import('/console/lib/pages.js').then(({ PAGES }) => PAGES.map((one) => [one.page, one.key]))"
# A table in a live region is read out whole whenever one of its rows changes.
_READ_OUT = "document.querySelectorAll('main :is([aria-live=polite], [role=status]) table').length"
_STOPS = """() => {
    window.heard = new Set();
    window.unmarked = new Set();
    window.named = (one) => [one.tagName, one.id, one.getAttribute("href"), one.getAttribute("aria-label"), one.name,
        ["INPUT", "SELECT", "TEXTAREA"].includes(one.tagName) ? "" : one.textContent]
        .join(" ").replace(/\\d+/g, "#").trim();
    addEventListener("focusin", ({ target }) => {
        window.heard.add(window.named(target));
        // What stands around a link may be marked in its place.
        const around = [target, target.parentElement, target.parentElement?.parentElement].filter(Boolean);
        const bare = around.every((one) => getComputedStyle(one).outlineStyle === "none");
        if (bare) window.unmarked.add(window.named(target));
    });
    document.getElementById("main").focus();
}"""
_MISSED = """() => [...document.querySelectorAll(
        "main :is(a[href], button, input, select, textarea, summary, [tabindex='0']):not(:disabled, [tabindex='-1'])")]
    .filter((one) => one.checkVisibility() && !(one.type === "radio" && !one.checked))
    .map(window.named).filter((name) => !window.heard.has(name))"""


async def violations(page: Page) -> list[str]:
    """What axe-core objects to, each with its place."""
    await page.evaluate(AXE.read_text())
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"], "preload": False}
    found: Any = await page.evaluate("options => axe.run(document, options)", options)
    said = [
        f"{one['id']}: {one['help']} at {node['target']}" for one in found["violations"] for node in one["nodes"][:3]
    ]
    return said + ["a table in a live region"] * await page.evaluate(_READ_OUT)


async def registry(page: Page) -> dict[str, str]:
    """Every page that the console has, with the key that opens it after `g`."""
    return dict(await page.evaluate(_REGISTRY))


async def menu(page: Page) -> list[str]:
    """The pages that the console shows here."""
    names = await page.locator("#nav a").evaluate_all("links => links.map((link) => link.dataset.page)")
    assert names
    return [str(name) for name in names]


async def settled(page: Page, *, filled: bool = True) -> None:
    await expect(page.locator("main .loading")).to_have_count(0)
    await expect(page.locator("main h1")).to_be_visible()
    if filled:
        await expect(page.locator(CONTENT).first).to_be_visible()


async def every_page(console: Console, queries: dict[str, str], only: str = "") -> AsyncIterator[str]:
    """Go through the menu, or to one page, and one step deeper; `queries` fill pages that show nothing unasked."""
    page = console.page
    for name in [only] if only else await menu(page):
        await page.goto(f"{console.address}/console#/{name}{queries.get(name, '')}")
        await settled(page)
        yield name
        deeper = page.locator(f'main a[href^="#/{name}/"]')
        if await deeper.count():
            await page.goto(f"{console.address}/console{await deeper.first.get_attribute('href')}")
            await settled(page, filled=False)
            yield f"{name}/…"


async def walk(page: Page) -> tuple[list[str], list[str]]:
    """Press Tab until main is left; the controls that got no focus, and those that do not show that they have it.

    A page that lives may show a control behind the one that has the focus: what is missed is looked for once more.
    """
    await page.evaluate(_STOPS)
    await _to_the_end(page)
    if await page.evaluate(_MISSED):
        await page.evaluate("document.getElementById('main').focus()")
        await _to_the_end(page)
    unmarked = await page.evaluate("[...window.unmarked]")
    return await page.evaluate(_MISSED), [name for name in unmarked if not name.startswith(("BODY", "MAIN"))]


async def _to_the_end(page: Page) -> None:
    for _ in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        if not await page.evaluate("document.getElementById('main').contains(document.activeElement)"):
            break
    else:
        raise AssertionError(f"the Tab key goes round in main: {MOST_STOPS} stops")
