"""What stands on the console when it cannot be refreshed, and what stands there when somebody comes back to it."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import jwt
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.console import PHONE, Console
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.proxy import FaultProxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "a secret of those who look at old pages that is long enough"
AWAY = "Carillon does not answer. What you see is from"


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(reduced_motion="reduce")
    yield await context.new_page()
    await context.close()


def serve(folder: Path, **environment: str) -> Program:
    given = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    program = Program("serve", env=given | environment, cwd=folder)
    program.wait_ready(60)
    return program


def token(seconds: int) -> str:
    now = int(time.time())
    claims = {"sub": "ada", "role": "admin", "iat": now, "exp": now + seconds, "iss": "tests", "aud": "carillon"}
    return jwt.encode(claims, SECRET, algorithm="HS256")


@pytest.mark.req("P-951")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("overview", "Nothing needs attention"),
        ("suppressions", "No address is suppressed."),
        ("audit", "Nothing matches."),
    ],
)
async def test_a_server_that_is_away(page: Page, tmp_path: Path, name: str, shown: str) -> None:
    port = str(free_port())
    old = page.locator("#old")
    with serve(tmp_path, CARILLON_HTTP__PORT=port) as first:
        await page.goto(f"{first.wait_ready()['addresses'][0]}/console#/{name}")
        await expect(page.locator("#live")).to_have_text("live")
        await expect(page.get_by_text(shown)).to_be_visible()
        await expect(old).to_be_hidden()
        first.kill()
        if name == "overview":
            verdict = page.get_by_label("Verdict")
            await expect(verdict.get_by_role("heading")).to_have_text("Carillon does not answer")
            await expect(verdict).to_contain_text("the numbers below are old")
        await expect(old).to_contain_text(AWAY)
    # Another page cannot be shown at all: it says so itself, and comes when the server does.
    await page.evaluate("location.hash = '#/categories'")
    await expect(page.locator("main h1")).to_have_text("Not loaded")
    await expect(old).to_be_hidden()
    with serve(tmp_path, CARILLON_HTTP__PORT=port):
        await expect(page.locator("main h1")).to_have_text("Categories")
        await page.evaluate("name => { location.hash = `#/${name}`; }", name)
        await expect(page.locator("#live")).to_have_text("live")
        await expect(old).to_be_hidden()
        if name == "overview":
            await expect(page.get_by_label("Verdict")).to_contain_text("Nothing needs attention")


@pytest.mark.req("P-951")
async def test_a_ledger_that_is_away(page: Page, tmp_path: Path, ledger_dsn: str) -> None:
    at = urlsplit(ledger_dsn)
    async with FaultProxy(str(at.hostname), at.port or 5432) as proxy:
        through = urlunsplit(at._replace(netloc=at.netloc.replace(f"{at.hostname}:{at.port}", proxy.address)))
        # The proxy works in this loop.
        given = {"DATABASE_URL": through, "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
        with await asyncio.to_thread(serve, tmp_path, **given) as program:
            verdict = page.get_by_label("Verdict")
            await page.goto(f"{program.wait_ready()['addresses'][0]}/console")
            await expect(verdict).to_contain_text("Nothing needs attention")
            proxy.refusing = True
            proxy.reset()
            await expect(verdict).to_contain_text("does not answer")
            await expect(verdict).not_to_contain_text("Nothing needs attention")
            await expect(page.locator("#old")).to_be_visible()
            proxy.refusing = False
            await expect(verdict).to_contain_text("Nothing needs attention")
            await expect(page.locator("#old")).to_be_hidden()


@pytest.mark.req("P-951")
async def test_a_token_that_ends(page: Page, tmp_path: Path) -> None:
    trust = {"JWT_SECRET_KEY": SECRET, "JWT_ISSUER": "tests", "JWT_AUDIENCE": "carillon"}
    with serve(tmp_path, CARILLON_AUTH__LEEWAY_SECONDS="0", **trust) as program:
        await page.goto(f"{program.wait_ready()['addresses'][0]}/console#/suppressions")
        await page.get_by_label("Token or API key").fill(token(8))
        await page.get_by_role("button", name="Open the console").click()
        await expect(page.locator("main h1")).to_have_text("Suppressions")
        await page.get_by_label("Address to suppress").fill("half@example.org")
        await expect(page.locator("#old")).to_contain_text("Your token is no longer accepted.")
        # What somebody has begun to write stays until they decide to leave it.
        await expect(page.get_by_label("Address to suppress")).to_have_value("half@example.org")
        await page.get_by_role("button", name="Sign in again").click()
        await page.get_by_label("Token or API key").fill(token(600))
        await page.get_by_role("button", name="Open the console").click()
        await expect(page.locator("main h1")).to_have_text("Suppressions")
        await expect(page.locator("#live")).to_have_text("live")
        await expect(page.locator("#old")).to_be_hidden()


@pytest.mark.req("P-952")
async def test_the_back_button_returns_to_the_page_of_a_list(console: Console) -> None:
    for number in range(60):
        body = {"channel": "email", "address": f"page-{number}@example.org", "reason": "asked"}
        await console.ask("POST", "/api/v1/suppressions", body)
    page = await console.open("suppressions?channel=email")
    rows = page.get_by_role("table", name="Suppressions").locator("tbody tr")
    await expect(rows.first).to_contain_text("page-59@")
    for first in ("page-34@", "page-9@"):
        await page.get_by_role("button", name="Older").click()
        await expect(rows.first).to_contain_text(first)
    await page.get_by_role("link", name="Categories").click()
    await expect(page.locator("main h1")).to_have_text("Categories")
    await page.go_back()
    await expect(rows.first).to_contain_text("page-9@")
    await expect(page.get_by_label("Channel", exact=True)).to_have_value("email")
    await page.get_by_role("button", name="Newer").click()
    await expect(rows.first).to_contain_text("page-34@")
    await page.reload()
    await expect(rows.first).to_contain_text("page-34@")
    await page.get_by_label("Address", exact=True).fill("page-59@example.org")
    await page.get_by_role("button", name="Search").click()
    await expect(rows).to_have_count(1)
    assert "cursor" not in page.url, "another search begins at its first page"


@pytest.mark.req("P-952")
async def test_other_lists_do_the_same(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    try:
        for number in range(20):
            await console.send("sms", user=f"lost-{number}")
        await console.send("push", user="in-the-outbox")
        page = await console.open("dead-letters?channel=sms")
        rows = page.get_by_role("table", name="Dead letters").locator("tbody tr")
        await expect(page.locator(".pager")).to_contain_text("20 in all")
        await page.get_by_role("button", name="Older").click()
        await expect(rows).to_have_count(5)
        shown = await rows.first.inner_text()
        await rows.first.locator("td", has_text="sms").first.click()
        await expect(page.locator("main h1")).to_have_text("welcome")
        await page.go_back()
        await expect(rows).to_have_count(5)
        assert (await rows.first.inner_text()).split("\n")[1:] == shown.split("\n")[1:]
        await expect(page.get_by_role("button", name="Newer")).to_be_enabled()
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/sms")
    page = await console.open("audit")
    await page.get_by_label("Who").fill("nobody")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
    page = await console.open("outbox")
    await page.get_by_label("Channel").select_option("push")
    await page.get_by_label("Address or words").fill("device-1")
    await expect(page.locator(".outbox > li")).to_have_count(1)
    await page.get_by_role("link", name="Its history").click()
    await expect(page.locator("main h1")).to_have_text("welcome")
    await page.go_back()
    await expect(page.get_by_label("Channel")).to_have_value("push")
    await expect(page.get_by_label("Address or words")).to_have_value("device-1")
    await expect(page.locator(".outbox > li")).to_have_count(1)


@pytest.mark.req("P-956")
async def test_a_row_is_one_line_and_says_what_it_waits_for(console: Console) -> None:
    tenant, far = "paused-one", f"https://hooks.example.org/{'x' * 300}"
    pause = {"scope": "tenant", "name": tenant, "reason": "the contract ended"}
    override = {"X-Admin-Override": "true"}
    await console.ask("POST", "/api/v1/admin/pauses", pause, **override)
    try:
        await console.send("email", tenantId=tenant, user="held-one")
        await console.send("webhook", recipient=far, userId=far[-200:])
        await console.send("push", scheduledFor="2096-01-01T00:00:00Z")
        page = await console.open("notifications")
        held = page.get_by_role("row").filter(has_text="held-one")
        await expect(held).to_contain_text("waits: tenant paused-one is paused by anonymous: the contract ended")
        heights = "rows => rows.map((row) => row.offsetHeight)"
        seen = await page.get_by_role("table", name="Notifications").locator("tbody tr").evaluate_all(heights)
        assert len(set(seen)) == 1, seen
        await console.fits()
        page = await console.open("notifications", size=PHONE)
        await expect(page.get_by_role("row").filter(has_text="held-one")).to_contain_text("the contract ended")
        await console.fits()
    finally:
        await console.ask("POST", "/api/v1/admin/pauses/resume", pause, **override)


@pytest.mark.req("P-956")
async def test_the_scale_of_a_chart_is_whole(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/push", {"outcome": "sent", "delaySeconds": 0.3})
    try:
        await console.send("push")
        page = await console.open("overview")
        scale = page.get_by_label("Average and slowest call that delivered, over the time").locator("text")
        await expect(scale.filter(has_text="400 ms")).to_be_attached()
        edges = "all => all.map((one) => one.getBBox().x)"
        assert min(await scale.evaluate_all(edges)) >= 0
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/push")


@pytest.mark.req("P-953")
async def test_an_id_is_copied_without_the_browsers_clipboard(console: Console) -> None:
    sent = await console.send("push")
    page = await console.open(f"notifications/{sent}", size=PHONE)
    # As on a page that comes over plain HTTP from another machine.
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    await page.locator("#copy-id").click()
    await expect(page.locator("#toasts")).to_contain_text("Copied.")
    await expect(page.locator("#copy-id")).to_be_focused()
    await page.evaluate("location.hash = '#/notifications'")
    search = page.get_by_label("Search", exact=True)
    await search.focus()
    await page.keyboard.press("Control+V")
    await expect(search).to_have_value(sent)
