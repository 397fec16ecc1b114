"""Queues of the billing services: depths, failed messages with their errors, and requeueing."""

import asyncio
import datetime as dt
import json
import re
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import expect

from tests.support.billing_stand import Billing, stand_fixture
from tests.support.console import DESK, PHONE, Console
from tests.support.process import Program
from tests.support.queue_stand import envelope
from tests.support.vendor import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPDATE = "q:pay:subscription_update"
WIDE = """() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("table[aria-label='Failed messages'] { min-width: 1600px }");
    document.adoptedStyleSheets = [sheet];
}"""
# Failures are final at once: what is looked at here is what an operator does about them.
ONCE: Any = {"CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__MAX_RETRIES": "0"}

billing: Any = stand_fixture(scope="module", params=("sqlite",), **ONCE)


@pytest.fixture(scope="module")
def program(billing: Billing) -> Program:
    return billing.start_payment()


async def push(billing: Billing, number: int, answer: Reply, status: str) -> list[str]:
    """So many messages that end so; their ids."""
    billing.subscription_stub.default = answer
    found = []
    for _ in range(number):
        event_id = f"payment_{uuid4()}_1"
        now = dt.datetime.now(dt.UTC).isoformat()
        message = envelope(
            payload={"event_id": event_id}, idempotency_key=event_id, correlation_id=f"c-{event_id}", created_at=now
        )
        billing.push(UPDATE, message)
        await asyncio.to_thread(billing.logged, status, message_id=message["id"])
        found.append(str(message["id"]))
    return found


async def failed(billing: Billing, number: int) -> list[str]:
    return await push(billing, number, Reply(503, body={"error": "down"}), "failed")


async def test_only_queues_are_shown_here(console: Console) -> None:
    page = await console.open()
    await expect(page.locator("#nav a")).to_have_text(["Queues"])
    await expect(page.get_by_role("table", name="Queues")).to_contain_text("q:pay:refund_initiation")
    await expect(page.get_by_text("No message has run yet.")).to_be_visible()
    await expect(page.get_by_text("Nobody has requeued a message.")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("live")


async def test_what_is_worked_off_appears_by_itself(console: Console, billing: Billing) -> None:
    page = await console.open("queues")
    row = page.get_by_role("table", name="Queues").locator("tbody tr", has_text=UPDATE)
    await expect(row).to_contain_text("process_webhook_processing")
    await push(billing, 2, Reply(), "success")
    await expect(page.get_by_role("table", name="Job logs")).to_contain_text("success")
    done = page.locator(".figures div", has_text="Done by this process").locator("dd")
    await expect(done).to_have_text("2")


async def test_the_focus_stays_on_its_link(console: Console, billing: Billing) -> None:
    page = await console.open("queues")
    link = page.get_by_role("link", name="q:sub:usage_sync").first
    await link.focus()
    done = page.locator(".figures div", has_text="Done by this process").locator("dd")
    before = int(await done.inner_text())
    await push(billing, 1, Reply(), "success")
    await expect(done).to_have_text(str(before + 1))
    await expect(link).to_be_focused()


@pytest.mark.req("P-1025")
async def test_failed_messages_get_another_life(console: Console, billing: Billing) -> None:
    ids = await failed(billing, 3)
    page = await console.open("queues")
    await page.get_by_role("link", name=UPDATE).first.click()
    await expect(page.locator("main h1")).to_have_text(UPDATE)
    await expect(page.locator(".facts")).to_contain_text("lock ttl seconds")
    listed = page.get_by_role("table", name="Failed messages")
    await expect(listed.locator("tbody tr")).to_have_count(3)
    # Why each failed stands beside it, on a phone too.
    await expect(listed.locator("tbody tr").first).to_contain_text("HTTP 503")
    await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    await console.fits()
    await page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
    await listed.locator("summary").first.click()
    await expect(listed.locator("pre").first).to_contain_text("event_id")
    await console.picture("queues")
    billing.subscription_stub.default = Reply()
    await page.get_by_label(f"Choose {ids[0]}").check()
    await page.get_by_label("Reason").fill("the other side is back")
    await page.get_by_role("button", name="Requeue 1 chosen").click()
    await expect(listed.locator("tbody tr")).to_have_count(2)
    await expect(listed).not_to_contain_text(ids[0])
    await page.get_by_role("button", name="Requeue all 2").click()
    await expect(page.get_by_text("There are no failed messages.")).to_be_visible()

    async def written_down() -> bool:
        rows = await asyncio.to_thread(billing.rows, "SELECT reason FROM admin_actions")
        return [row["reason"] for row in rows] == ["the other side is back"] * 2

    # The page looks by itself, and may find the queue empty before the last word about it is written.
    await until(written_down, timeout=40, what="both actions in the audit")
    audit = page.get_by_role("table", name="Audit").locator("tbody tr")
    await expect(audit).to_have_count(2)
    await expect(audit.nth(0)).to_contain_text("all 2")
    await expect(audit.nth(1)).to_contain_text("1 chosen")
    await expect(audit.nth(1)).to_contain_text("the other side is back")


async def test_what_was_done_by_hand_is_shown_as_it_is_done(console: Console, billing: Billing) -> None:
    page = await console.open("queues")
    await failed(billing, 1)
    path = f"/ops/queues/{UPDATE}/failed/requeue"
    await console.ask("POST", path, {"reason": "by somebody else"})
    row = page.get_by_role("table", name="Audit").locator("tbody tr").first
    await expect(row).to_contain_text("by somebody else")
    await expect(row).to_contain_text("anonymous")
    link = row.get_by_role("link", name=UPDATE)
    await link.focus()
    stood = await page.evaluate("document.activeElement.id")
    await failed(billing, 1)
    await console.ask("POST", path, {"reason": "once more"})
    await expect(row).to_contain_text("once more")
    assert await page.evaluate("document.activeElement.id") == stood
    await page.get_by_role("table", name="Audit").get_by_role("link", name=UPDATE).first.click()
    await expect(page.locator("main h1")).to_have_text(UPDATE)


async def test_lives_are_found_by_status_and_correlation(console: Console, billing: Billing) -> None:
    await failed(billing, 1)
    page = await console.open("queues")
    logs = page.get_by_role("table", name="Job logs")
    await page.get_by_label("Status").select_option("failed")
    await expect(logs.locator("tbody tr .badge", has_text=re.compile("success"))).to_have_count(0)
    await expect(logs.locator("tbody tr .badge").first).to_have_text("failed")
    await page.get_by_label("Correlation").fill("nobody said this")
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


@pytest.mark.req("P-621")
async def test_a_redraw_keeps_scrolled_tables_and_open_payloads(console: Console, billing: Billing) -> None:
    (first,) = await failed(billing, 1)
    page = await console.open(f"queues/{UPDATE}")
    # Wider than the page, as a table with long words is.
    await page.evaluate(WIDE)
    listed = page.get_by_role("table", name="Failed messages")
    around = page.locator(".scroll", has=listed)
    await page.locator(f"[id='content-{first}'] summary").click()
    await around.focus()
    await expect(around).to_be_focused()
    await around.evaluate("element => { element.scrollLeft = 40; }")
    rows = await listed.locator("tbody tr").count()
    await failed(billing, 1)
    await expect(listed.locator("tbody tr")).to_have_count(rows + 1)
    await expect(around).to_be_focused()
    assert await around.evaluate("element => element.scrollLeft") == 40
    await expect(page.locator(f"[id='content-{first}']")).to_have_attribute("open", "")
    path = f"/ops/queues/{UPDATE}/failed/requeue"
    billing.subscription_stub.default = Reply()
    await console.ask("POST", path, {"reason": "nobody needs them"})
    await expect(page.get_by_text("There are no failed messages.")).to_be_visible()
    # The table is gone: the focus is not lost to the top of the document.
    await expect(page.locator("main:focus, main :focus")).to_have_count(1)


async def test_on_a_phone(console: Console) -> None:
    page = await console.open("queues", size=PHONE, scheme="dark")
    await expect(page.get_by_role("table", name="Queues")).to_be_visible()
    await console.fits()
    page = await console.open(f"queues/{UPDATE}", size=PHONE)
    await console.fits()


@pytest.mark.req("P-1146")
async def test_a_queue_that_is_not_there(console: Console) -> None:
    page = await console.open("queues/q:pay:nothing")
    await expect(page.get_by_text("There is no queue q:pay:nothing.")).to_be_visible()


@pytest.mark.req("P-614")
@pytest.mark.parametrize("size", [DESK, PHONE])
async def test_a_queue_is_paused_and_resumed(console: Console, billing: Billing, size: tuple[int, int]) -> None:
    billing.subscription_stub.default = Reply()
    page = await console.open(f"queues/{UPDATE}", size=size)
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("The other side is moved")
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("by anonymous: The other side is moved")).to_be_visible()
    await console.fits()
    event_id = f"payment_{uuid4()}_1"
    message = envelope(payload={"event_id": event_id}, idempotency_key=event_id)
    billing.push(UPDATE, message)
    await console.picture(f"paused-queue-{size[0]}")
    page = await console.open("queues", size=size)
    await expect(page.get_by_role("table", name="Queues").locator("tbody tr", has_text=UPDATE)).to_contain_text(
        "paused"
    )
    assert billing.redis.llen(UPDATE) == 1
    page = await console.open(f"queues/{UPDATE}", size=size)
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("It is back")
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await asyncio.to_thread(billing.logged, "success", message_id=message["id"])
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.req("P-642")
async def test_older_ones_are_a_click_away_in_every_list(console: Console, billing: Billing) -> None:
    now = dt.datetime.now(dt.UTC).isoformat()
    for number in range(62):
        billing.redis.lpush(f"{UPDATE}:failed", json.dumps(envelope(id=f"old-{number}", created_at=now)))
    await push(billing, 26, Reply(), "success")
    for number in range(9):
        await console.ask("POST", f"/ops/queues/{UPDATE}/failed/requeue", {"limit": 1, "reason": f"try {number}"})
    page = await console.open(f"queues/{UPDATE}")
    lists = (("Failed messages", "failed messages", 50), ("Job logs", "job log", 25), ("Audit", "audit trail", 8))
    for table, pages, shown in lists:
        listed = page.get_by_role("table", name=table).locator("tbody tr")
        group = page.get_by_role("group", name=f"Pages of {pages}")
        await expect(listed).to_have_count(shown)
        first = await listed.first.inner_text()
        await group.get_by_role("button", name="Older").click()
        await expect(listed.first).not_to_have_text(first)
        await group.get_by_role("button", name="Newer").click()
        await expect(listed).to_have_count(shown)
        await expect(listed.first).to_have_text(first, use_inner_text=True)
