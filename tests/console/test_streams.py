"""Streams: connected readers, waiting notifications, an inbox that fills, and reading along."""

import re
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.console import PHONE, Console
from tests.support.process import Program
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SseStand]:
    folder = tmp_path_factory.mktemp("streams")
    async with SseStand(folder, f"sqlite:///{folder / 'sse.db'}") as stand:
        await stand.start()
        yield stand


@pytest.fixture(scope="module")
def program(sse: SseStand) -> Program:
    return sse.programs[-1]


async def test_who_reads_appears_by_itself(console: Console, sse: SseStand) -> None:
    page = await console.open("streams")
    await expect(page.get_by_text("Nobody is connected to this process.")).to_be_visible()
    reader, other = await sse.read("ada"), await sse.read("grace")
    row = page.get_by_role("table", name="Readers").locator("tbody tr")
    await expect(row).to_have_text([re.compile("ada"), re.compile("grace")])
    await expect(page.locator(".figures div", has_text="Connections").locator("dd")).to_have_text("2")
    await sse.tell("ada", payload={"title": "for ada"})
    await reader.event("notification")
    await expect(page.locator(".figures div", has_text="Pushed").locator("dd")).to_have_text("1")
    await console.picture("streams")
    for each in (reader, other):
        await each.__aexit__(None, None, None)
    await expect(page.get_by_text("Nobody is connected to this process.")).to_be_visible()


async def test_an_inbox_fills_and_its_reader_is_awaited(console: Console, sse: SseStand) -> None:
    user = uuid.uuid4().hex
    page = await console.open("streams")
    await page.get_by_label("Person", exact=True).fill(user)
    await page.keyboard.press("Enter")
    await expect(page.locator("main h1")).to_have_text(user)
    await expect(page.get_by_text("This person has no notifications")).to_be_visible()
    await sse.tell(user, payload={"title": "<img src=x onerror=alert(1)>"})
    inbox = page.get_by_role("table", name="Inbox")
    await expect(inbox).to_contain_text("<img src=x")
    await expect(inbox).to_contain_text("waits")
    await page.get_by_role("button", name="Read the stream").click()
    await expect(page.locator(".heard")).to_contain_text("job.new")
    await expect(page.locator(".figures div", has_text="Connected here").locator("dd")).to_have_text("1")
    await expect(inbox).to_contain_text("pushed")
    await page.get_by_role("button", name="Stop reading").click()
    await expect(page.locator(".figures div", has_text="Connected here").locator("dd")).to_have_text("no")


async def test_a_word_to_somebody(console: Console) -> None:
    user = uuid.uuid4().hex
    page = await console.open("streams")
    await page.get_by_label("Recipient").fill(user)
    await page.get_by_label("Payload").fill("{no json")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("The payload is not JSON.")).to_be_visible()
    await page.get_by_label("Payload").fill('{"title": "a bell"}')
    await page.get_by_label("Priority").select_option("LOW")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Accepted, low priority.")).to_be_visible()

    async def told() -> bool:
        found = (await console.ask("GET", f"/notifications/{user}"))["notifications"]
        return [each["payload"] for each in found] == [{"title": "a bell"}]

    await until(told, timeout=30, what="a bell in the inbox")


@pytest.mark.req("P-1243")
async def test_who_is_away_makes_no_verdict(console: Console, sse: SseStand) -> None:
    away = [await sse.tell(uuid.uuid4().hex) for _ in range(6)]
    for told in away:
        await sse.until_row(told, status="not_pushed", last_error="not connected")
    assert (await console.ask("GET", "/api/v1/console/overview"))["attention"]["notes"] == []
    page = await console.open()
    await expect(page.get_by_label("Verdict")).to_contain_text("Nothing needs attention")


@pytest.mark.req("P-623")
async def test_reading_along_waits_for_heartbeats_as_they_are_configured(console: Console) -> None:
    user = uuid.uuid4().hex
    assert (await console.ask("GET", "/api/v1/console/streams"))["heartbeatSeconds"] == 30.0
    page = await console.open(f"streams/{user}")
    await page.clock.install()
    await page.get_by_role("button", name="Read the stream").click()
    state = page.locator(".row [role=status]")
    await expect(state).to_have_text("reading")
    # Between two heartbeats nothing is said, and nobody hangs up; the live ticks of the page are awaited for 15 s only.
    await page.clock.run_for(40_000)
    await expect(state).to_have_text("reading")
    await expect(page.locator(".heard li", has_text="connected")).to_have_count(1)


async def test_who_leaves_the_page_reads_no_more(console: Console) -> None:
    user = uuid.uuid4().hex
    page = await console.open(f"streams/{user}")
    await page.get_by_role("button", name="Read the stream").click()
    await expect(page.locator(".figures div", has_text="Connected here").locator("dd")).to_have_text("1")
    await page.get_by_role("link", name="All people").click()
    await expect(page.get_by_text("Nobody is connected to this process.")).to_be_visible()


async def test_on_a_phone(console: Console, sse: SseStand) -> None:
    await sse.tell("phone", payload={"title": "a" * 200})
    page = await console.open("streams", size=PHONE, scheme="dark")
    await expect(page.get_by_text("Connected readers")).to_be_visible()
    await console.fits()
    page = await console.open("streams/phone", size=PHONE)
    await expect(page.get_by_role("table", name="Inbox")).to_be_visible()
    await console.fits()
