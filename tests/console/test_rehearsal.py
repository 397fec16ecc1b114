"""Rehearsal in the console: ask, follow, stop, read the figures and the chart, and hand the question to others."""

from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, Page, expect

from tests.console.test_accessibility import NEEDS_AXE
from tests.support.accessibility import violations
from tests.support.console import PHONE, Console
from tests.support.process import Program

# The child process that plays takes what others leave over.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("P-631"), pytest.mark.alone]

PATIENT = 150_000
"""The child process plays with what others leave over: on a busy machine that is little."""
SETTINGS = """
extends = "local"
[channels]
sms = ["twilio", "backup"]
[providers.twilio]
kind = "sandbox"
[providers.backup]
kind = "sandbox"
[policy.retry."*/*"]
max_attempts = 3
base_delay_seconds = 5
jitter_seconds = 0.0
failover_after_attempts = 2
on_open = "bury"
[policy.breaker."*"]
failure_threshold = 3
open_seconds = 60
"""
BOTH = "twilio 10m at 10m; backup 5m at 15m"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("rehearsal")
    (folder / "carillon.toml").write_text(SETTINGS)
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


def asked(**values: str) -> str:
    query = "&".join(f"{name}={value.replace(' ', '%20').replace('/', '%2F')}" for name, value in values.items())
    return f"rehearsal?{query}"


def result(page: Page) -> Locator:
    return page.get_by_role("region", name="Result")


FEW = {"load": "30/min", "for": "40m", "mix": "sms"}


async def outage(page: Page, number: int, **chosen: str) -> None:
    await page.get_by_role("button", name="Add an outage").click()
    row = page.get_by_role("group", name=f"Outage {number}")
    await row.get_by_label("Provider").select_option(chosen["provider"])
    await row.get_by_label("How").select_option(chosen["kind"])
    await row.get_by_label("For").fill(chosen["lasts"])
    await row.get_by_label("After").fill(chosen["after"])


async def test_an_outage_is_chosen_played_and_read(console: Console) -> None:
    page = await console.open("rehearsal")
    await page.get_by_label("How many arrive").fill("30")
    await page.get_by_label("In", exact=True).select_option("min")
    await page.get_by_label("What", exact=True).select_option("sms")
    await page.get_by_label("For how long").fill("40m")
    await outage(page, 1, provider="twilio", kind="down", lasts="10m", after="10m")
    await outage(page, 2, provider="backup", kind="slow", lasts="5m", after="15m")
    await page.get_by_text("Mix, prices").click()
    await page.get_by_label("Price of a message").fill("twilio=0.0079, backup=0.01")
    await page.get_by_role("button", name="Rehearse").click()
    found = result(page)
    await expect(found.get_by_role("heading").first).to_contain_text("Everybody would have been told", timeout=PATIENT)
    figures = found.locator(".figures")
    for name in ("Accepted", "Delivered", "Late", "Failed over", "Given up", "Expired or skipped", "Repeated", "Cost"):
        await expect(figures.get_by_text(name, exact=True)).to_be_visible()
    await expect(found.get_by_role("table", name="Breakers that were not closed")).to_contain_text("twilio")
    await expect(found.get_by_role("table", name="Messages that each provider accepted")).to_contain_text("backup")
    chart = found.get_by_role("img", name="Delivered in time, late and given up")
    await expect(chart.locator(".area.good").first).to_be_visible()
    await expect(chart.locator(".band")).to_have_count(2)
    # Those who cannot see the chart read its table.
    await found.get_by_text("as a table").first.click()
    rows = found.get_by_role("table", name="Delivered in time, late and given up").locator("tbody tr")
    await expect(rows.nth(100)).to_be_attached()
    await expect(rows.first.locator("td").first).to_have_text("0 s")
    await expect(page.locator("code").first).to_contain_text('--outage "twilio 10m at 10m"')


async def test_the_address_keeps_the_question(console: Console) -> None:
    page = await console.open(asked(**FEW, outages=BOTH, prices="twilio=0.5", seed="7"))
    await expect(page.get_by_label("How many arrive")).to_have_value("30")
    await expect(page.get_by_label("In", exact=True)).to_have_value("min")
    await expect(page.get_by_role("group", name="Outage 2").get_by_label("Provider")).to_have_value("backup")
    await expect(page.get_by_label("Seed of the dice")).to_have_value("7")
    await page.get_by_role("button", name="Remove outage 1").click()
    await page.get_by_label("For how long").fill("30m")
    await page.reload()
    await expect(page.get_by_label("For how long")).to_have_value("30m")
    await expect(page.get_by_role("group", name="Outage 1").get_by_label("Provider")).to_have_value("backup")
    await expect(page.get_by_role("group", name="Outage 2")).to_have_count(0)
    # Opening a link starts nothing.
    await expect(page.get_by_role("button", name="Rehearse")).to_be_visible()
    await expect(page.get_by_text("Choose a load")).to_be_visible()


async def test_a_rehearsal_is_stopped_and_another_one_begins(console: Console) -> None:
    page = await console.open(asked(load="1000/s", **{"for": "30d"}, mix="sms", most="20000"))
    await page.get_by_role("button", name="Rehearse").click()
    await expect(page.get_by_text("played", exact=False).last).to_be_visible()
    await expect(page.get_by_role("progressbar")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("Stopped.")).to_be_visible()
    await expect(page.get_by_role("button", name="Rehearse")).to_be_focused()
    await page.get_by_label("For how long").fill("20m")
    await page.get_by_label("How many arrive").fill("1")
    await page.get_by_role("button", name="Rehearse").click()
    told = page.get_by_role("heading", name="Everybody would have been told in time.")
    await expect(told).to_be_visible(timeout=PATIENT)


async def test_what_is_wrong_is_said_beside_the_form(console: Console) -> None:
    page = await console.open(asked(**FEW, outages="nobody 5m"))
    await page.get_by_role("button", name="Rehearse").click()
    await expect(page.get_by_role("alert")).to_contain_text("the providers are")
    console.complaints.clear()  # The browser itself reports the 400.
    await page.get_by_role("button", name="Remove outage 1").click()
    await page.get_by_role("button", name="Rehearse").click()
    await expect(page.get_by_role("region", name="Result")).to_be_visible(timeout=PATIENT)
    await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.req("P-1246")
async def test_the_verdict_stands_below_the_bar_of_a_phone(console: Console) -> None:
    page = await console.open(asked(**FEW, outages=BOTH), size=PHONE)
    await page.get_by_role("button", name="Rehearse").click()
    heading = page.get_by_role("heading", name="dead letters")
    await expect(heading).to_be_visible(timeout=PATIENT)
    bar = await page.locator(".side").evaluate("one => one.getBoundingClientRect().bottom")
    assert await heading.evaluate("one => one.getBoundingClientRect().top") >= bar


@NEEDS_AXE
@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1440, 900)), ("dark", (1440, 900)), ("light", PHONE), ("dark", PHONE)]
)
async def test_the_result_at_every_width(console: Console, scheme: str, size: tuple[int, int]) -> None:
    page = await console.open(asked(**FEW, outages=BOTH, prices="twilio=0.0079, backup=0.01"), size=size, scheme=scheme)
    await page.get_by_role("button", name="Rehearse").click()
    await expect(page.get_by_role("heading", name="dead letters")).to_be_visible(timeout=PATIENT)
    await expect(page.get_by_role("table", name="Why messages were given up")).to_be_visible()
    await console.fits()
    assert await violations(page) == []
    await result(page).evaluate("one => one.scrollIntoView()")
    await console.picture(f"rehearsal-{scheme}-{size[0]}" if size != (1440, 900) or scheme == "dark" else "rehearsal")
