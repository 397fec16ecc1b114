"""The frame of every page: keys, density, the menu of a phone."""

import pytest
from playwright.async_api import expect

from tests.support.console import PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")

ICON = "/console/icon.svg"


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


@pytest.mark.req("P-1032")
async def test_escape_clears_a_search_and_then_leaves_it(console: Console) -> None:
    page = await console.open("notifications")
    field = page.get_by_label("Search", exact=True)
    await page.keyboard.press("/")
    await page.keyboard.type("gd")
    await page.keyboard.press("Escape")
    await expect(field).to_have_value("")
    await expect(field).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("main")).to_be_focused()
    for key in "gd":
        await page.keyboard.press(key)
    await expect(page.locator("main h1")).to_have_text("Dead letters")


@pytest.mark.req("P-641")
async def test_a_page_comes_with_one_script_and_one_style_sheet(console: Console) -> None:
    page = await console.open("audit")
    fetched = "performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)"
    files = [path for path in await page.evaluate(fetched) if path.startswith("/console/") and path != ICON]
    assert sorted(files) == ["/console/console.css", "/console/console.js"]
    for name in ("templates", "people", "rehearsal", "drills", "overview"):
        await page.evaluate("hash => { location.hash = hash; }", f"#/{name}")
        await expect(page.locator(f"#nav a[data-page={name}]")).to_have_attribute("aria-current", "page")
        await expect(page.locator("main h1")).to_be_visible()
    files = [path for path in await page.evaluate(fetched) if path.startswith("/console/") and path != ICON]
    assert len(files) == 2, "and the other pages are there already"


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


@pytest.mark.req("P-621")
async def test_escape_closes_the_menu_and_keeps_the_focus(console: Console) -> None:
    page = await console.open(size=PHONE)
    menu = page.get_by_role("button", name="Pages")
    await menu.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator("#nav a").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_be_focused()
    await expect(menu).to_have_attribute("aria-expanded", "false")


@pytest.mark.req("P-621")
async def test_the_focus_goes_to_the_next_row_when_its_own_is_gone(console: Console) -> None:
    for name in ("one", "two"):
        body = {"channel": "email", "address": f"{name}@example.org", "reason": "asked"}
        await console.ask("POST", "/api/v1/suppressions", body)
    page = await console.open("suppressions")
    await page.get_by_role("button", name="Lift email two@example.org").focus()
    await page.keyboard.press("Enter")
    await page.locator("#confirm").press("Enter")
    await expect(page.get_by_role("button", name="Lift email two@example.org")).to_have_count(0)
    await expect(page.get_by_role("button", name="Lift email one@example.org")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.locator("#confirm").press("Enter")
    await expect(page.get_by_text("No address is suppressed.")).to_be_visible()
    await expect(page.locator("main")).to_be_focused()
