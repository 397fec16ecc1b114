"""The inbox component in a real browser: it shows, counts, acknowledges, and survives the server's death."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from tests.support.browser import chromium
from tests.support.ports import free_port
from tests.support.sse_stand import SECRET, SseStand
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_MS = 40_000
expect.set_options(timeout=PATIENCE_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SseStand]:
    """One that can be killed and comes back under the same address."""
    folder = tmp_path_factory.mktemp("sse")
    port = {"CARILLON_HTTP__PORT": str(free_port())}
    async with SseStand(folder, f"sqlite:///{folder / 'sse.db'}", **port) as stand:
        await stand.start()
        yield stand


async def opened(browser: Browser, address: str, complaints: list[str] | None = None) -> Page:
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE_MS)

    def heard(message: ConsoleMessage) -> None:
        if complaints is not None and message.type == "error":
            complaints.append(f"{message.text} {message.location}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)) if complaints is not None else None)
    await page.goto(address)
    return page


async def test_notifications_appear_as_they_come_and_are_acknowledged(browser: Browser, sse: SseStand) -> None:
    before = await sse.tell("ada", payload={"message": "while you were away"})
    complaints: list[str] = []
    page = await opened(browser, f"{sse.address}/inbox?user=ada", complaints)
    items, badge = page.locator("#inbox carillon-inbox li"), page.locator("#bell carillon-inbox .count")
    await expect(items).to_have_count(1)
    await expect(page.locator("#inbox carillon-inbox[live]")).to_be_attached()
    told = await sse.tell("ada", payload={"message": "<img src=x onerror=alert(1)>"}, event_type="job.update")
    await expect(items).to_have_count(2)
    await expect(items.first).to_have_attribute("data-type", "job.update")
    # What a producer wrote is text.
    await expect(items.first.locator(".title")).to_have_text("<img src=x onerror=alert(1)>")
    assert await page.locator("#inbox carillon-inbox img").count() == 0
    await expect(badge).to_have_text("2")
    for each in (before, told):
        await sse.until_row(each, status="delivered")
    await page.locator("#inbox carillon-inbox [part~=mark-all]").click()
    await expect(badge).to_be_hidden()
    assert (await sse.ask("GET", "/notifications/ada/unread")).json["unread"] == 0
    assert complaints == []
    await page.close()


async def test_a_page_that_is_loaded_again_shows_the_same(browser: Browser, sse: SseStand) -> None:
    page = await opened(browser, f"{sse.address}/inbox?user=bob")
    await expect(page.locator("#inbox carillon-inbox[live]")).to_be_attached()
    for number in range(3):
        await sse.tell("bob", payload={"message": f"number {number}"})
    items = page.locator("#inbox carillon-inbox li .title")
    await expect(items).to_have_text(["number 2", "number 1", "number 0"])
    await page.reload()
    await expect(items).to_have_text(["number 2", "number 1", "number 0"])
    await page.close()


async def test_the_component_comes_back_after_a_crash_and_misses_nothing(browser: Browser, sse: SseStand) -> None:
    page = await opened(browser, f"{sse.address}/inbox?user=cleo")
    await sse.tell("cleo", payload={"message": "before"})
    items = page.locator("#inbox carillon-inbox li .title")
    await expect(items).to_have_text(["before"])
    sse.programs[-1].kill()
    await expect(page.locator("#inbox carillon-inbox:not([live])")).to_be_attached()
    await sse.start()
    await sse.tell("cleo", payload={"message": "after"})
    await expect(items).to_have_text(["after", "before"])
    await page.close()


async def test_with_tokens_the_page_opens_every_stream_with_a_new_ticket(browser: Browser, tmp_path: Path) -> None:
    settings = "[sse]\nlifetime_seconds = 2\n"
    url = f"sqlite:///{tmp_path / 'sse.db'}"
    async with SseStand(tmp_path, url, settings, JWT_SECRET_KEY=SECRET) as stand:
        await stand.start()
        asked: list[str] = []
        page = await opened(browser, f"{stand.address}/inbox")
        page.on("request", lambda request: asked.append(request.url))
        await page.fill("#user", "dora")
        await page.fill("#token", token("dora"))
        await page.click("form button")
        await expect(page.locator("#inbox carillon-inbox[live]")).to_be_attached()
        # Before that the page asked for the stream of its example, without a token, and was refused.
        asked[:] = [url for url in asked if "user_id=demo" not in url]
        root = {"Authorization": f"Bearer {token('root', role='admin')}"}
        told = await stand.tell("dora", payload={"message": "one"}, headers=root)
        items = page.locator("#inbox carillon-inbox li .title")
        await expect(items).to_have_text(["one"])
        await stand.until_row(told, status="delivered")

        async def third() -> bool:
            return len(streams(asked)) > 2

        # Every stream ends after two seconds, and the next one needs another ticket.
        await until(third, timeout=60, what="a third stream")
        assert len(set(streams(asked))) == len(streams(asked))
        assert not any("eyJ" in url for url in asked)
        await stand.tell("dora", payload={"message": "two"}, headers=root)
        await expect(items).to_have_text(["two", "one"])
        await page.close()


def streams(asked: list[str]) -> list[str]:
    return [url for url in asked if "/notifications/stream?" in url]


def token(user: str, **claims: Any) -> str:
    now = time.time()
    return jwt.encode({"sub": user, "role": "user", "iat": now, "exp": now + 600, **claims}, SECRET, algorithm="HS256")


@pytest.mark.req("P-122")
async def test_a_notification_has_a_title_a_link_and_actions_and_no_link_runs_a_script(
    browser: Browser, sse: SseStand
) -> None:
    good = {
        "title": "A bell founder is wanted",
        "body": "In Aarau",
        "url": "/jobs/7",
        "actions": [
            {"label": "Apply", "url": "https://example.org/7"},
            {"label": "Evil", "url": "javascript:alert(1)"},
        ],
    }
    bad = [
        {"message": f"bad {number}", "url": url}
        for number, url in enumerate(
            ["javascript:alert(1)", " javascript:alert(1)", "//evil.example", "/\\evil.example", 7]
        )
    ]
    for payload in (good, *bad):
        await sse.tell("eve", payload=payload)
    page = await opened(browser, f"{sse.address}/inbox?user=eve")
    items = page.locator("#inbox carillon-inbox li")
    await expect(items).to_have_count(6)
    links = page.locator("#inbox carillon-inbox li a")
    await expect(links).to_have_count(2)
    assert [await link.get_attribute("href") for link in await links.all()] == ["/jobs/7", "https://example.org/7"]
    await expect(items.filter(has_text="Aarau").locator(".title")).to_have_text("A bell founder is wanted")
    for number in range(len(bad)):
        await expect(items.filter(has_text=f"bad {number}").locator("span.title")).to_have_count(1)
