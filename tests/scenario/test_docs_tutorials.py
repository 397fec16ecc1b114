"""The tutorials, typed as printed; each has the same shape, and the page with an inbox is looked at in a browser."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support import docs_pages
from tests.support.browser import chromium
from tests.support.docs_shell import Reader, follow
from tests.support.servers import Postgres
from tests.support.sources import ROOT

FOLDER = ROOT / "docs" / "tutorial"
FIRST = "docs/tutorial/first-notification.md"
ALONE = (
    "docs/tutorial/webhook.md",
    "docs/tutorial/email.md",
    "docs/tutorial/push.md",
    "docs/tutorial/fastapi.md",
    "docs/tutorial/django.md",
    "docs/tutorial/outage.md",
)
INBOX = "docs/tutorial/inbox.md"
POSTGRESQL = "docs/tutorial/postgresql.md"
ALL = (*ALONE, INBOX, POSTGRESQL)
SECOND = """$ curl -s http://127.0.0.1:8080/api/v1/notifications/send -H 'Content-Type: application/json' -d '{
  "templateKey": "welcome", "channel": "inApp", "userId": "ada", "data": {"name": "Ada", "link": "https://example.org"},
  "inApp": {"title": "And a second one", "body": "Live."}}'
"""


def out_of_shape(text: str) -> list[str]:
    """What a tutorial lacks: what one gets, what one needs, numbered steps, what one sees, and where to go next."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    numbers = [int(found[1]) for heading in headings if (found := re.match(r"(\d+)\. ", heading))]
    wanted = {
        "**You get**": "\n**You get** " in text,
        "**You need**": "\n**You need** " in text,
        "numbered steps": len(numbers) >= 3 and numbers == list(range(1, len(numbers) + 1)),
        "## What you see": headings.count("What you see") == 1,
        "## Next at the end": headings[-1:] == ["Next"],
        "links": len(re.findall(r"\]\(", text.rpartition("## Next")[2])) >= 3,
    }
    return [name for name, there in wanted.items() if not there]


@pytest.mark.req("P-552")
@pytest.mark.parametrize("page", ALL)
def test_a_tutorial_has_the_shape_of_the_others(page: str) -> None:
    assert out_of_shape((ROOT / page).read_text()) == []


def test_another_shape_is_noticed() -> None:
    text = (ROOT / ALONE[0]).read_text()
    assert out_of_shape(text.replace("## 2. ", "## Then ")) == ["numbered steps"]
    assert out_of_shape(text.replace("## What you see", "## What happened")) == ["## What you see"]


def test_every_tutorial_is_here() -> None:
    assert {docs_pages.name(page) for page in FOLDER.glob("*.md")} == {FIRST, *ALL}


@pytest.mark.slow
@pytest.mark.req("P-552")
@pytest.mark.parametrize("page", ALONE)
def test_a_tutorial_does_what_it_says(page: str, tmp_path: Path) -> None:
    follow(ROOT / page, tmp_path)


@pytest.mark.slow
@pytest.mark.req("P-552")
def test_the_move_to_postgresql_does_what_it_says(tmp_path: Path) -> None:
    page = ROOT / POSTGRESQL
    with Postgres(durable=True) as server:
        for block in docs_pages.blocks(page):
            for statement in block.text.strip().split(";\n") if block.kind == "sql" else ():
                server.execute(statement)
        follow(page, tmp_path, {"5432": str(server.port)})


@pytest.mark.slow
@pytest.mark.req("P-552")
async def test_the_inbox_is_in_the_page_of_the_tutorial(tmp_path: Path) -> None:
    with Reader(tmp_path, {}, {}) as reader:
        for block in docs_pages.blocks(ROOT / INBOX):
            await asyncio.to_thread(reader.follow, block)
        async with chromium() as browser:
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{reader.ports['9000']}/")
            inbox = page.locator("carillon-inbox")
            await expect(inbox.locator(".count")).to_have_text("1")
            await inbox.locator("button.bell").click()
            await expect(inbox.get_by_text("Your order is on its way", exact=True)).to_be_visible()
            # One more comes while the window is open: the site passes the live stream on.
            await asyncio.to_thread(reader.follow, docs_pages.Block("console", SECOND, 0))
            await expect(inbox.get_by_text("And a second one", exact=True)).to_be_visible()
            await inbox.get_by_role("button", name="Mark all as read").click()
            await expect(inbox.locator(".count")).to_be_hidden()
