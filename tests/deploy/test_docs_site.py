"""The documentation as a site: every page is in its navigation, and what leaves docs/ is not a dead link there."""

import asyncio
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import pytest
import yaml
from playwright.async_api import Browser, expect

from scripts import recording
from scripts.docs_site import CONSOLE, SHARED, beyond, rewritten
from tests.support import docs_pages
from tests.support.browser import chromium
from tests.support.sources import ROOT

DOCS = ROOT / "docs"
SITE: Any = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
Scheme = Literal["light", "dark"]
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def listed(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from listed(target)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(listed(SITE["nav"])) == PAGES, "add it to mkdocs.yml, and to docs/README.md"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = ((page.parent / link.partition("#")[0]).resolve() for link in docs_pages.links(page))
            waiting += [target for target in targets if target.suffix == ".md" and DOCS in target.parents]
    assert {str(page.relative_to(DOCS)) for page in seen} == set(PAGES)


def foreign(text: str) -> list[str]:
    """What a page, a style or a script of the site would fetch from another host."""
    return re.findall(r"""(?:src|href|url|import|fetch)\b[\s=('"]*((?:https?:)?//[^\s'")]+)""", text)


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert SITE["theme"]["name"] is None, "no theme of anybody else"
    assert not {"extra_javascript", "extra_css"} & set(SITE)
    files = [path for path in (ROOT / SITE["theme"]["custom_dir"]).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".css", ".js"}
    assert {path.name: foreign(path.read_text()) for path in files if foreign(path.read_text())} == {}
    for text in (
        '<script src="https://cdn.example/x.js">',
        "@import url(//fonts.example/x.css)",
        "fetch('http://a.example')",
    ):
        assert foreign(text)


def test_only_the_tokens_name_colours() -> None:
    for path in (ROOT / SITE["theme"]["custom_dir"]).rglob("*.css"):
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;, )])|\brgba?\(|\bhsla?\(", path.read_text()) == [], path.name
    assert set(SHARED) >= {"tokens.css"}
    assert all((CONSOLE / name).is_file() for name in SHARED)


def test_links_within_are_checked_when_it_is_built() -> None:
    assert set(SITE["validation"]["links"].values()) | set(SITE["validation"]["nav"].values()) == {"warn"}
    recipe = (ROOT / "Makefile").read_text().split("\ndocs:")[1].split("\n\n")[0]
    assert "mkdocs build --strict" in recipe
    assert "--quiet" not in recipe, "a warning that is not printed is not counted either"


@pytest.mark.parametrize("page", PAGES)
def test_what_leaves_the_site_exists(page: str) -> None:
    for link in docs_pages.links(DOCS / page):
        outside = beyond(page, link)
        assert outside is None or (ROOT / outside).exists(), link


@pytest.mark.parametrize(
    ("target", "outside"),
    [
        ("../../deploy/compose.yaml", "deploy/compose.yaml"),
        ("../../README.md#layout", "README.md"),
        ("../how-to/deploy.md", None),
        ("run-listo.md#receipts", None),
        ("#here", None),
        ("https://example.org/../../x", None),
    ],
)
def test_where_a_link_leads(target: str, outside: str | None) -> None:
    assert beyond("how-to/observe.md", target) == outside


def test_links_outside_become_text_or_lead_to_the_repository() -> None:
    text = "see [the unit](../../deploy/carillon.service), ![a picture](a.png) and [how](deploy.md)"
    assert rewritten(text, "how-to/x.md", None) == "see the unit, ![a picture](a.png) and [how](deploy.md)"
    there = rewritten(text, "how-to/x.md", "https://git.example.org/carillon/")
    assert "(https://git.example.org/carillon/blob/main/deploy/carillon.service)" in there


@pytest.mark.slow
@pytest.mark.req("P-553")
def test_the_recording_shows_what_happens_today() -> None:
    """`make recording` writes it; ids, times and numbers may differ."""
    now = recording.record()
    assert recording.spoken(recording.PICTURE.read_text()) == recording.words(now)
    drawn = ET.fromstring(recording.drawn(now))  # noqa: S314 - made here
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}text"))) == len(now.lines)
    shown = recording.words(now)
    for event in ("north unavailable", "south sent", "1 of 1 dead letter", "1 redriven", "  delivered "):
        known = re.sub(r"\d+", "~", event)
        assert any(known in line for line in shown), event


@pytest.mark.slow
@pytest.mark.req("P-553")
async def test_the_site_is_read_light_and_dark_wide_and_narrow(tmp_path: Path) -> None:
    """It fetches nothing from elsewhere, nothing sticks out, and the search finds."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make docs installs it")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    await asyncio.to_thread(subprocess.run, build, cwd=ROOT, check=True, timeout=200)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}"
        async with chromium() as browser:
            await look(browser, home, "light", 1440)
            await look(browser, home, "dark", 390)
        server.shutdown()


async def look(browser: Browser, home: str, scheme: Scheme, width: int) -> None:
    context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = await context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    for path in ("index.html", "tutorial/outage.html", "reference/settings.html", "explanation/comparison.html"):
        await page.goto(f"{home}/{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") == width, path
    back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(246, 245, 242)" if scheme == "light" else "rgb(22, 20, 18)"), "the console's own tokens"
    if width < 760:
        await page.get_by_role("button", name="Pages").click()
    await page.keyboard.press("/")
    await page.keyboard.type("redrive")
    await expect(page.locator("#found a").first).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("article h1")).to_be_visible()
    await page.get_by_role("button", name="Change between light and dark").click()
    other = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert other != back
    assert all(url.startswith(f"{home}/") for url in asked)
    assert complaints == []
    await context.close()
