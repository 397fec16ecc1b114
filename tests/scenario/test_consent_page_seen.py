"""A person's page in a real browser: widths, darkness, right to left, without script, and the rules of axe-core."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from carillon.links import Link, Links
from tests.support.browser import chromium
from tests.support.process import Program

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KEY = "a key of this test, thirty-two characters"
AXE = "axe-core@4.10.3"
SETTINGS = f"""extends = "local"
[locale]
supported = ["en-US", "ar-EG"]
[consent]
keys = ["{KEY}"]
[categories.news]
titles = {{ en = "News" }}
texts = {{ en = "What is new, once a month." }}
[tenant.acme.page]
name = "Acme Shoes"
accent = "#aa3300"
accent_dark = "#ffb38a"
"""
UNLABELLED = """[...document.querySelectorAll('input:not([type=hidden]), select, button')].filter(each =>
    !(each.labels && each.labels.length) && !each.textContent.trim()).length"""


def path_of(person: str, *, tenant: str = "", leave: str = "") -> str:
    links = Links([KEY], "https://example.org", link_seconds=600, unsubscribe_seconds=600)
    return f"/u/{links.write(Link(tenant, person, 4_000_000_000, leave, 'email' if leave else ''))}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "carillon.toml").write_text(SETTINGS)
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", str(folder / "carillon.toml"), env=environment, cwd=folder) as running:
        yield str(running.wait_ready(60)["addresses"][0])


@pytest.fixture(scope="session")
def axe() -> str | None:
    """The rules of axe-core; None where npm cannot bring them."""
    folder = Path.home() / ".cache" / "carillon-tests" / AXE
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists() and shutil.which("npm"):
        command = ["npm", "install", "--silent", "--no-audit", "--prefix", str(folder), AXE]
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None
    return script.read_text() if script.exists() else None


async def opened(browser: Browser, url: str, **options: Any) -> Page:
    context = await browser.new_context(viewport={"width": options.pop("width", 390), "height": 900}, **options)
    page = await context.new_page()
    await page.goto(url)
    return page


@pytest.mark.req("P-213")
@pytest.mark.parametrize("looks", ["light en-US", "dark ar-EG acme"])
async def test_everybody_can_use_it(browser: Browser, address: str, axe: str | None, looks: str) -> None:
    scheme, locale, tenant = (*looks.split(), "")[:3]
    for path in (path_of("ada", tenant=tenant, leave="news"), "/u/wrong"):
        page = await opened(browser, address + path, locale=locale, color_scheme=scheme, bypass_csp=True)
        direction = "rtl" if locale == "ar-EG" else "ltr"
        said = await page.evaluate("[document.documentElement.dir, document.documentElement.lang.slice(0, 2)]")
        assert said == [direction, locale[:2]]
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        assert await page.evaluate(UNLABELLED) == 0
        if tenant and path != "/u/wrong":
            assert await page.get_by_text("Acme Shoes").count() == 1
        if axe is not None:
            await page.add_script_tag(content=axe)
            found = await page.evaluate("axe.run()")
            assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []
        await page.context.close()


@pytest.mark.req("P-213")
async def test_a_person_chooses_without_script(browser: Browser, address: str) -> None:
    page = await opened(browser, address + path_of("bea"), java_script_enabled=False, width=1440)
    news = page.locator("fieldset", has_text="once a month").get_by_label("Email")
    await news.uncheck()
    await page.get_by_label("From").fill("22:00")
    await page.get_by_label("To", exact=True).fill("07:00")
    await page.get_by_label("Monday").check()
    await page.get_by_label("Time zone").select_option("Europe/Berlin")
    await page.get_by_role("button", name="Save").click()
    assert await page.get_by_role("status").inner_text() == "Your choices are saved."
    assert not await news.is_checked()
    assert await page.get_by_label("Monday").is_checked()
    assert not await page.get_by_label("Tuesday").is_checked()
    assert await page.get_by_label("Time zone").input_value() == "Europe/Berlin"
    await page.get_by_label("Language").select_option("ar-EG")
    await page.locator("button[value=save]").click()
    assert await page.locator("html").get_attribute("dir") == "rtl"
    await page.context.close()
