"""Finding notifications and reading one's story."""

import asyncio
import uuid
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.support.console import PHONE, Console

DATA = {"name": "Ada", "link": "https://example.org/start"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_search_by_person_and_status(console: Console) -> None:
    ada, bob = uuid.uuid4().hex, uuid.uuid4().hex
    await console.send("email", user=ada)
    await console.send("push", user=bob)
    page = await console.open("notifications")
    rows = page.get_by_role("table", name="Notifications").locator("tbody tr")
    await page.keyboard.press("/")
    await page.keyboard.type(ada)
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text(ada)
    await page.locator("#status-failed").click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


async def test_filters_survive_a_story_and_a_reload(console: Console) -> None:
    ada = uuid.uuid4().hex
    await console.send("email", user=ada)
    await console.send("push", user=uuid.uuid4().hex)
    page = await console.open("notifications")
    rows = page.get_by_role("table", name="Notifications").locator("tbody tr")
    await page.get_by_text("More filters").click()
    await page.get_by_label("Person").fill(ada)
    await page.get_by_role("button", name="Search", exact=True).click()
    await page.locator("#channel-email").click()
    await expect(rows).to_have_count(1)
    await rows.locator("td", has_text="email").click()
    await expect(page.locator("main h1")).to_have_text("welcome")
    await page.go_back()
    await expect(page.get_by_label("Person")).to_have_value(ada)
    await expect(page.locator("#channel-email")).to_have_attribute("aria-pressed", "true")
    await expect(rows).to_have_count(1)
    await page.reload()
    await expect(rows).to_have_count(1)


async def test_what_was_given_up_is_tried_again_from_its_story(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    try:
        given_up = await console.send("sms")
        page = await console.open(f"notifications/{given_up}")
        await expect(page.locator("main .badge", has_text="failed").first).to_be_visible()
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/sms")
    await page.locator("#retry").click()
    await page.get_by_label("Reason").fill("the vendor is back")
    await page.locator("#confirm").click()
    await expect(page.locator("main .head .badge")).to_have_text("delivered")
    await expect(page.locator("#retry")).to_have_count(0)
    audit = (await console.ask("GET", "/api/v1/admin/audit?pageSize=1"))["items"][0]
    assert (audit["action"], audit["reason"], audit["subject"]) == ("retry", "the vendor is back", given_up)


async def test_new_ones_appear_by_themselves(console: Console) -> None:
    page = await console.open("notifications")
    user = uuid.uuid4().hex
    await console.send("email", user=user)
    await expect(page.get_by_role("table", name="Notifications")).to_contain_text(user)
    await console.picture("notifications")


async def test_the_focus_stays_on_its_link(console: Console) -> None:
    known = await console.send("email")
    page = await console.open("notifications")
    link = page.locator(f'main a[href="#/notifications/{known}"]')
    await link.focus()
    for _ in range(2):
        new = await console.send("email")
        await expect(page.locator(f'main a[href="#/notifications/{new}"]')).to_be_visible()
        await expect(link).to_be_focused()


async def held(page: Page) -> asyncio.Event:
    """The list's first answer has been given and comes when this is set; all later ones come at once."""
    come, first = asyncio.Event(), iter([True])

    async def pass_on(route: Route) -> None:
        answer = await route.fetch()
        if next(first, False):
            await come.wait()
        await route.fulfill(response=answer)

    await page.route("**/api/v1/notifications?*", pass_on)
    await page.locator("nav a", has_text="Notifications").click()
    return come


async def test_typing_goes_on_while_the_page_loads(console: Console) -> None:
    await console.send("email")
    page = await console.open("templates")
    come = await held(page)
    await page.get_by_label("Search").fill("ad")
    come.set()
    await expect(page.get_by_role("table", name="Notifications")).to_be_visible()
    await expect(page.get_by_label("Search")).to_be_focused()
    await expect(page.get_by_label("Search")).to_have_value("ad")


async def test_an_old_answer_does_not_overtake_a_new_one(console: Console) -> None:
    ada = uuid.uuid4().hex
    await console.send("email")
    await console.send("email", user=ada)
    page = await console.open("templates")
    rows = page.get_by_role("table", name="Notifications").locator("tbody tr")
    come = await held(page)
    await page.get_by_label("Search").fill(ada)
    await page.keyboard.press("Enter")
    await expect(rows).to_contain_text([ada])
    async with page.expect_response(lambda answer: ada not in answer.url and "notifications?" in answer.url) as old:
        come.set()
    await (await old.value).finished()
    await page.evaluate("fetch('/api/v1/console/surface').then((answer) => answer.text())")
    await expect(rows).to_have_count(1)


async def test_who_has_gone_on_is_not_fetched_back(console: Console) -> None:
    page = await console.open("templates")
    come, asked = asyncio.Event(), asyncio.Event()

    async def pass_on(route: Route) -> None:
        asked.set()
        await come.wait()
        await route.continue_()

    await page.route("**/api/v1/console/overview", pass_on)
    await page.locator("nav a", has_text="Overview").click()
    await asked.wait()
    await page.locator("nav a", has_text="Outbox").click()
    await expect(page.locator("main h1")).to_have_text("Outbox")
    async with page.expect_response("**/api/v1/console/overview") as late:
        come.set()
    await (await late.value).finished()
    await page.evaluate("fetch('/api/v1/console/surface').then((answer) => answer.text())")
    await expect(page.locator("main h1")).to_have_text("Outbox")


@pytest.mark.req("P-780")
async def test_a_story_leads_to_its_template(console: Console) -> None:
    sent = await console.send("sms")
    page = await console.open(f"notifications/{sent}")
    await page.get_by_role("link", name="welcome").click()
    await expect(page.get_by_role("heading", name="Templates")).to_be_visible()
    listed = page.get_by_role("table", name="Templates").locator("tbody tr")
    await expect(listed).to_have_count(5)
    await listed.filter(has_text="sms").click()
    await expect(page.get_by_role("heading", name="welcome")).to_be_visible()
    await page.go_back()
    await page.go_back()
    await expect(page).to_have_url(f"{console.address}/console#/notifications/{sent}")


async def test_an_id_leads_to_its_story(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/push", {"outcome": "unavailable", "times": 1})
    try:
        sent = await console.send("push", user="ada")
        page = await console.open("notifications")
        await page.get_by_label("Search").fill(sent)
        await page.keyboard.press("Enter")
        line = page.locator(".timeline li")
        await expect(line.nth(1)).to_contain_text("Attempt 1 by sandbox")
        await expect(line.nth(1)).to_contain_text("drill: unavailable")
        await expect(line.nth(1)).not_to_contain_text("drill: drill")
        await expect(page.locator(".timeline")).to_contain_text("Attempt 2 by sandbox")
        await expect(page.locator(".timeline")).to_contain_text("Delivered")
        await expect(page.locator(".phone .notice")).to_contain_text("Welcome, Ada!")
        await console.picture("story")
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/push")


async def test_mail_and_text_are_shown_as_readers_see_them(console: Console) -> None:
    mail, text = await console.send("email"), await console.send("sms")
    page = await console.open(f"notifications/{mail}")
    await expect(page.locator(".mail .envelope")).to_contain_text("ada@example.org")
    await page.goto(f"{console.address}/console#/notifications/{text}")
    await expect(page.locator(".phone .bubble")).to_contain_text("Ada")


async def test_markup_in_a_name_is_text(console: Console) -> None:
    data = {"name": "<img src=x onerror=alert(1)>", "link": "https://example.org/"}
    page = await console.open(f"notifications/{await console.send('email', data=data)}")
    await expect(page.locator(".letter")).to_contain_text("<img src=x")
    assert await page.locator(".letter img").count() == 0


async def test_why(console: Console) -> None:
    page = await console.open(f"notifications/{await console.send('email')}")
    await page.get_by_role("button", name="Explain").click()
    gates = page.get_by_role("list", name="Gates")
    await expect(gates).to_contain_text("Template")
    await expect(gates).to_contain_text("the address is not suppressed")
    await expect(gates).to_contain_text("sandbox, its breaker is closed")
    await expect(gates).to_contain_text("1. sandbox, at once")


@pytest.mark.req("P-1026")
async def test_why_asks_about_the_whole_request(console: Console) -> None:
    user = uuid.uuid4().hex
    sent = await console.send("email", user=user, category="orders", serviceOrigin="shop")
    wishes = {"categories": {"orders": {"email": False}}}
    await console.ask("PATCH", f"/api/v1/preferences/user/{user}", wishes)
    page = await console.open(f"notifications/{sent}")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("The same request now:")).to_contain_text("skipped")
    await expect(page.get_by_role("list", name="Gates").locator("li", has_text="Category")).to_contain_text("stop")


@pytest.mark.req("P-1027")
async def test_a_chain_is_told_in_its_order_and_a_mail_as_it_looks(console: Console) -> None:
    user = uuid.uuid4().hex
    await console.ask("PATCH", f"/api/v1/preferences/user/{user}", {"contacts": {"email": "ada@example.org"}})
    body = {"templateKey": "welcome", "userId": user, "data": {"name": "Ada", "link": "https://example.org/start"}}
    chain = {"channels": ["push", "inApp", "email"], "until": "read", "after": "10m"}
    sent = await console.ask("POST", "/api/v1/notifications/send", body | chain)
    page = await console.open(f"notifications/{sent['notificationId']}")
    headings = page.locator("main section h2")
    routes = headings.filter(has_text=" to ")
    # The person has no device: that channel is skipped, and is no step of the chain.
    await expect(routes).to_have_text([f"inApp to {user}", "email to ada@example.org", f"push to {user}"])
    await expect(page.get_by_text("Channel 2 of a chain that ends once the message is read.")).to_be_visible()
    letter = page.frame_locator("iframe[title='The message as its recipient sees it']")
    await expect(letter.locator("a[href='https://example.org/start']")).to_be_visible()


@pytest.mark.req("P-1244")
async def test_why_asks_about_a_chain_as_about_a_chain(console: Console) -> None:
    user = uuid.uuid4().hex
    await console.ask("PATCH", f"/api/v1/preferences/user/{user}", {"contacts": {"email": "ada@example.org"}})
    body = {"templateKey": "welcome", "userId": user, "data": {"name": "Ada", "link": "https://example.org/start"}}
    chain = {"channels": ["push", "inApp", "email"], "until": "read", "after": "10m"}
    sent = await console.ask("POST", "/api/v1/notifications/send", body | chain)
    page = await console.open(f"notifications/{sent['notificationId']}")
    await page.get_by_role("button", name="Explain").click()
    # A channel without an address ends a request for all of them, and is left out of a chain.
    await expect(page.get_by_text("The same request now:")).to_contain_text("queued")
    gates = page.get_by_role("list", name="Gates")
    await expect(gates.locator("li", has_text="Chain")).to_contain_text("inApp, then email, until it is read")
    await expect(gates).not_to_contain_text("routeId")


@pytest.mark.req("P-1246")
async def test_a_long_dialog_begins_with_its_beginning(console: Console) -> None:
    sent = await console.send("email")
    page = await console.open(f"notifications/{sent}", size=PHONE)
    await page.get_by_role("button", name="Raw JSON").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Copy")).to_be_focused()
    await expect(dialog.get_by_role("heading")).to_be_in_viewport()


async def test_what_waits_can_be_cancelled(console: Console) -> None:
    sent = await console.send("email", scheduledFor="2999-01-01T00:00:00Z")
    page = await console.open(f"notifications/{sent}")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel it").click()
    await expect(page.locator(".head .badge")).to_have_text("skipped")


async def test_nobody_of_that_name(console: Console) -> None:
    page = await console.open("notifications")
    await page.get_by_label("Search").fill("there-is-no-such")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
    await page.goto(f"{console.address}/console#/notifications/there-is-no-such")
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()
    # The browser reports every 404 by itself.
    console.complaints.clear()


@pytest.mark.req("P-543")
async def test_those_chosen_are_cancelled_after_a_count(console: Console) -> None:
    user = uuid.uuid4().hex
    for _ in range(3):
        await console.send("email", user=user, scheduledFor="2999-01-01T00:00:00Z")
    page = await console.open(f"notifications?q={user}")
    boxes = page.get_by_role("table", name="Notifications").locator("tbody input")
    await expect(boxes).to_have_count(3)
    await boxes.nth(0).check()
    await boxes.nth(1).check()
    await page.get_by_role("button", name="Cancel 2 chosen").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 routes that wait are skipped for good")
    await page.get_by_role("button", name="Not now").click()
    assert (await console.ask("GET", f"/api/v1/notifications?userId={user}&status=queued"))["totalCount"] == 3
    await page.get_by_role("button", name="Cancel 2 chosen").click()
    await page.get_by_role("button", name="Cancel them").click()
    await expect(page.locator(".badge", has_text="skipped")).to_have_count(2)
    assert (await console.ask("GET", f"/api/v1/notifications?userId={user}&status=queued"))["totalCount"] == 1


@pytest.mark.req("P-543", "P-1245")
async def test_all_that_match_only_where_the_filters_say_so(console: Console) -> None:
    user = uuid.uuid4().hex
    for _ in range(2):
        await console.send("email", user=user, scheduledFor="2999-01-01T00:00:00Z")
    page = await console.open(f"notifications?status=queued&q={user}")
    await expect(page.get_by_role("table", name="Notifications").locator("tbody tr")).to_have_count(2)
    # Cancelling does not know the free text: it would touch more than is shown.
    await expect(page.locator("#bulk-cancel")).to_have_count(0)
    # The API does not cancel everything that waits.
    page = await console.open("notifications?status=queued")
    await expect(page.get_by_role("button", name="CSV")).to_be_visible()
    await expect(page.locator("#bulk-cancel")).to_have_count(0)
    page = await console.open(f"notifications?status=queued&userId={user}")
    await page.get_by_role("button", name="Cancel all that match").click()
    await expect(page.get_by_role("dialog", name="Cancel 2 notifications?")).to_be_visible()
    await page.get_by_role("button", name="Cancel them").click()
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


@pytest.mark.req("P-543")
async def test_a_view_is_saved_opened_and_forgotten(console: Console) -> None:
    page = await console.open("notifications?status=failed&channel=sms")
    await page.get_by_role("button", name="Save view").click()
    await page.get_by_label("Name").fill("texts that failed")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.get_by_role("button", name="Clear").click()
    await expect(page.locator("#status-failed")).to_have_attribute("aria-pressed", "false")
    await page.reload()
    await page.get_by_role("button", name="texts that failed", exact=True).click()
    await expect(page.locator("#status-failed")).to_have_attribute("aria-pressed", "true")
    assert "status=failed&channel=sms" in page.url
    await page.get_by_role("button", name="Forget the view").click()
    await expect(page.get_by_role("button", name="texts that failed", exact=True)).to_have_count(0)


@pytest.mark.req("P-543")
async def test_older_ones_by_cursor_and_an_export_of_all(console: Console) -> None:
    user = uuid.uuid4().hex
    items = [
        {"templateKey": "welcome", "channel": "push", "recipient": f"=device-{at}", "userId": user, "data": DATA}
        for at in range(120)
    ]
    for begin in (0, 60):
        await console.ask("POST", "/api/v1/notifications/batch", {"notifications": items[begin : begin + 60]})
    page = await console.open(f"notifications?userId={user}")
    rows = page.get_by_role("table", name="Notifications").locator("tbody tr")
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="Older").click()
    await expect(page.get_by_role("button", name="Newer")).to_be_enabled()
    await page.get_by_role("button", name="Older").click()
    await expect(rows).to_have_count(20)
    assert "cursor=" in page.url
    await page.reload()
    await expect(rows).to_have_count(20)
    async with page.expect_download() as begun:
        await page.get_by_role("button", name="CSV").click()
    text = await asyncio.to_thread(Path(await (await begun.value).path()).read_text)
    lines = text.splitlines()
    assert len(lines) == 121
    # A spreadsheet does not run it.
    assert ",'=device-" in lines[1]


async def test_on_a_phone(console: Console) -> None:
    sent = await console.send("push")
    await console.open("notifications", size=PHONE)
    await console.fits()
    await console.open(f"notifications/{sent}", size=PHONE)
    await console.fits()
