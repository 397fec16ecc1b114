"""Every page that the console has, with content: axe-core in light and dark, on a desk and a phone, and by keyboard."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.console.test_people import SETTINGS as CATEGORIES
from tests.console.test_queues import ONCE, UPDATE, failed, push
from tests.scenario.test_endpoints import SETTINGS as WEBHOOKS
from tests.support.accessibility import AXE, every_page, menu, registry, settled, violations, walk
from tests.support.billing_stand import Billing, stand_fixture
from tests.support.console import DESK, PHONE, Console
from tests.support.process import Program
from tests.support.sse_stand import SseStand
from tests.support.vendor import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
NEEDS_AXE = pytest.mark.skipif(not AXE.exists(), reason="scripts/ensure-servers installs axe-core where npm is")
OVERRIDE: Any = {"X-Admin-Override": "true"}
SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
SCHEMES: Any = ("light", "dark")
QUERIES = {"people": "?who=ada"}
FURTHER = ["templates/welcome/email/en-US", "templates/welcome/push/en-US", "templates/new"]

billing: Any = stand_fixture(scope="module", params=("sqlite",), **ONCE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("everything")
    (folder / "carillon.toml").write_text(WEBHOOKS + CATEGORIES.replace('extends = "local"', ""))
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db"}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def filled(console: Console) -> Console:
    """Something of everything: delivered, waiting, failed, gathered, suppressed, disabled by hand."""
    await console.open()
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    await console.send("sms", user="ada")
    await console.send("email", user="ada")
    await console.send("email", user="ada", scheduledFor="2999-01-01T00:00:00Z")
    await console.send("email", user="ada", digest={"key": "comments", "window": "1h"})
    body = {"channel": "email", "address": "gone@example.org", "reason": "asked"}
    await console.ask("POST", "/api/v1/suppressions", body)
    pause = {"scope": "endpoint", "name": "hooks.example.org:443", "provider": "webhook", "reason": "Its owner asked"}
    await console.ask("POST", "/api/v1/admin/pauses", pause, **OVERRIDE)

    async def buried() -> bool:
        return bool((await console.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"])

    await until(buried, timeout=40, what="a dead letter")
    return console


@pytest_asyncio.fixture(loop_scope="module")
async def queues(browser: Browser, billing: Billing) -> AsyncIterator[Console]:
    """A payment service with messages that ended well, messages that failed, and one that was requeued."""
    running = billing.programs[-1] if billing.programs else billing.start_payment()
    async with Console(browser, str(running.wait_ready(60)["addresses"][0])) as opened:
        await push(billing, 1, Reply(), "success")
        await failed(billing, 1)
        await opened.ask("POST", f"/ops/queues/{UPDATE}/failed/requeue", {"reason": "the other side is back"})
        await failed(billing, 2)
        await opened.open()
        yield opened
        assert opened.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SseStand]:
    folder = tmp_path_factory.mktemp("streams")
    async with SseStand(folder, f"sqlite:///{folder / 'sse.db'}") as stand:
        await stand.start()
        await stand.read("ada")
        await stand.tell("ada", payload={"title": "a bell " * 30})
        yield stand


@pytest_asyncio.fixture(loop_scope="module")
async def streams(browser: Browser, sse: SseStand) -> AsyncIterator[Console]:
    """Streams with a reader and an inbox."""
    async with Console(browser, sse.address) as opened:
        await opened.open()
        yield opened
        assert opened.complaints == []


async def both_schemes(page: Page) -> list[str]:
    found = []
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {said}" for said in await violations(page)]
    return found


async def objections(console: Console, size: tuple[int, int], only: str = "") -> dict[str, list[str]]:
    """What is wrong with each page of the menu and what it leads to."""
    await console.open(size=size)
    found = {}
    async for name in every_page(console, QUERIES, only):
        found[name] = await both_schemes(console.page)
        await console.fits()
    return {name: said for name, said in found.items() if said}


@NEEDS_AXE
@SIZES
@pytest.mark.slow
@pytest.mark.req("P-545", "P-620")
async def test_axe_finds_nothing(filled: Console, size: tuple[int, int]) -> None:
    assert await objections(filled, size) == {}
    found = {}
    for name in FURTHER:
        await filled.page.goto(f"{filled.address}/console#/{name}")
        await settled(filled.page, filled=False)
        found[name] = await both_schemes(filled.page)
        await filled.fits()
    assert {name: said for name, said in found.items() if said} == {}


@NEEDS_AXE
@SIZES
@pytest.mark.slow
@pytest.mark.req("P-620")
async def test_axe_finds_nothing_in_queues(queues: Console, size: tuple[int, int]) -> None:
    assert await objections(queues, size) == {}


@NEEDS_AXE
@SIZES
@pytest.mark.req("P-620")
async def test_axe_finds_nothing_in_streams(streams: Console, size: tuple[int, int]) -> None:
    # The other pages of this program are those above, and nothing is in them here.
    assert await objections(streams, size, "streams") == {}


async def uncovered(*consoles: Console) -> set[str]:
    """Pages of the console's registry that none of these shows."""
    known = set(await registry(consoles[0].page))
    return known - {name for each in consoles for name in await menu(each.page)}


@pytest.mark.req("P-620")
async def test_no_page_of_the_console_is_left_out(
    browser: Browser, filled: Console, queues: Console, streams: Console
) -> None:
    assert await uncovered(filled, queues, streams) == set()

    # The control: a page that is added to the registry, and that no program here shows.
    async def more(route: Route) -> None:
        body = (await (await route.fetch()).text()).replace("PAGES = [", 'PAGES = [{ page: "ghosts", key: "" },')
        await route.fulfill(body=body, content_type="text/javascript")

    context = await browser.new_context()
    page = filled.page = await context.new_page()
    await page.route("**/lib/pages.js", more)
    await page.goto(f"{filled.address}/console")
    await settled(page, filled=False)
    assert await uncovered(filled, queues, streams) == {"ghosts"}
    await context.close()


@NEEDS_AXE
@pytest.mark.req("P-545")
async def test_dialogs_too(filled: Console) -> None:
    page = filled.page
    (failure, *_) = (await filled.ask("GET", "/api/v1/notifications?status=failed"))["items"]
    for where, button in ((f"notifications/{failure['id']}", "#retry"), ("endpoints", "#disable-one")):
        await page.goto(f"{filled.address}/console#/{where}")
        await page.locator(button).focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await both_schemes(page) == []
        await page.keyboard.press("Escape")
        await expect(page.locator(button)).to_be_focused()


@NEEDS_AXE
@pytest.mark.req("P-620")
async def test_signing_in_and_a_page_that_is_not_loaded(browser: Browser, program: Program) -> None:
    address = f"{program.wait_ready()['addresses'][0]}/console#/audit"
    context = await browser.new_context(reduced_motion="reduce")
    page = await context.new_page()
    await page.route("**/api/v1/admin/audit*", lambda route: route.abort())
    await page.goto(address)
    await expect(page.locator("main h1")).to_have_text("Not loaded")
    assert await both_schemes(page) == []
    await page.route("**/api/v1/console/surface", lambda route: route.fulfill(status=401, json={}))
    await page.reload()
    await expect(page.locator("main h1")).to_have_text("Sign in")
    await expect(page.get_by_label("Token or API key")).to_be_focused()
    assert await both_schemes(page) == []
    await context.close()


async def out_of_reach(console: Console) -> dict[str, list[str]]:
    """Go to each page by its key, and through it with Tab."""
    page, keys = console.page, await registry(console.page)
    wrong = {}
    for name in await menu(page):
        await page.keyboard.press("g")
        await page.keyboard.press(keys[name])
        await expect(page.locator(f"#nav a[data-page='{name}']")).to_have_attribute("aria-current", "page")
        await settled(page, filled=False)
        await expect(page.locator("main:focus, main :focus")).to_have_count(1)
        missed, unmarked = await walk(page)
        wrong[name] = [f"not reached: {one}" for one in missed] + [f"not marked: {one}" for one in unmarked]
    return {name: said for name, said in wrong.items() if said}


@pytest.mark.slow
@pytest.mark.req("P-621")
async def test_every_control_is_reached_by_keyboard(filled: Console) -> None:
    assert await out_of_reach(filled) == {}


@pytest.mark.slow
@pytest.mark.req("P-621")
async def test_every_control_of_queues_and_streams_is_reached_by_keyboard(queues: Console, streams: Console) -> None:
    assert await out_of_reach(queues) == {}
    assert await out_of_reach(streams) == {}


@NEEDS_AXE
async def test_control_a_field_without_a_label_is_found(console: Console) -> None:
    page = await console.open("suppressions")
    await page.evaluate("document.querySelector('label[for=f-address]').remove()")
    assert any(said.startswith("label:") for said in await violations(page))
    await page.evaluate("document.querySelector('main form button').tabIndex = -1")
    await page.evaluate("document.querySelector('main form input').style.outline = 'none'")
    await page.evaluate("document.querySelector('main h1').replaceChildren(document.createElement('button'))")
    await page.evaluate("document.querySelector('main h1 button').inert = true")
    assert await walk(page) == (["BUTTON"], ["INPUT f-address   address"])
