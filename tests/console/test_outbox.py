"""The outbox: what the sandbox was asked to send, as a phone, a letter and a text message."""

import uuid

import pytest
from playwright.async_api import expect

from tests.support.console import PHONE, Console

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_nothing_was_sent_yet(console: Console) -> None:
    page = await console.open("outbox")
    await expect(page.get_by_text("The sandbox got no message since this process began.")).to_be_visible()


async def test_a_message_appears_by_itself_as_its_reader_sees_it(console: Console) -> None:
    page = await console.open("outbox")
    items = page.get_by_role("list", name="Messages").get_by_role("listitem")
    name = f"Ada {uuid.uuid4().hex[:6]}"
    data = {"name": name, "link": "https://example.org/start"}
    await console.send("push", data=data)
    await expect(items.filter(has_text=name).locator(".phone .notice")).to_contain_text("Welcome")
    await console.send("sms", data=data)
    await expect(items.filter(has_text=name).locator(".phone .bubble")).to_contain_text(name)
    await console.send("email", data=data)
    await expect(items.filter(has_text=name).locator(".mail .envelope")).to_contain_text("ada@example.org")
    await console.picture("outbox")


async def test_tries_of_one_message_are_one_message(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/webhook", {"outcome": "throttled", "times": 1, "retryAfter": 0.1})
    try:
        page = await console.open("outbox")
        await page.get_by_label("Channel").select_option("webhook")
        sent = await console.send("webhook", recipient="https://example.org/hook", user="ada")
        item = page.get_by_role("listitem").filter(has=page.locator(f"a[href='#/notifications/{sent}']"))
        await expect(item).to_contain_text("tried 2 times: throttled, sent")
        await expect(item).to_have_count(1)
        await item.get_by_role("link", name="Its history").click()
        await expect(page.locator(".timeline")).to_contain_text("Attempt 1 by sandbox")
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/webhook")


async def test_by_channel_and_by_words(console: Console) -> None:
    word = uuid.uuid4().hex
    await console.send("email", data={"name": word, "link": "x"})
    await console.send("sms", data={"name": word, "link": "x"})
    page = await console.open("outbox")
    items = page.get_by_role("listitem")
    await page.get_by_label("Address or words").fill(word)
    await expect(items).to_have_count(2)
    await page.get_by_label("Channel").select_option("sms")
    await expect(items).to_have_count(1)
    await page.get_by_label("Address or words").fill(f"{word} and more")
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


async def test_on_a_phone(console: Console) -> None:
    await console.send("email")
    page = await console.open("outbox", size=PHONE, scheme="dark")
    await expect(page.get_by_role("listitem").first).to_be_visible()
    await console.fits()


@pytest.mark.req("P-118")
async def test_a_mail_shows_its_copies_and_files_here_and_in_its_story(console: Console) -> None:
    name = f"Ada {uuid.uuid4().hex[:6]}"
    sent = await console.ask(
        "POST",
        "/api/v1/notifications/send",
        {
            "templateKey": "welcome",
            "channel": "email",
            "recipient": "ada@example.org",
            "data": {"name": name, "link": "https://example.org/start"},
            "attachments": [{"filename": "bill.pdf", "contentType": "application/pdf", "content": "aGk="}],
            "cc": ["boss@example.org"],
            "bcc": ["archive@example.org"],
            "headers": {"X-Order": "7"},
        },
    )
    page = await console.open("outbox")
    mail = page.get_by_role("listitem").filter(has_text=name).locator(".mail")
    for text in ("Cc boss@example.org", "Bcc archive@example.org", "X-Order: 7"):
        await expect(mail.locator(".envelope")).to_contain_text(text)
    await expect(mail.locator(".files")).to_contain_text("bill.pdf application/pdf, 2 bytes")
    page = await console.open(f"notifications/{sent['notificationId']}")
    await expect(page.locator(".mail .files")).to_contain_text("bill.pdf")
