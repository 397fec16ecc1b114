"""The frame of every page: keys, density, the menu of a phone."""

import pytest
from playwright.async_api import expect

from tests.support.console import PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("P-541")
async def test_keys_lead_everywhere_and_a_question_mark_shows_them(console: Console) -> None:
    page = await console.open()
    await page.keyboard.press("?")
    shown = page.get_by_role("dialog", name="Keys")
    await expect(shown).to_contain_text("Dead letters")
    await expect(shown).to_contain_text("g d")
    await page.keyboard.press("Escape")
    await expect(shown).to_have_count(0)
    for key, title in (("d", "Dead letters"), ("u", "Suppressions"), ("n", "Notifications"), ("o", "Overview")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page.locator("main h1")).to_have_text(title)


async def test_letters_in_a_field_are_letters(console: Console) -> None:
    page = await console.open("suppressions")
    await page.keyboard.press("/")
    field = page.get_by_label("Address", exact=True)
    await expect(field).to_be_focused()
    await page.keyboard.type("gd?t")
    await expect(field).to_have_value("gd?t")
    await expect(page.locator("main h1")).to_have_text("Suppressions")
    await expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.req("P-541")
async def test_dense_rows_are_remembered(console: Console) -> None:
    page = await console.open("suppressions")
    button = page.get_by_role("button", name="Search")
    before = await button.evaluate("button => button.offsetHeight")
    await page.keyboard.press("c")
    await expect(page.locator("html")).to_have_attribute("data-density", "dense")
    assert await button.evaluate("button => button.offsetHeight") < before
    await page.reload()
    await expect(page.locator("#density")).to_have_attribute("aria-pressed", "true")
    await page.locator("#density").click()
    await expect(page.locator("html")).to_have_attribute("data-density", "comfortable")


async def test_on_a_phone_the_pages_are_behind_a_button(console: Console) -> None:
    page = await console.open(size=PHONE)
    link = page.get_by_role("link", name="Dead letters", exact=True)
    await expect(link).to_be_hidden()
    await page.get_by_role("button", name="Pages").click()
    await link.click()
    await expect(page.locator("main h1")).to_have_text("Dead letters")
    await expect(link).to_be_hidden()
    await console.fits()
