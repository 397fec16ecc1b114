"""Dead letters: by cause, counted before a redrive, redriven at a rate, and the audit trail."""

import json
import re

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.support.console import PHONE, Console
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def bury(console: Console, channel: str, number: int, **more: str) -> None:
    """So many more dead letters of a channel."""
    path = f"/api/v1/dead-letters?channel={channel}&pageSize=1"
    before = (await console.ask("GET", path))["totalCount"]
    await console.ask("PUT", f"/api/v1/sandbox/drills/{channel}", {"outcome": "refused"})
    try:
        for _ in range(number):
            await console.send(channel, **more)

        async def buried() -> bool:
            return bool((await console.ask("GET", path))["totalCount"] == before + number)

        await until(buried, timeout=40, what=f"{number} dead letters of {channel}")
    finally:
        await console.ask("DELETE", f"/api/v1/sandbox/drills/{channel}")


@pytest_asyncio.fixture(loop_scope="module")
async def graves(console: Console) -> Console:
    """At least three of text messages and two of pushes."""
    await bury(console, "sms", 3)
    await bury(console, "push", 2)
    return console


async def test_nothing_was_given_up(console: Console) -> None:
    page = await console.open("dead-letters")
    await expect(page.get_by_text("They will be listed here, by cause")).to_be_visible()
    await expect(page.get_by_role("button", name="Redrive all")).to_be_disabled()


async def test_grouped_by_cause_and_filtered_by_one_click(graves: Console) -> None:
    page = await graves.open("dead-letters")
    causes = page.get_by_role("table", name="Causes")
    await expect(causes).to_contain_text("drill: refused")
    await expect(causes).to_contain_text("Repair the cause")
    await page.get_by_role("button", name="Show push drill").click()
    listed = page.get_by_role("table", name="Dead letters", exact=True)
    await expect(listed).not_to_contain_text("sms")
    await expect(listed).to_contain_text("push")
    await graves.picture("dead-letters")


async def test_counted_first_then_redriven_with_a_rate_and_written_down(graves: Console) -> None:
    page = await graves.open("dead-letters")
    await page.get_by_role("button", name="Show sms drill").click()
    act = page.get_by_role("button", name=re.compile("Redrive all"))
    await expect(page.get_by_role("table", name="Dead letters", exact=True)).not_to_contain_text("push")
    await page.get_by_label("How fast").select_option("5")
    await page.get_by_role("button", name="Count first").click()
    await expect(page.get_by_text(re.compile("would be redriven: .*sms drill"))).to_be_visible()
    await page.get_by_label("Reason").fill("the carrier is back")
    await act.click()
    progress = page.get_by_role("progressbar")
    await expect(progress).to_contain_text(re.compile(r"redriven: \d+ delivered, 0 failed again, 0 waiting"))
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
    audit = page.get_by_role("table", name="Audit").locator("tbody tr").first
    await expect(audit).to_contain_text("the carrier is back")
    await expect(audit).to_contain_text("channel sms")
    await expect(audit).to_contain_text("5 a second")
    found = await graves.ask("GET", "/api/v1/dead-letters?channel=sms")
    assert found["totalCount"] == 0


@pytest.mark.req("P-782")
async def test_the_trail_beside_dead_letters_is_about_dead_letters(graves: Console) -> None:
    body = {"channel": "email", "address": "gone@example.org", "reason": "asked"}
    await graves.ask("POST", "/api/v1/suppressions", body)
    redriven = {"reason": "by the trail's test", "channel": "push"}
    await graves.ask("POST", "/api/v1/admin/redrive", redriven, **{"X-Admin-Override": "true"})
    page = await graves.open("dead-letters")
    trail = page.get_by_role("table", name="Audit")
    await expect(trail).to_contain_text("by the trail's test")
    await expect(trail).not_to_contain_text("suppress")


async def test_a_reason_is_asked_for(graves: Console) -> None:
    page = await graves.open("dead-letters")
    before = await graves.ask("GET", "/api/v1/dead-letters?pageSize=1")
    await page.get_by_role("button", name=re.compile("Redrive all")).click()
    assert await page.locator("#f-reason:invalid").count() == 1
    assert (await graves.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"] == before["totalCount"]


async def test_only_what_was_chosen_is_tried_again(graves: Console) -> None:
    page = await graves.open("dead-letters")
    before = (await graves.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"]
    boxes = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody input")
    await boxes.nth(0).check()
    await boxes.nth(1).focus()
    await page.keyboard.press("Space")
    await page.get_by_label("Reason").fill("these two")
    await page.get_by_role("button", name="Redrive 2 chosen").click()
    await expect(page.get_by_role("progressbar")).to_contain_text("2 redriven")
    await expect(page.get_by_role("table", name="Audit")).to_contain_text("these two")
    assert (await graves.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"] == before - 2


@pytest.mark.req("P-956")
async def test_a_row_is_one_line_here_too(graves: Console) -> None:
    await bury(graves, "sms", 1, user="a-very-long-identifier-of-a-person-0123456789-0123456789-0123456789-0123456789")
    page = await graves.open("dead-letters")
    rows = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody tr")
    await expect(rows.filter(has_text="a-very-long-identifier")).to_have_count(1)
    heights = await rows.evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert len(set(heights)) == 1, heights


@pytest.mark.req("P-1159")
async def test_a_row_is_chosen_by_a_key(graves: Console) -> None:
    page = await graves.open("dead-letters")
    first = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody input").first
    await expect(first).not_to_be_checked()
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(first).to_be_checked()
    await expect(page.get_by_role("button", name="Redrive 1 chosen")).to_be_enabled()


async def choose(console: Console, number: int, reason: str) -> Page:
    """The dead letters with so many chosen and a reason given."""
    page = await console.open("dead-letters")
    boxes = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody input")
    for at in range(number):
        await boxes.nth(at).check()
    await page.get_by_label("Reason").fill(reason)
    return page


async def test_those_chosen_have_their_turns_though_the_tab_is_closed(graves: Console) -> None:
    page = await choose(graves, 4, "one after the other")
    await page.get_by_label("How fast").select_option("1")
    await page.get_by_role("button", name="Count first").click()
    await expect(page.get_by_text(re.compile("^4 would be redriven: "))).to_be_visible()
    await page.get_by_role("button", name="Redrive 4 chosen").click()
    await expect(page.get_by_role("progressbar")).to_contain_text("4 redriven")
    await page.close()

    async def told() -> bool:
        (newest,) = (await graves.ask("GET", "/api/v1/admin/redrives?pageSize=1"))["items"]
        assert (newest["reason"], newest["chosen"], newest["ratePerSecond"]) == ("one after the other", 4, 1.0)
        return bool(newest["delivered"] == 4)

    await until(told, timeout=40, what="all four told without a page")
    page = await graves.open("dead-letters")
    audit = page.get_by_role("table", name="Audit").locator("tbody tr").first
    await expect(audit).to_contain_text("one after the other")
    await expect(audit).to_contain_text("4 chosen, 1 a second, 4 of them")


async def slowed(route: Route) -> None:
    """Much slower than the page offers: nothing ends while a tab is closed and opened."""
    body = json.loads(route.request.post_data or "{}")
    await route.continue_(post_data=json.dumps(body | {"ratePerSecond": 0.001}))


async def test_what_is_under_way_is_seen_again_in_another_tab(graves: Console) -> None:
    page = await choose(graves, 3, "slowly")
    await page.route("**/api/v1/admin/redrive", slowed)
    await page.get_by_role("button", name="Redrive 3 chosen").click()
    under_way = "3 redriven: 1 delivered, 0 failed again, 2 waiting, the last is due at"
    await expect(page.get_by_role("progressbar")).to_contain_text(under_way)
    page = await graves.open("dead-letters")
    progress = page.get_by_role("progressbar", name="Redrive: slowly")
    await expect(progress).to_contain_text(under_way)
    await expect(progress).to_have_attribute("aria-valuenow", "1")
    waiting = await graves.ask("GET", "/api/v1/notifications?status=queued")
    for one in waiting["items"]:
        await graves.ask("POST", f"/api/v1/notifications/{one['id']}/cancel")
    await expect(progress).to_contain_text("1 delivered, 0 failed again, 0 waiting, 2 skipped")


@pytest.mark.req("P-544")
async def test_a_redrive_is_stopped_with_a_reason(graves: Console) -> None:
    page = await choose(graves, 3, "too early")
    await page.route("**/api/v1/admin/redrive", slowed)
    await page.get_by_role("button", name="Redrive 3 chosen").click()
    progress = page.get_by_role("progressbar", name="Redrive: too early")
    await expect(progress).to_contain_text("1 delivered, 0 failed again, 2 waiting")
    before = (await graves.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"]
    await page.get_by_role("button", name="Stop the redrive: too early").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 routes that wait for their turn are dead letters again")
    await page.get_by_label("Reason, for the audit trail").last.fill("down again")
    await page.get_by_role("button", name="Stop it").click()
    await expect(progress).to_contain_text("0 waiting, 2 stopped")
    await expect(page.get_by_role("table", name="Audit").locator("tbody tr").first).to_contain_text("down again")
    assert (await graves.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"] == before + 2


async def test_no_more_are_chosen_than_may_be_named(graves: Console) -> None:
    async def many(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        found["items"] = [{**found["items"][0], "id": f"n-{at}"} for at in range(1001)]
        await route.fulfill(response=answer, json=found)

    page = await graves.open("overview")
    await page.route("**/api/v1/admin/failed-notifications?*", many)
    await page.get_by_role("link", name="Dead letters", exact=True).click()
    await page.get_by_label("Choose all of this page").check()
    act = page.get_by_role("button", name="Redrive 1,001 chosen")
    await expect(act).to_be_disabled()
    await expect(page.get_by_text("At most 1,000 can be chosen one by one.")).to_be_visible()
    await page.get_by_role("table", name="Dead letters", exact=True).locator("tbody input").nth(0).uncheck()
    await expect(page.get_by_role("button", name="Redrive 1,000 chosen")).to_be_enabled()
    await expect(page.get_by_text("At most 1,000 can be chosen one by one.")).to_have_count(0)


async def test_the_focus_stays_on_its_dead_letter_when_more_arrive(graves: Console) -> None:
    page = await graves.open("dead-letters")
    boxes = page.get_by_role("table", name="Dead letters", exact=True).locator("tbody input")
    await boxes.nth(1).focus()
    stood = await page.evaluate("document.activeElement.id")
    await bury(graves, "email", 1)
    await expect(page.get_by_role("table", name="Dead letters", exact=True)).to_contain_text("email")
    assert stood, "labels alone do not tell two of the same second apart"
    assert await page.evaluate("document.activeElement.id") == stood


async def test_new_ones_appear_by_themselves(console: Console) -> None:
    page = await console.open("dead-letters")
    await expect(page.get_by_role("button", name=re.compile("Redrive all"))).to_be_visible()
    await bury(console, "webhook", 1, recipient="https://example.org/hook")
    await expect(page.get_by_role("table", name="Causes")).to_contain_text("webhook")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone(graves: Console, scheme: str) -> None:
    page = await graves.open("dead-letters", size=PHONE, scheme=scheme)
    await expect(page.get_by_role("table", name="Causes")).to_be_visible()
    await graves.fits()
