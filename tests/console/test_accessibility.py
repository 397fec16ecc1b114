"""Every page of the console, checked by axe-core: labels, roles, contrast; light and dark, on a desk and a phone."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.support.console import DESK, PHONE, Console
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AXE = Path(__file__).parent / "axe" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = ["overview", "notifications", "dead-letters", "suppressions", "drills", "rehearsal", "outbox"]
PAGES += ["templates", "templates/welcome/email/en-US", "templates/welcome/push/en-US", "people", "people/ada"]
PAGES += ["providers", "categories", "digests", "audit"]


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/ensure-servers installs it where npm is")
    return AXE.read_text()


async def violations(page: Page, axe: str) -> list[str]:
    """What axe-core objects to, each with its place."""
    await page.evaluate(axe)
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"], "preload": False}
    found: Any = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {one['help']} at {node['target']}" for one in found["violations"] for node in one["nodes"][:3]
    ]


async def filled(console: Console) -> str:
    """Something of everything: delivered, waiting, failed; the id of what failed."""
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    failed = await console.send("sms", user="ada")
    await console.send("email", user="ada")
    await console.send("email", user="ada", scheduledFor="2999-01-01T00:00:00Z")
    body = {"channel": "email", "address": "gone@example.org", "reason": "asked"}
    await console.ask("POST", "/api/v1/suppressions", body)

    async def buried() -> bool:
        return bool((await console.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"])

    await until(buried, timeout=40, what="a dead letter")
    return failed


@pytest.mark.req("P-545")
@pytest.mark.parametrize(("scheme", "size"), [("light", DESK), ("dark", PHONE)])
async def test_axe_finds_nothing(console: Console, axe: str, scheme: str, size: tuple[int, int]) -> None:
    failed = await filled(console)
    page = await console.open(size=size, scheme=scheme)
    found = {}
    for name in (*PAGES, f"notifications/{failed}"):
        await page.goto(f"{console.address}/console#/{name}")
        await expect(page.locator("main .loading")).to_have_count(0)
        await expect(page.locator("main h1")).to_be_visible()
        found[name] = await violations(page, axe)
        await console.fits()
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.req("P-545")
async def test_dialogs_too(console: Console, axe: str) -> None:
    failed = await filled(console)
    page = await console.open(f"notifications/{failed}")
    await page.locator("#retry").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page, axe) == []
    await page.keyboard.press("Escape")
    await expect(page.locator("#retry")).to_be_focused()


async def test_control_a_field_without_a_label_is_found(console: Console, axe: str) -> None:
    page = await console.open("suppressions")
    await page.evaluate("document.querySelector('label[for=f-address]').remove()")
    assert any(said.startswith("label:") for said in await violations(page, axe))
