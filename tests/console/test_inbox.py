"""The inbox component in a real browser, over local: every width, light and dark, keyboard, languages, two windows."""

import asyncio
import json
import urllib.request
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.support.browser import new_tab
from tests.support.process import Program

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("P-562")]

SIZES = {"phone": (390, 780), "tablet": (820, 1000), "desk": (1440, 900)}
MESSAGES: list[dict[str, Any]] = [
    {
        "title": "Your order is on its way",
        "body": "Parcel 7 of the bell foundry left Aarau and arrives tomorrow before noon.",
        "icon": "/inbox/parcel.svg",
        "actions": [{"label": "Track it", "url": "https://example.org/7"}, {"label": "Change", "url": "/7/day"}],
    },
    {"title": "A new device signed in", "body": "Firefox on Linux, near Bern.", "icon": "/inbox/shield.svg"},
    {"title": "Grace mentioned you", "body": "“The great bell is cast.”", "url": "/threads/12"},
]
# The luminance of what is drawn behind an element, through everything that is transparent.
CONTRAST = """element => {
  const rgb = text => (text.match(/[0-9.]+/g) ?? []).map(Number);
  const parts = text => rgb(text.slice(11)).map((one, at) => at < 3 ? one * 255 : one);
  const scale = text => text.startsWith("color(") ? parts(text) : rgb(text);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  let place = element, back = [255, 255, 255];
  while (place) {
    const found = scale(getComputedStyle(place).backgroundColor);
    if (found.length === 3 || found[3] === 1) { back = found; break; }
    place = place.parentElement ?? place.getRootNode().host;
  }
  const [a, b] = [light(scale(getComputedStyle(element).color)), light(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""

# As another window of the same person does.
WRITE = """([user, what, body]) => fetch(`/notifications/${user}/${what}`, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)})"""


class Desk:
    """A person's page, and Carillon behind it."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self.address = address

    async def send(self, user: str, *messages: dict[str, Any]) -> None:
        for message in messages:
            data = {"name": "Ada", "link": "https://example.org"}
            await asyncio.to_thread(self._post, {"recipient": user, "inApp": message, "data": data})

    def _post(self, body: dict[str, Any]) -> None:
        said = json.dumps({"templateKey": "welcome", "channel": "inApp", **body}).encode()
        asked = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.address}/api/v1/notifications/send", said, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(asked, timeout=30).close()  # noqa: S310 - loopback

    @asynccontextmanager
    async def page(self, user: str, query: str = "", *, alone: bool = False, **options: Any) -> AsyncIterator[Page]:
        """The page of the running program, which must complain about nothing; alone, it is in a browser of its own."""
        own: BrowserContext | None = None
        if alone or options:
            own = await self._browser.new_context(reduced_motion="reduce", **options)
        page = await own.new_page() if own else await new_tab(self._browser, self.address)
        complaints = list[str]()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        try:
            await page.goto(f"{self.address}/inbox?user={user}&lang=en{query}")
            for place in ("#inbox", "#bell"):
                await expect(page.locator(f"{place} carillon-inbox[live]")).to_be_attached()
            yield page
            assert [each for each in complaints if "ERR_INTERNET_DISCONNECTED" not in each] == []
        finally:
            await (own or page).close()


@pytest.fixture
def desk(browser: Browser, program: Program) -> Desk:
    return Desk(browser, str(program.wait_ready()["addresses"][0]))


def person() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def listed(page: Page) -> Locator:
    return page.locator("#inbox carillon-inbox")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
async def test_it_fits_and_can_be_read(desk: Desk, size: str, scheme: Any, pictures: Path | None) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "has_touch": size == "phone"}
    async with desk.page(user, **options) as page:
        await expect(listed(page).locator("li")).to_have_count(3)
        bell = page.locator("#bell carillon-inbox")
        await expect(bell.locator(".count")).to_have_text("3")
        await bell.locator("button.bell").click()
        panel = bell.locator(".panel")
        await expect(panel.locator("li")).to_have_count(3)
        box = await panel.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
        assert size != "phone" or (box["width"], box["height"]) == (width, height), "on a phone it is the whole screen"
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for part in ("h2", "h2 small", "h3", ".title", ".text", "time", ".action", ".tabs button", ".count"):
            for shown in await bell.locator(part).all():
                assert await shown.evaluate(CONTRAST) >= 4.5, (part, await shown.evaluate(CONTRAST))
        if size == "phone":
            for tool in await panel.locator(".hand button").all():
                touch = await tool.bounding_box()
                assert touch is not None
                assert min(touch["width"], touch["height"]) >= 36
        if pictures is not None:
            await page.screenshot(path=pictures / f"inbox-{size}-{scheme}.png")


async def test_everything_is_reached_by_keyboard(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user, viewport={"width": 1280, "height": 800}) as page:
        bell = page.locator("#bell carillon-inbox")
        button, items = bell.locator("button.bell"), bell.locator("li")
        await expect(button).to_have_attribute("aria-label", "Notifications, 3 unread")
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(button).to_have_attribute("aria-expanded", "true")
        await expect(bell.get_by_role("dialog", name="Notifications")).to_be_visible()
        await expect(items.first).to_be_focused()
        await page.keyboard.press("ArrowDown")
        await expect(items.nth(1)).to_be_focused()
        await page.keyboard.press("u")
        await expect(items.nth(1)).not_to_have_class("unread")
        await expect(items.nth(1)).to_be_focused()
        await page.keyboard.press("e")
        await expect(items).to_have_count(2)
        await expect(items.nth(1)).to_be_focused()
        await bell.get_by_role("button", name="Undo").click()
        await expect(items).to_have_count(3)
        await items.first.focus()
        await page.keyboard.press("End")
        await expect(items.nth(2)).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(bell.locator(".panel")).to_be_hidden()
        await expect(button).to_be_focused()
        for each in await page.locator("carillon-inbox button, carillon-inbox a").all():
            assert (await each.evaluate("e => e.getAttribute('aria-label') || e.textContent")).strip()


async def test_a_new_one_is_said_to_a_screen_reader_and_counted_at_once(desk: Desk) -> None:
    user = person()
    async with desk.page(user) as page:
        await expect(listed(page)).to_contain_text("You are all caught up")
        await expect(page.locator("#bell .count")).to_be_hidden()
        await desk.send(user, MESSAGES[0])
        await expect(listed(page).locator("[aria-live=polite]")).to_have_text("New: Your order is on its way")
        await expect(page.locator("#bell .count")).to_have_text("1")
        actions = listed(page).locator(".action")
        assert [await each.get_attribute("href") for each in await actions.all()] == ["https://example.org/7", "/7/day"]
        await listed(page).locator("[part~=mark-all]").click()
        await expect(page.locator("#bell .count")).to_be_hidden()


@pytest.mark.req("P-561")
async def test_windows_show_the_same_and_the_archive_gives_back(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user) as one, desk.page(user, alone=True) as other:
        await expect(listed(one).locator("li")).to_have_count(3)
        item = listed(one).locator("li", has_text="Grace")
        await item.hover()
        await item.locator("[part~=archive]").click()
        for page in (one, other):
            await expect(listed(page).locator("li")).to_have_count(2)
            await expect(page.locator("#bell .count")).to_have_text("2")
        await listed(other).get_by_role("tab", name="Archive").click()
        back = listed(other).locator("li", has_text="Grace")
        await back.hover()
        await back.locator("[part~=unarchive]").click()
        await expect(listed(other)).to_contain_text("Nothing is archived")
        await expect(listed(one).locator("li")).to_have_count(3)


async def test_more_is_loaded_when_asked_for(desk: Desk) -> None:
    user = person()
    await desk.send(user, *({"title": f"Number {number}", "body": "…"} for number in range(45)))
    async with desk.page(user) as page:
        items, more = listed(page).locator("li"), listed(page).locator("button.more")
        await expect(items).to_have_count(20)
        await more.click()
        await expect(items).to_have_count(40)
        await more.click()
        await expect(items).to_have_count(45)
        await expect(more).to_be_hidden()
        titles = await listed(page).locator("li .title").all_text_contents()
        assert titles == [f"Number {number}" for number in reversed(range(45))]
        await expect(listed(page).locator("h3")).to_have_text(["Today"])


@pytest.mark.req("P-1152")
async def test_what_was_loaded_of_the_archive_stays(desk: Desk) -> None:
    user = person()
    await desk.send(user, *({"title": f"Number {number}", "body": "…"} for number in range(45)))
    async with desk.page(user) as page:
        inbox = listed(page)
        await expect(inbox.locator("li")).to_have_count(20)
        for what in ("read", "archive"):
            await page.evaluate(WRITE, [user, what, {}])
        await expect(inbox).to_contain_text("You are all caught up")
        await inbox.get_by_role("tab", name="Archive").click()
        await inbox.locator("button.more").click()
        await expect(inbox.locator("li")).to_have_count(40)
        oldest = await inbox.locator("li").last.get_attribute("data-id")
        newest = await inbox.locator("li").first.get_attribute("data-id")
        async with page.expect_response("**/unread*") as told:
            # Another window of theirs.
            await page.evaluate(WRITE, [user, "read", {"notification_ids": [newest], "read": False}])
        await (await told.value).finished()
        await expect(inbox.locator("li.unread")).to_have_count(1)
        await expect(inbox.locator("li")).to_have_count(40)
        await expect(inbox.locator("li").last).to_have_attribute("data-id", str(oldest))
        await inbox.locator("button.more").click()
        await expect(inbox.locator("li")).to_have_count(45)


@pytest.mark.req("P-1240")
async def test_a_page_of_the_archive_that_comes_late_is_shown(desk: Desk) -> None:
    """Something changes in another window while the next page is asked for."""
    user = person()
    await desk.send(user, *({"title": f"Number {number}", "body": "…"} for number in range(25)))
    async with desk.page(user) as page:
        inbox, let = listed(page), asyncio.Event()

        async def late(route: Route) -> None:
            answer = await route.fetch()
            await let.wait()
            await route.fulfill(response=answer)

        await expect(inbox.locator("li")).to_have_count(20)
        for what in ("read", "archive"):
            await page.evaluate(WRITE, [user, what, {}])
        await expect(inbox).to_contain_text("You are all caught up")
        await inbox.get_by_role("tab", name="Archive").click()
        await expect(inbox.locator("li")).to_have_count(20)
        newest = await inbox.locator("li").first.get_attribute("data-id")
        await page.route("**/notifications/*before=*", late)
        await inbox.locator("button.more").click()
        await page.evaluate(WRITE, [user, "read", {"notification_ids": [newest], "read": False}])
        await expect(inbox.locator("li.unread")).to_have_count(1)
        let.set()
        await expect(inbox.locator("li")).to_have_count(25)
        await expect(inbox.locator("li.unread")).to_have_count(1)
        await expect(inbox.locator("button.more")).to_have_count(0)


async def test_without_a_connection_it_says_so_and_comes_back(desk: Desk) -> None:
    user = person()
    async with desk.page(user, alone=True) as page:
        await page.context.set_offline(True)
        await expect(listed(page).locator(".notice")).to_be_visible()
        await page.context.set_offline(False)
        await expect(listed(page).locator(".notice")).to_be_hidden()
        await desk.send(user, MESSAGES[1])
        await expect(listed(page).locator("li")).to_have_count(1)


@pytest.mark.req("P-863")
async def test_languages_directions_and_words_of_ones_own(desk: Desk) -> None:
    user = person()
    await desk.send(user, *MESSAGES)
    async with desk.page(user, "&lang=ar") as page:
        await page.select_option("#lang", "ar")
        frame = listed(page).locator(".frame")
        await expect(frame).to_have_attribute("dir", "rtl")
        await expect(listed(page).locator("h2")).to_contain_text("الإشعارات")
        icon, text = listed(page).locator("li .icon").first, listed(page).locator("li .said").first
        right, left = await icon.bounding_box(), await text.bounding_box()
        assert right is not None
        assert left is not None
        assert right["x"] > left["x"], "the picture is on the right"
        await page.evaluate(
            """user => {
              const own = Object.assign(document.createElement("carillon-inbox"), {words: {title: "Bells"}});
              own.setAttribute("user", user); own.setAttribute("lang", "de"); own.id = "own";
              document.body.append(own);
            }""",
            user,
        )
        own = page.locator("#own")
        await expect(own.locator("h2")).to_contain_text("Bells")
        await expect(own.locator("h2 small")).to_have_text("3 ungelesen")
        await expect(own.locator("h3")).to_have_text(["Heute"])
        # What a screen reader says of an unread one is a word, and no count with a hole in it.
        for lang, word in (("en", "Unread: "), ("fr", "Non lue: "), ("ja", "未読: ")):
            await own.evaluate("(one, lang) => one.setAttribute('lang', lang)", lang)
            await expect(own.locator("li .quiet").first).to_have_text(word)
        first = "one => one.inbox.markRead([one.inbox.notifications.find(each => !each.is_read).notification_id])"
        for lang, counts in (("fr", ["2 non lues", "1 non lue"]), ("en", ["2 unread", "1 unread"])):
            await own.evaluate("async (one, lang) => { await one.inbox.markRead(null, false); one.lang = lang; }", lang)
            await expect(own.locator("h2 small")).to_contain_text("3 ")
            for count in counts:
                await own.evaluate(first)
                await expect(own.locator("h2 small")).to_have_text(count)


async def test_a_page_changes_how_it_looks(desk: Desk) -> None:
    user = person()
    await desk.send(user, MESSAGES[0])
    async with desk.page(user) as page:
        await expect(listed(page).locator("li")).to_have_count(1)
        await page.evaluate(
            """() => {
              const sheet = new CSSStyleSheet();
              sheet.replaceSync(`carillon-inbox { --carillon-accent: rgb(1, 2, 3); }
                carillon-inbox::part(item-title) { font-size: 31px; }`);
              document.adoptedStyleSheets = [sheet];
            }"""
        )
        await expect(listed(page).locator(".title")).to_have_css("font-size", "31px")
        await expect(listed(page).locator(".action").first).to_have_css("background-color", "rgb(1, 2, 3)")


@pytest.mark.req("P-561")
async def test_choices_are_made_inside(desk: Desk) -> None:
    user = person()
    async with desk.page(user) as page:
        await listed(page).locator("[part~=settings]").click()
        security, orders = (listed(page).locator(f"[data-category={name}]") for name in ("security", "orders"))
        await expect(security).to_contain_text("Always on")
        await expect(security.locator("input")).to_have_count(0)
        await orders.get_by_label("Email").uncheck()
        await expect(listed(page).locator(".toast")).to_have_text("Saved")
        await listed(page).locator("[part~=go-back]").click()
        await listed(page).locator("[part~=settings]").click()
        await expect(orders.get_by_label("Email")).not_to_be_checked()
        await expect(orders.get_by_label("In the app")).to_be_checked()


async def test_a_page_may_follow_links_itself(desk: Desk) -> None:
    user = person()
    await desk.send(user, MESSAGES[2])
    async with desk.page(user) as page:
        await page.evaluate(
            """addEventListener("carillon-open", event => {
              event.preventDefault();
              window.followed = event.detail.url;
            })"""
        )
        await listed(page).locator("li .text").click()
        await expect(listed(page).locator("li.unread")).to_have_count(0)
        assert await page.evaluate("window.followed") == "/threads/12"
        assert page.url.startswith(f"{desk.address}/inbox")
