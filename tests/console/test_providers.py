"""Providers: latency and errors, pausing and resuming with a reason, forcing a breaker."""

import re

import pytest
from playwright.async_api import Route, expect

from tests.support.console import PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("P-501")
async def test_a_provider_is_paused_and_resumed_with_a_reason(console: Console) -> None:
    assert (await console.ask("GET", "/api/v1/admin/pauses"))["items"] == []
    await console.send()
    page = await console.open("providers")
    await expect(page.get_by_text("Every provider is called, and every breaker is closed.")).to_be_visible()
    card = page.get_by_role("region", name="sandbox")
    await expect(card.locator("dd").first).not_to_have_text("0")
    await page.get_by_role("button", name="Pause sandbox").press("Enter")
    dialog = page.get_by_role("dialog", name="Pause provider sandbox?")
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Reason").fill("They send twice")
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    said = re.compile("provider sandbox is paused by anonymous since .* UTC: They send twice")
    await expect(page.locator(".human")).to_contain_text(said)
    sent = await console.send()
    story = await console.ask("GET", f"/api/v1/notifications/{sent}")
    assert story["routes"][0]["waitsFor"] == "provider sandbox is paused by anonymous: They send twice"
    await console.picture("providers")
    await page.get_by_role("button", name="Resume provider sandbox").click()
    await page.get_by_label("Reason").fill("They are sorry")
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(page.locator(".human")).to_contain_text("Every provider is called")
    changes = page.get_by_role("table", name="What changed")
    await expect(changes.locator("tbody tr").first).to_contain_text("resume: provider sandbox")
    await expect(changes.locator("tbody tr").first).to_contain_text("They are sorry")


@pytest.mark.req("P-864")
@pytest.mark.parametrize("provider", ["sandbox", "inbox"])
async def test_a_provider_leads_to_its_own_dead_letters(console: Console, provider: str) -> None:
    page = await console.open("providers")
    await page.get_by_role("link", name=f"Dead letters of {provider}").click()
    await expect(page.locator("main h1")).to_have_text("Dead letters")
    await expect(page.get_by_label("Provider")).to_have_value(provider)


@pytest.mark.req("P-501")
async def test_a_template_is_paused_by_its_name(console: Console) -> None:
    page = await console.open("providers", size=PHONE, scheme="dark")
    await page.get_by_role("button", name="Pause something").click()
    await page.get_by_label("What", exact=True).select_option("template")
    await page.get_by_label("Name").fill("newsletter")
    await page.get_by_label("Reason").fill("Wrong prices")
    await page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("table", name="Paused")).to_contain_text("template newsletter")
    await expect(page.get_by_role("button", name="Pause lane standard")).to_be_visible()
    await console.fits()
    body = {"scope": "template", "name": "newsletter", "reason": "right again"}
    await console.ask("POST", "/api/v1/admin/pauses/resume", body, **{"X-Admin-Override": "true"})
    await expect(page.get_by_role("table", name="Paused")).to_have_count(0)


@pytest.mark.req("P-502")
async def test_a_breaker_is_opened_and_probed(console: Console) -> None:
    page = await console.open("providers")
    await page.get_by_role("button", name="Open the breaker of sandbox").click()
    await page.get_by_label("Reason").fill("They lose messages")
    await page.get_by_role("button", name="Open it").click()
    await expect(page.locator(".human")).to_contain_text(re.compile(r"The breaker of sandbox \(.*sms.*\) is open"))
    await page.get_by_role("button", name="Runbook for sandbox").click()
    await expect(page.get_by_role("dialog", name="The breaker of sandbox is open")).to_contain_text("breaker-opens.md")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Let a message probe sandbox now").click()
    await page.get_by_label("Reason").fill("They are back")
    await page.get_by_role("button", name="Probe it").click()
    await expect(page.locator(".human")).to_contain_text("half open")
    await console.send()
    await expect(page.locator(".human")).to_contain_text("Every provider is called")


@pytest.mark.req("P-781")
async def test_a_provider_without_calls_and_one_that_takes_no_time_say_so(console: Console) -> None:
    page = await console.open("providers")
    idle = page.get_by_role("region", name="inbox")
    await expect(idle).to_contain_text("Not called yet.")
    await expect(idle).not_to_contain_text("went well")

    async def quick(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        for one in found["items"]:
            one |= {"attempts": 2, "p50Ms": 0, "p95Ms": 0.2}
        await route.fulfill(response=answer, json=found)

    await page.route("**/api/v1/admin/providers", quick)
    await page.reload()
    await expect(idle.locator("dd")).to_have_text(["2", "0 %", "0 %", "0.0 ms", "0.2 ms"])
