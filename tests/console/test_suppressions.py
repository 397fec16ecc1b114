"""Suppressions: added, found and lifted by hand; a story and the overview show what they stop."""

import uuid

import pytest
from playwright.async_api import expect

from tests.support.console import DESK, PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("P-983")
async def test_added_seen_in_the_story_and_lifted(console: Console) -> None:
    address = f"{uuid.uuid4().hex}@example.org"
    page = await console.open("suppressions")
    await page.get_by_label("Channel to suppress").select_option("email")
    await page.get_by_label("Address to suppress").fill(address)
    await page.get_by_label("Reason").fill("asked on the phone")
    await page.get_by_role("button", name="Suppress").click()
    row = page.get_by_role("table", name="Suppressions").get_by_role("row").filter(has_text=address)
    await expect(row).to_contain_text("everybody")
    await expect(row).to_contain_text("manual")
    await expect(row).to_contain_text("asked on the phone")
    await console.picture("suppressions")
    sent = await console.send("email", recipient=address)
    page = await console.open(f"notifications/{sent}")
    await expect(page.locator(".timeline")).to_contain_text("the address is suppressed (manual), until it is lifted")
    page = await console.open("overview")
    lately = page.get_by_role("table", name="Recent events").get_by_role("row")
    await expect(lately.filter(has=page.locator(f"a[href='#/notifications/{sent}']"))).to_contain_text("manual")
    page = await console.open("suppressions")
    lift = page.get_by_role("button", name=f"Lift email {address} for everybody")
    await lift.click()
    await page.get_by_role("dialog").get_by_role("button", name="Not now").click()
    await expect(lift).to_be_focused()
    await lift.click()
    await expect(page.get_by_role("dialog")).to_contain_text(f"{address} is suppressed: asked on the phone")
    await page.get_by_role("dialog").get_by_role("button", name="Lift the suppression").click()
    await expect(page.get_by_text(f"Messages to {address} are sent again.")).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text=address)).to_have_count(0)


async def test_found_by_kind_and_by_address(console: Console) -> None:
    address = f"{uuid.uuid4().hex}@example.org"
    await console.ask("POST", "/api/v1/suppressions", {"channel": "email", "address": address, "reason": "test"})
    page = await console.open("suppressions")
    await page.get_by_label("Address", exact=True).fill(address)
    await page.get_by_role("button", name="Search").click()
    rows = page.get_by_role("table", name="Suppressions").get_by_role("row")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Kind").select_option("bounced")
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


async def test_on_a_phone(console: Console) -> None:
    await console.open("suppressions", size=PHONE, scheme="dark")
    await console.fits()


@pytest.mark.req("P-1249")
@pytest.mark.parametrize("size", [DESK, PHONE])
async def test_a_token_and_a_reason_without_a_space_fit(console: Console, size: tuple[int, int]) -> None:
    by_hand = {"X-Admin-Override": "true"}
    pause = {"scope": "template", "name": "welcome", "reason": "https://example.org/" + "w" * 180}
    await console.ask("POST", "/api/v1/admin/pauses", pause, **by_hand)
    try:
        sent = await console.send("push", recipient="t" * 160)
        page = await console.open(f"notifications/{sent}", size=size)
        await expect(page.get_by_text("https://example.org/www")).to_be_visible()
        await console.fits()
        suppressed = {"channel": "push", "address": uuid.uuid4().hex * 5, "reason": "asked"}
        await console.ask("POST", "/api/v1/suppressions", suppressed)
        page = await console.open("suppressions?channel=push", size=size)
        await page.get_by_role("button", name="Lift").first.click()
        dialog = page.get_by_role("dialog")
        assert await dialog.evaluate("one => one.scrollWidth <= one.clientWidth")
        await page.locator("#confirm").click()
        said = page.locator(".toast")
        await expect(said).to_contain_text("are sent again")
        box = await said.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
        assert await said.evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        await console.ask("POST", "/api/v1/admin/pauses/resume", pause, **by_hand)
