"""What comes late or is gone meanwhile: answers, later pages of a list, questions, and what somebody has asked for."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.console.test_dead_letters import bury
from tests.support.console import Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def held(page: Page, url: "str | re.Pattern[str]", **changed: object) -> AsyncIterator[asyncio.Event]:
    """The answers of such requests come only when the event is set, and then say what is `changed`."""
    let = asyncio.Event()

    async def late(route: Route) -> None:
        answer = await route.fetch()
        await let.wait()
        await route.fulfill(response=answer, json=await answer.json() | changed)

    await page.route(url, late)
    yield let
    await page.unroute(url, late)


async def answered(page: Page, let: asyncio.Event, url: "str | re.Pattern[str]") -> None:
    """Let the late answer come, until the page has drawn what it draws of it."""
    async with page.expect_response(url) as response:
        let.set()
    await (await response.value).finished()
    for _ in range(3):
        await page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")


@pytest.mark.req("P-1140")
async def test_a_later_page_that_is_empty_says_nothing_about_the_whole_list(console: Console) -> None:
    for number in range(26):
        body = {"channel": "email", "address": f"later-{number}@example.org", "reason": "asked"}
        await console.ask("POST", "/api/v1/suppressions", body)
    page = await console.open("suppressions")
    rows = page.get_by_role("table", name="Suppressions").locator("tbody tr")
    await page.get_by_role("button", name="Older").click()
    await expect(rows).to_have_count(1)
    await rows.get_by_role("button", name="Lift").click()
    await page.locator("#confirm").click()
    await expect(page.get_by_text("There are no older ones.")).to_be_visible()
    await expect(page.get_by_text("No address is suppressed.")).to_have_count(0)
    await page.get_by_role("button", name="Newer").click()
    await expect(rows).to_have_count(25)


@pytest.mark.req("P-1140", "P-1141")
async def test_what_matches_is_redriven_from_a_later_page_too(console: Console) -> None:
    await bury(console, "sms", 16)
    page = await console.open("dead-letters?channel=sms")
    rows = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    await page.get_by_role("button", name="Older").click()
    await expect(rows).to_have_count(1)
    await expect(page.get_by_role("button", name="Redrive all that match")).to_be_enabled()
    await rows.get_by_role("checkbox").check()
    await page.get_by_label("Reason").fill("the last of them")
    await page.get_by_role("button", name="Redrive 1 chosen").click()
    await expect(page.get_by_text("There are no older ones.")).to_be_visible()
    await page.get_by_role("button", name="Newest").click()
    await expect(rows).to_have_count(15)


@pytest.mark.req("P-1142")
async def test_a_date_that_is_being_typed_is_no_outage(console: Console) -> None:
    await console.send("email")
    page = await console.open()
    verdict = page.get_by_label("Verdict")
    await expect(verdict).not_to_contain_text("does not answer")
    before = int((await page.locator("#figure-Delivered").inner_text()).replace(",", ""))
    await page.get_by_role("button", name="Custom").click()
    begin, end = page.get_by_label("From"), page.get_by_label("Until")
    await begin.fill("")
    await console.send("email")
    # A tick came, and all of the page was drawn anew.
    await expect(page.locator("#figure-Delivered")).to_have_text(f"{before + 1:,}")
    await expect(verdict).not_to_contain_text("does not answer")
    await begin.fill("2026-01-02T10:00")
    await end.fill("2026-01-01T10:00")
    await expect(page.get_by_text("The time must be between one minute and 92 days long")).to_be_visible()
    await console.send("email")
    await expect(page.locator("#figure-Delivered")).to_have_text(f"{before + 2:,}")
    await expect(verdict).not_to_contain_text("does not answer")
    await expect(page.locator(".toast")).to_have_count(0)
    await end.fill("12026-01-03T10:00")
    await expect(page.get_by_text("The time must be between one minute and 92 days long")).to_have_count(0)
    await expect(verdict).not_to_contain_text("does not answer")
    await end.fill("2026-01-03T10:00")
    await expect(page.get_by_text("Nothing ended in this time.")).to_be_visible()
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1142")
async def test_the_charts_show_the_time_that_was_chosen_last(console: Console) -> None:
    await console.send("email")
    page = await console.open()
    ended = page.get_by_role("table", name="What ended")
    await expect(ended).to_contain_text("email")
    week = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 7 * 86_400))
    url = re.compile(rf"console/history\?.*after={week}")
    group = {"name": "of the week", "delivered": 9, "failed": 0, "skipped": 0, "averageMs": None}
    async with held(page, url, groups=[group]) as let:
        await page.get_by_role("button", name="7 d").click()
        await page.get_by_role("button", name="1 h", exact=True).click()
        await expect(ended).to_contain_text("email")
        await answered(page, let, url)
        await expect(page.get_by_role("button", name="1 h", exact=True)).to_have_attribute("aria-pressed", "true")
        assert "of the week" not in await ended.inner_text()


@pytest.mark.req("P-1144")
async def test_a_channel_that_was_left_does_not_come_back(console: Console) -> None:
    for channel in ("email", "sms"):
        await console.send(channel)
    page = await console.open("outbox")
    items = page.get_by_role("list", name="Messages").get_by_role("listitem")
    url = re.compile(r"sandbox/messages\?.*channel=email")
    async with held(page, url) as let:
        await page.get_by_label("Channel").select_option("email")
        await page.get_by_label("Channel").select_option("sms")
        await expect(items.first).to_contain_text("sms")
        await answered(page, let, url)
        assert "ada@example.org" not in await page.get_by_role("list", name="Messages").inner_text()


@pytest.mark.req("P-1144")
async def test_who_was_looked_up_first_does_not_come_last(console: Console) -> None:
    first, second = (f"{name}-{uuid.uuid4().hex[:6]}" for name in ("first", "second"))
    for who in (first, second):
        await console.send("push", user=who)
    page = await console.open("people")
    url = re.compile(f"people/{first}")
    async with held(page, url) as let:
        field = page.get_by_label("A person's id, or an address")
        await field.fill(first)
        await field.press("Enter")
        await field.fill(second)
        await field.press("Enter")
        found = page.get_by_role("table", name="People")
        await expect(found).to_contain_text(second)
        await answered(page, let, url)
        assert first not in await found.inner_text()


@pytest.mark.req("P-1148")
async def test_a_question_is_gone_with_its_page(console: Console) -> None:
    sent = await console.send("push", scheduledFor="2096-01-01T00:00:00Z")
    page = await console.open("notifications")
    await page.locator(f"main a[href='#/notifications/{sent}']").click()
    await page.locator("#cancel").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.go_back()
    await expect(page.locator("main h1")).to_have_text("Notifications")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (await console.ask("GET", f"/api/v1/notifications/{sent}"))["status"] == "queued"


@pytest.mark.req("P-1149", "P-1154")
async def test_what_was_opened_in_a_story_stays_and_a_cancel_is_in_the_trail(console: Console) -> None:
    sent = await console.send("email", scheduledFor="2096-01-01T00:00:00Z")
    page = await console.open(f"notifications/{sent}")
    await page.get_by_role("button", name="Explain").click()
    gates = page.get_by_role("list", name="Gates")
    await expect(gates).to_contain_text("Attempts")
    await page.get_by_text("Variables").click()
    await expect(page.locator("#variables pre")).to_be_visible()
    await page.locator("#cancel").click()
    await page.locator("#confirm").click()
    await expect(page.locator("main .head .badge")).to_have_text("skipped")
    await expect(gates).to_contain_text("Attempts")
    await expect(page.locator("#variables pre")).to_be_visible()
    (done, *_) = (await console.ask("GET", f"/api/v1/admin/audit?subject={sent}"))["items"]
    assert (done["action"], done["actor"], done["detail"]["done"]) == ("cancel_waiting", "anonymous", 1)
    page = await console.open("audit?action=cancel waiting")
    await expect(page.get_by_role("table", name="Audit").locator("tbody tr").first).to_contain_text(sent)


@pytest.mark.req("P-1150")
async def test_a_chip_keeps_the_words_that_were_typed(console: Console) -> None:
    user = f"typed-{uuid.uuid4().hex[:8]}"
    await console.send("email", user=user)
    await console.send("push", user=user)
    page = await console.open("notifications")
    rows = page.get_by_role("table", name="Notifications").locator("tbody tr")
    await page.get_by_label("Search", exact=True).fill(user)
    await page.locator("#channel-email").click()
    await expect(page.get_by_label("Search", exact=True)).to_have_value(user)
    await expect(rows).to_have_count(1)
    assert f"q={user}" in page.url
    await page.locator("#channel-email").click()
    await expect(rows).to_have_count(2)


@pytest.mark.req("P-1155")
async def test_a_shared_link_names_the_same_time_on_every_clock(browser: Browser, console: Console) -> None:
    user = f"clock-{uuid.uuid4().hex[:8]}"
    await console.send("push", user=user)
    context = await browser.new_context(timezone_id="Asia/Tokyo", reduced_motion="reduce")
    page = await context.new_page()
    await page.goto(f"{console.address}/console#/notifications?userId={user}")
    after = page.get_by_label("Accepted after")
    await after.fill("2026-01-02T09:00")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.get_by_role("table", name="Notifications").locator("tbody tr")).to_have_count(1)
    link = page.url
    assert "acceptedAfter=2026-01-02T00%3A00%3A00.000Z" in link
    await context.close()
    context = await browser.new_context(timezone_id="America/New_York", reduced_motion="reduce")
    page = await context.new_page()
    await page.goto(link)
    await expect(page.get_by_label("Accepted after")).to_have_value("2026-01-01T19:00")
    await expect(page.get_by_role("table", name="Notifications").locator("tbody tr")).to_have_count(1)
    await context.close()


@pytest.mark.req("P-1157")
async def test_an_export_that_is_under_way_does_not_begin_again(console: Console) -> None:
    await console.send("push")
    page = await console.open("notifications")
    button = page.get_by_role("button", name="NDJSON")
    url = re.compile(r"notifications\?.*pageSize=200")
    asked = 0

    def count(_: object) -> None:
        nonlocal asked
        asked += 1

    page.on("request", lambda request: count(request) if url.search(request.url) else None)
    async with held(page, url) as let, page.expect_download():
        await button.click()
        await expect(button).to_have_attribute("aria-disabled", "true")
        # As a second click does; the browser's driver waits for a button that can be pressed.
        await button.dispatch_event("click")
        let.set()
    await expect(button).to_have_attribute("aria-disabled", "false")
    assert asked == 1


async def test_what_is_not_there_leads_to_what_is(console: Console) -> None:
    page = await console.open(f"notifications/{uuid.uuid4()}")
    await expect(page.locator("main h1")).to_have_text("Not found")
    await expect(page.get_by_text("There is no notification with this id.")).to_be_visible()
    await page.get_by_role("link", name="All notifications").click()
    await expect(page.get_by_label("Search", exact=True)).to_be_visible()
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1156")
async def test_a_server_with_too_much_to_do_makes_a_page_old(console: Console) -> None:
    page = await console.open("suppressions")
    await expect(page.locator("#old")).to_be_hidden()
    said = {"error": {"code": "TOO_MANY_REQUESTS", "message": "too many requests at once"}}
    url = re.compile(r"api/v1/suppressions\?")
    await page.route(url, lambda route: route.fulfill(status=429, json=said))
    await expect(page.locator("#old")).to_contain_text("Too many requests at once. What you see is from")
    await page.unroute(url)
    await expect(page.locator("#old")).to_be_hidden()
    page = await console.open()
    await page.route("**/api/v1/console/overview", lambda route: route.fulfill(status=429, json=said))
    await console.send("push")
    await expect(page.get_by_label("Verdict")).to_contain_text("Too many requests at once.")
    await page.unroute("**/api/v1/console/overview")
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1247")
async def test_a_stream_that_is_refused_says_why(console: Console) -> None:
    page = await console.open("suppressions")
    await expect(page.locator("#live")).to_have_text("live")
    said = {"error": {"code": "TOO_MANY_REQUESTS", "message": "too many requests at once"}}
    url = "**/api/v1/console/live"
    await page.route(url, lambda route: route.fulfill(status=429, json=said))
    await page.reload()
    await expect(page.locator("#old")).to_contain_text("Too many requests at once. What you see is from")
    await page.unroute(url)
    await expect(page.locator("#old")).to_be_hidden()
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1158")
async def test_what_another_process_does_is_listed_too(browser: Browser, tmp_path: Path, ledger_dsn: str) -> None:
    given = {"DATABASE_URL": ledger_dsn, "CARILLON_LEDGER__ALLOW_UNSAFE": "true", "CARILLON_HTTP__PORT": "0"}
    with (
        Program("serve", "--roles", "doors", env=given, cwd=tmp_path) as shown,
        Program("serve", "--roles", "doors,outbound", env=given, cwd=tmp_path) as other,
    ):
        address, elsewhere = (str(one.wait_ready(60)["addresses"][0]) for one in (shown, other))
        async with Console(browser, address) as console:
            page = await console.open("notifications")
            await expect(page.locator("#live")).to_have_text("live")
            await expect(page.get_by_text("Nothing has been accepted yet.")).to_be_visible()
            # The list is drawn once more when the stream begins: the second is not there by that.
            for user in ("first-of-them", "second-of-them"):
                await Console(browser, elsewhere).send("push", user=user)
                row = page.get_by_role("row").filter(has_text=user)
                await expect(row).to_contain_text("delivered")
