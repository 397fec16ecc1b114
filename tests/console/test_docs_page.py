"""The page of the whole API: every operation of the document, words and code apart, and a phone's width."""

import pytest
from playwright.async_api import Browser, expect

from tests.support.browser import new_tab
from tests.support.console import PATIENCE_MS, PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What stands in a box that scrolls may be wide.
WIDER = """() => [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest("pre, table"))
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 60)}`)"""


@pytest.mark.req("P-1031")
async def test_every_operation_is_there_and_fits_a_phone(browser: Browser, console: Console) -> None:
    document = await console.ask("GET", "/openapi.json")
    known = {one["operationId"] for item in document["paths"].values() for one in item.values()}
    page = await new_tab(browser, console.address)
    page.set_default_timeout(PATIENCE_MS)
    await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    await page.goto(f"{console.address}/docs")
    operations = page.locator("details.operation[id^='op-']")
    await expect(operations).to_have_count(len(known))
    shown = await operations.evaluate_all("all => all.map((one) => one.id.replace('op-', ''))")
    assert set(shown) == known
    # What most people look for comes first, whatever part of the program brings it.
    assert shown[0] == "send"
    await operations.evaluate_all("all => { for (const one of all) one.open = true; }")
    assert await page.evaluate(WIDER) == []
    await expect(page.locator("#op-send .fields").first).not_to_contain_text("`")
    await expect(page.locator("#op-send .fields code", has_text="channels").first).to_be_visible()
    await page.close()
