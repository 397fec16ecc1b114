"""The inbox where things go wrong: lost focus, silent connections, late properties and hostile payloads."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.console.test_inbox import MESSAGES, Desk, listed, person
from tests.support.accessibility import AXE, violations
from tests.support.process import Program
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("P-623")]

OWN = "<!doctype html><html lang=en><title>Own</title><main><h1>Own</h1>{}</main>"


@pytest.fixture
def desk(browser: Browser, program: Program) -> Desk:
    return Desk(browser, str(program.wait_ready()["addresses"][0]))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SseStand]:
    folder = tmp_path_factory.mktemp("rough")
    async with SseStand(folder, f"sqlite:///{folder / 'sse.db'}", "[sse]\nheartbeat_seconds = 0.3\n") as stand:
        await stand.start()
        yield stand


async def true_in(page: Page, said: str) -> None:
    """Until the page says so; the policy of Carillon's pages forbids what `wait_for_function` does."""

    async def asked() -> bool:
        return bool(await page.evaluate(said))

    await until(asked, timeout=40, what=said)


async def own_page(page: Page, address: str, body: str) -> None:
    """A page of somebody's product, at Carillon's origin as behind a proxy."""
    html = OWN.format(body)
    await page.route("**/own.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    await page.goto(f"{address}/own.html")


async def test_the_focus_is_never_lost(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user) as page:
        bell = page.locator("#bell carillon-inbox")
        panel, items = bell.locator(".panel"), bell.locator("li")
        await bell.locator("button.bell").click()
        await bell.locator("[part~=mark-all]").focus()
        await page.keyboard.press("Enter")
        await expect(bell.locator("[part~=mark-all]")).to_be_disabled()
        await expect(panel).to_be_focused()
        await bell.locator("[part~=settings]").focus()
        await page.keyboard.press("Enter")
        await expect(bell.locator("[part~=go-back]")).to_be_focused()
        await expect(bell.locator(".choices")).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(bell.locator("[part~=settings]")).to_be_focused()
        await items.first.focus()
        for left in (2, 1):
            await page.keyboard.press("e")
            await expect(items).to_have_count(left)
        await page.keyboard.press("e")
        await expect(bell).to_contain_text("You are all caught up")
        await expect(panel).to_be_focused()
        await bell.get_by_role("button", name="Undo").focus()
        await page.keyboard.press("Enter")
        await expect(items).to_have_count(1)
        await page.keyboard.press("Escape")
        await expect(bell.locator("button.bell")).to_be_focused()


async def test_load_more_keeps_the_focus(desk: Desk) -> None:
    user = person()
    await desk.send(user, *({"title": f"Number {number}", "body": "…"} for number in range(45)))
    async with desk.page(user) as page:
        items, more = listed(page).locator("li"), listed(page).locator("button.more")
        await more.focus()
        await page.keyboard.press("Enter")
        await expect(items).to_have_count(40)
        await expect(more).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(items).to_have_count(45)
        await expect(items.last).to_be_focused()


@pytest.mark.parametrize("lang", ["en", "ar"])
async def test_arrows_reach_what_a_row_offers_in_reading_direction(desk: Desk, lang: str) -> None:
    user = person()
    await desk.send(user, MESSAGES[0])
    async with desk.page(user) as page:
        await page.select_option("#lang", lang)
        row = listed(page).locator("li")
        await expect(row).to_have_count(1)
        onwards, back = ("ArrowRight", "ArrowLeft") if lang == "en" else ("ArrowLeft", "ArrowRight")
        await row.focus()
        stops = [row.locator(".action").nth(0), row.locator(".action").nth(1)]
        stops += [row.locator(".hand button").nth(0), row.locator(".hand button").nth(1)]
        for stop in stops:
            await page.keyboard.press(onwards)
            await expect(stop).to_be_focused()
        # A new one redraws the list: the focus stays on the button of its row.
        await desk.send(user, MESSAGES[1])
        await expect(listed(page).locator("li")).to_have_count(2)
        row = listed(page).locator("li").nth(1)
        await expect(row.locator(".hand button").nth(1)).to_be_focused()
        for _ in stops:
            await page.keyboard.press(back)
        await expect(row).to_be_focused()


async def test_the_archive_begins_with_its_newest(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user) as earlier:
        item = listed(earlier).locator("li").first
        await item.focus()
        await earlier.keyboard.press("e")
        await expect(listed(earlier).locator("li")).to_have_count(2)
    async with desk.page(user) as page:
        # The older one is archived before the archive was ever opened here.
        await listed(page).locator("li").last.focus()
        await page.keyboard.press("e")
        await expect(listed(page).locator("li")).to_have_count(1)
        await listed(page).get_by_role("tab", name="Archive").click()
        titles = listed(page).locator("li .title")
        await expect(titles).to_have_text([MESSAGES[2]["title"], MESSAGES[0]["title"]])


async def test_what_comes_while_it_loads_is_counted(desk: Desk) -> None:
    user = person()
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        if not held.is_set():
            await desk.send(user, MESSAGES[0])
            await true_in(page, "window.arrived === true")
            held.set()
        await route.fulfill(response=answer)

    async with desk.page(user) as page:
        await page.evaluate("addEventListener('carillon-notification', () => { window.arrived = true; })")
        await page.route("**/unread*", hold)
        # Something that loads the inbox again: another window marked everything.
        await page.evaluate("document.querySelector('#inbox carillon-inbox').inbox._load()")
        await asyncio.wait_for(held.wait(), 30)
        await expect(listed(page).locator("h2 small")).to_have_text("1 unread")


async def test_a_connection_that_is_silent_is_opened_again(browser: Browser, sse: SseStand) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{sse.address}/inbox?user=silent&lang=en")
    inbox = listed(page)
    await expect(inbox.and_(page.locator("[live]"))).to_be_attached()
    beats = "document.querySelector('#inbox carillon-inbox').inbox._beat !== null"
    await true_in(page, beats)
    pid = sse.programs[-1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await expect(inbox.locator(".notice")).to_be_visible()
    finally:
        os.kill(pid, signal.SIGCONT)
    await expect(inbox.locator(".notice")).to_be_hidden()
    await sse.tell("silent", payload={"title": "back again"})
    await expect(inbox.locator("li")).to_have_count(1)
    await context.close()


async def test_hostile_payloads_are_text(browser: Browser, sse: SseStand) -> None:
    user, context = person(), await browser.new_context()
    page, dialogs = await context.new_page(), list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    hostile: list[dict[str, Any]] = [
        {"title": "<img src=x onerror=alert(1)>", "body": "<script>alert(2)</script>", "url": "javascript:alert(3)"},
        {"title": "icon", "icon": "javascript:alert(4)", "actions": [{"label": "x", "url": "data:text/html,x"}]},
        {"title": "lines", "url": "https://example.org/\njavascript:alert(5)", "actions": "none"},
        {"title": "slashes", "url": "//evil.example", "actions": [{"label": "y", "url": "/\\evil.example"}, None]},
    ]
    for payload in hostile:
        await sse.tell(user, payload=payload)
    await page.goto(f"{sse.address}/inbox?user={user}&lang=en")
    items = listed(page).locator("li")
    await expect(items).to_have_count(4)
    await expect(items.last).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(listed(page).locator("li :is(a, img, script)")).to_have_count(0)
    # The control: what is safe is a link.
    await sse.tell(user, payload={"title": "safe", "url": "https://example.org/a"})
    await expect(listed(page).locator("li a")).to_have_count(1)
    assert dialogs == []
    await context.close()


async def test_properties_and_the_user_may_come_late(browser: Browser, desk: Desk) -> None:
    user = person()
    await desk.send(user, MESSAGES[1])
    context = await browser.new_context()
    page, complaints = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await own_page(page, desk.address, "<carillon-inbox id=own lang=pt_BR></carillon-inbox>")
    await page.evaluate("document.getElementById('own').words = { title: 'Sinos' }")
    await page.evaluate("import('/inbox/inbox.js')")
    own = page.locator("#own")
    assert await own.evaluate("own => own.shadowRoot.childElementCount") == 0, "nobody is signed in"
    await own.evaluate("(own, user) => own.setAttribute('user', user)", user)
    await expect(own.locator("li")).to_have_count(1)
    await expect(own.locator("h2")).to_contain_text("Sinos")
    await expect(own.locator("h2 small")).to_have_text("1 por ler")
    await own.evaluate(
        "own => { own.ticket = () => { window.asked = true; return Promise.reject(new Error('no')); }; }"
    )
    await true_in(page, "window.asked === true")
    await own.evaluate("own => own.removeAttribute('user')")
    await expect(own.locator("li")).to_have_count(0)
    assert await own.evaluate("own => own.shadowRoot.childElementCount") == 0
    await own.evaluate(
        "(own, user) => { own.ticket = null; own.lang = 'no language!'; own.setAttribute('user', user); }", user
    )
    await expect(own.locator("h2 small")).to_have_text("1 unread")
    assert complaints == []
    await context.close()


async def test_the_undo_stays_while_somebody_is_about_to_press_it(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user) as page:
        await page.clock.install()
        await listed(page).locator("li").first.focus()
        await page.keyboard.press("e")
        undo = listed(page).get_by_role("button", name="Undo")
        await undo.focus()
        await page.clock.run_for(20_000)
        await expect(undo).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(listed(page).locator("li")).to_have_count(3)
        # The control: without the focus it goes.
        await listed(page).locator("li").first.focus()
        await page.keyboard.press("e")
        await expect(undo).to_be_visible()
        await page.clock.run_for(20_000)
        await expect(undo).to_have_count(0)


@pytest.mark.skipif(not AXE.exists(), reason="scripts/ensure-servers installs axe-core where npm is")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(desk: Desk, scheme: Any) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user, color_scheme=scheme) as page:
        await expect(listed(page).locator("li")).to_have_count(3)
        await page.locator("#bell button.bell").click()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await listed(page).locator("[part~=settings]").click()
        await expect(listed(page).locator(".choices")).to_be_visible()
        assert await violations(page) == []
