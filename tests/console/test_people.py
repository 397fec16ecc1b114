"""People, categories, digests and the audit trail in the browser."""

import asyncio
import re
import uuid
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from tests.support.console import PHONE, Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = """
extends = "local"
[categories.orders]
[categories.security]
required = true
[categories.marketing]
channels = { sms = false }
throttle = "3 in 1h"
[consent]
keys = ["a key of the tests that is long enough for a link"]
"""
OVERRIDE = {"X-Admin-Override": "true"}
LEADS = "all => all.map((one) => one.getAttribute('href')).toSorted()"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("people")
    (folder / "carillon.toml").write_text(SETTINGS)
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


async def somebody(console: Console) -> str:
    """A person with contacts, a suppressed number, a digest and a notification."""
    who = f"ada-{uuid.uuid4().hex[:8]}"
    body = {"contacts": {"email": f"{who}@example.org", "phone": "+491701234567"}, "timeZone": "Europe/Berlin"}
    await console.ask("PATCH", f"/api/v1/preferences/user/{who}", body)
    to = {"user": who, "recipient": f"{who}@example.org"}
    await console.send(**to)
    for _ in range(2):
        await console.send(**to, digest={"key": "comments", "window": "1h"})
    suppressed = {"channel": "sms", "address": "+491701234567", "reason": "asked on the phone"}
    await console.ask("POST", "/api/v1/suppressions", suppressed)
    return who


@pytest.mark.req("P-511")
async def test_a_person_is_found_by_address_and_changed(console: Console) -> None:
    who = await somebody(console)
    page = await console.open("people")
    await page.get_by_label("A person's id, or an address").fill(f"{who}@example.org")
    await page.get_by_role("button", name="Look up").click()
    await page.get_by_role("link", name=who, exact=True).click()
    await expect(page.locator("main h1")).to_have_text(who)
    await expect(page.get_by_role("table", name="Addresses and devices")).to_contain_text("asked on the phone")
    await expect(page.get_by_role("table", name="Digests")).to_contain_text("comments")
    await expect(page.get_by_role("table", name="Throttles")).to_contain_text("3 in 1h")
    await expect(page.get_by_role("table", name="Notifications").locator("tbody tr")).to_have_count(3)
    await expect(page.get_by_role("switch", name="security by Email")).to_be_disabled()
    await expect(page.get_by_role("switch", name="marketing by Text message")).not_to_be_checked()
    await console.picture("people")
    await page.get_by_role("switch", name="orders by Email").click()
    await expect(page.get_by_text("Changed.").first).to_be_visible()
    await page.get_by_label("Language").fill("de")
    await page.get_by_label("Quiet hours").check()
    await page.get_by_role("button", name="Change", exact=True).click()
    await expect(page.get_by_text("Changed.").last).to_be_visible()
    await expect(page.get_by_label("Language")).to_have_value("de")
    held = await console.ask("GET", f"/api/v1/preferences/user/{who}")
    assert (held["categories"]["orders"]["email"], held["preferredLocale"]) == (False, "de")
    assert held["quietHours"]["enabled"]
    await page.get_by_role("button", name="Lift the suppression of +491701234567").click()
    await page.get_by_role("dialog").get_by_role("button", name="Lift the suppression").click()
    await expect(page.get_by_role("table", name="Addresses and devices")).not_to_contain_text("asked on the phone")
    await page.get_by_role("button", name="Make a preference link").click()
    await expect(page.locator("code", has_text="/u/")).to_be_visible()


@pytest.mark.req("P-511")
async def test_a_person_is_exported_and_erased_by_typing_the_id(console: Console) -> None:
    who = await somebody(console)
    page = await console.open(f"people/{who}", size=PHONE, scheme="dark")
    await console.fits()
    await page.get_by_role("button", name="Export").click()
    saved = page.get_by_role("link", name=f"Save {who}.ndjson")
    async with page.expect_download() as download:
        await saved.click()
    assert who in (await (await download.value).path()).read_text()
    await page.get_by_role("button", name="Erase…").click()
    dialog = page.get_by_role("dialog", name=f"Erase {who}?")
    await dialog.get_by_label(f"Type {who} to erase this person").fill("somebody else")
    await dialog.get_by_role("button", name="Erase for good").click()
    await expect(dialog).to_be_visible()
    await dialog.get_by_label(f"Type {who} to erase this person").fill(who)
    await dialog.get_by_role("button", name="Erase for good").click()
    await expect(page.get_by_text("Erased.", exact=True)).to_be_visible()
    assert not (await console.ask("GET", f"/api/v1/people/{who}"))["known"]


@pytest.mark.req("P-1145")
async def test_a_person_of_one_tenant_is_not_the_one_of_another(console: Console) -> None:
    who = f"twin-{uuid.uuid4().hex[:8]}"
    address = f"{who}@example.org"
    await console.send(user=who, recipient=address, tenantId="acme")
    await asyncio.gather(*(console.send(user=who, recipient=address, tenantId="globex") for _ in range(21)))
    suppressed = {"channel": "email", "address": address, "reason": "asked globex", "tenantId": "globex"}
    await console.ask("POST", "/api/v1/suppressions", suppressed)
    page = await console.open(f"people/{who}?tenant=globex")
    await expect(page.get_by_role("table", name="Addresses and devices")).to_contain_text("asked globex")
    page = await console.open(f"people/{who}?tenant=acme")
    addresses = page.get_by_role("table", name="Addresses and devices")
    await expect(addresses).to_contain_text(address)
    await expect(addresses).not_to_contain_text("asked globex")
    await expect(page.get_by_role("button", name=f"Lift the suppression of {address}")).to_have_count(0)
    listed = page.get_by_role("table", name="Notifications").locator("tbody tr")
    await expect(listed).to_have_count(1)
    await page.get_by_role("link", name="All notifications").click()
    await expect(page.get_by_label("Tenant")).to_have_value("acme")
    await expect(listed).to_have_count(1)
    await listed.get_by_role("link").click()
    await page.get_by_role("link", name=who).click()
    await expect(page.locator(".head")).to_contain_text("of acme")


@pytest.mark.req("P-1242")
async def test_a_person_without_a_tenant_is_not_the_one_of_a_tenant(console: Console) -> None:
    who = f"twin-{uuid.uuid4().hex[:8]}"
    await console.send(user=who, recipient=f"{who}@nobody.example")
    await asyncio.gather(*(console.send(user=who, recipient=f"{who}@acme.example", tenantId="acme") for _ in range(21)))
    await console.send(user=who, recipient=f"{who}@globex.example", tenantId="globex")
    page = await console.open(f"people/{who}")
    addresses = page.get_by_role("table", name="Addresses and devices").locator("tbody tr")
    await expect(addresses).to_have_count(1)
    await expect(addresses).to_contain_text(f"{who}@nobody.example")
    await expect(page.get_by_role("table", name="Notifications").locator("tbody tr")).to_have_count(1)
    page = await console.open(f"people?who={who}")
    found = page.get_by_role("table", name="People").locator("tbody tr")
    await expect(found).to_have_count(3)
    assert await found.get_by_role("link").evaluate_all(LEADS) == [
        f"#/people/{who}",
        f"#/people/{who}?tenant=acme",
        f"#/people/{who}?tenant=globex",
    ]


@pytest.mark.req("P-1242")
async def test_who_has_preferences_is_found_beside_the_same_id_of_a_tenant(console: Console) -> None:
    who = f"twin-{uuid.uuid4().hex[:8]}"
    await console.ask("PATCH", f"/api/v1/preferences/user/{who}", {"timeZone": "Europe/Berlin"})
    await console.send(user=who, tenantId="acme")
    page = await console.open(f"people?who={who}")
    found = page.get_by_role("table", name="People").locator("tbody tr")
    await expect(found).to_have_count(2)
    leads = await found.get_by_role("link").evaluate_all(LEADS)
    assert leads == [f"#/people/{who}", f"#/people/{who}?tenant=acme"]


@pytest.mark.req("P-511")
async def test_nobody_is_called_nobody(console: Console) -> None:
    page = await console.open("people?who=nobody-at-all")
    await expect(page.get_by_text("Nobody is known by this id or address.")).to_be_visible()
    await expect(page.get_by_text("looked up whole")).to_be_visible()


@pytest.mark.req("P-512")
async def test_categories_say_who_left(console: Console) -> None:
    who = await somebody(console)
    await console.ask("PATCH", f"/api/v1/preferences/user/{who}", {"categories": {"marketing": {"email": False}}})
    page = await console.open("categories")
    row = page.get_by_role("table", name="Categories").locator("tbody tr", has_text="3 in 1h")
    await expect(row).to_contain_text("off")
    chosen = page.get_by_role("table", name="What people chose")
    await expect(chosen.locator("tbody tr", has_text="email").filter(has_text=re.compile("[1-9]"))).not_to_have_count(0)
    await console.picture("categories")


@pytest.mark.req("P-512")
async def test_a_digest_shows_its_events(console: Console) -> None:
    who = await somebody(console)
    page = await console.open("digests", size=PHONE)
    await console.fits()
    await page.get_by_role("link", name=who).click()
    await expect(page.get_by_role("table", name="Events").locator("tbody tr")).to_have_count(2)
    await page.get_by_role("link", name=who).click()
    await expect(page.locator("main h1")).to_have_text(who)


@pytest.mark.req("P-513")
async def test_the_audit_trail_is_filtered_and_goes_on(console: Console) -> None:
    for number in range(52):
        body = {"scope": "template", "name": f"t{number}", "reason": f"reason {number}"}
        await console.ask("POST", "/api/v1/admin/pauses", body, **OVERRIDE)
    page = await console.open("audit?action=pause")
    rows = page.get_by_role("table", name="Audit").locator("tbody tr")
    await expect(rows).to_have_count(50)
    await expect(rows.first).to_contain_text("reason 51")
    await page.get_by_role("button", name="Older").click()
    await expect(rows).to_have_count(2)
    await expect(rows.last).to_contain_text("reason 0")
    await page.get_by_role("button", name="Newer").click()
    await expect(rows).to_have_count(50)
    await page.get_by_label("About").fill("template t7")
    await page.get_by_role("button", name="Show").click()
    await expect(rows).to_have_count(1)
    await expect(page).to_have_url(re.compile("subject=template"))
    await console.picture("audit")
    await page.get_by_label("Who").fill("nobody")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
