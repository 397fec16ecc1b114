"""Drills: a provider is made slow, fails or refuses, and another one carries instead while one looks on."""

import urllib.error
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.support.console import PHONE, Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = """
extends = "local"
[channels]
sms = ["sandbox", "backup"]
[providers.backup]
kind = "sandbox"
[policy.retry."*/*"]
base_delay_seconds = 0.1
jitter_seconds = 0.0
failover_after_attempts = 1
[policy.breaker."*"]
failure_threshold = 3
open_seconds = 600
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Text messages have a second sandbox behind the first."""
    folder = tmp_path_factory.mktemp("drills")
    (folder / "carillon.toml").write_text(SETTINGS)
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def afterwards(console: Console) -> AsyncIterator[None]:
    """Whatever a test left under way ends."""
    yield
    for name in await console.ask("GET", "/api/v1/sandbox/drills"):
        await console.ask("DELETE", f"/api/v1/sandbox/drills/{name}")


async def choose(page: Page, **chosen: str) -> None:
    labels = {"channel": "Channel", "provider": "Provider", "kind": "Behaviour"}
    for name, word in chosen.items():
        await page.get_by_label(labels[name], exact=True).select_option(word)
    await page.get_by_role("button", name="Begin the drill").click()


async def test_failover_is_seen_as_it_happens(console: Console) -> None:
    page = await console.open("drills")
    await expect(page.get_by_text("No drill is running")).to_be_visible()
    await choose(page, channel="sms", provider="sandbox", kind="unavailable")
    under_way = page.get_by_role("table", name="Running drills")
    await expect(under_way).to_contain_text("sandbox on sms")
    await expect(under_way).to_contain_text("fails")
    await expect(page.locator(".link.drilled")).to_contain_text("fails")
    await page.get_by_label("Message", exact=True).select_option(label="welcome by sms")
    await page.get_by_role("button", name="Send").click()
    tries = page.locator(".timeline li")
    await expect(tries.nth(0)).to_contain_text("Attempt 1 by sandbox")
    await expect(tries.last).to_contain_text("by backup")
    await expect(page.locator(".link", has_text="backup")).to_contain_text("0 of 1 failed")
    await expect(page.get_by_role("table", name="Recent events")).to_contain_text("drill: unavailable")
    for _ in range(3):
        await console.send("sms")
    await expect(page.locator(".link.drilled .badge")).to_have_text("open")
    await page.evaluate("scrollTo(0, 0)")
    await console.picture("drills")
    await page.get_by_role("button", name="End the drill of sandbox on sms").click()
    await expect(page.get_by_text("No drill is running")).to_be_visible()


async def test_a_slow_provider_and_the_first_tries_only(console: Console) -> None:
    page = await console.open("drills")
    await page.get_by_label("Channel").select_option("email")
    await page.get_by_label("Delay of the answer, in seconds").fill("0.5")
    await page.get_by_label("Number of calls per message").fill("2")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("table", name="Running drills")).to_contain_text(
        "answers late (after 0.5 s, the first 2 of each message)"
    )
    assert await console.ask("GET", "/api/v1/sandbox/drills") == {"email": {"times": 2, "delaySeconds": 0.5}}
    await console.ask("DELETE", "/api/v1/sandbox/drills/email")
    await expect(page.get_by_text("No drill is running")).to_be_visible()


async def test_only_what_fits_is_asked_for(console: Console) -> None:
    page = await console.open("drills")
    await page.get_by_label("Behaviour", exact=True).select_option("throttled")
    await expect(page.get_by_label("Retry-After, in seconds")).to_be_visible()
    await page.get_by_label("Behaviour", exact=True).select_option("refused")
    await expect(page.get_by_label("Retry-After, in seconds")).to_be_hidden()


async def test_one_provider_alone_over_http(console: Console) -> None:
    path = "/api/v1/sandbox/drills"
    await console.ask("PUT", f"{path}/*@backup", {"outcome": "refused"})
    assert await console.ask("GET", path) == {"*@backup": {"outcome": "refused"}}
    assert await console.ask("GET", f"{path}/*@backup") == {"outcome": "refused"}
    await console.ask("PUT", f"{path}/*@sandbox", {"outcome": "refused"})
    # What all of them do is said once.
    assert await console.ask("GET", path) == {"*": {"outcome": "refused"}}
    await console.ask("DELETE", f"{path}/*@backup")
    assert await console.ask("DELETE", f"{path}/*@sandbox") == {}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await console.ask("PUT", f"{path}/sms@nobody", {"outcome": "refused"})


async def test_on_a_phone(console: Console) -> None:
    page = await console.open("drills", size=PHONE, scheme="dark")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await console.fits()
