"""Endpoints on their page and on the first: how each does, enabling, disabling by hand, and replaying."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.scenario.test_endpoints import BREAKER, SETTINGS
from tests.support.console import DESK, PHONE, Console
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.vendor import Vendor

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("console")
    config = folder / "carillon.toml"
    config.write_text(SETTINGS + BREAKER.format(600))
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db"}
    with Program("serve", "--config", str(config), env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.mark.req("P-1143")
async def test_an_endpoint_that_is_down_is_shown_and_enabled(console: Console, program: Program) -> None:
    page = await console.open()
    await expect(page.get_by_role("table", name="Endpoints and rates")).to_have_count(0)
    endpoint = f"127.0.0.1:{free_port()}"
    body = {
        "templateKey": "welcome",
        "channel": "webhook",
        "recipient": f"http://{endpoint}/hook",
        "data": {"name": "Ada", "link": "x"},
    }
    for _ in range(3):
        await console.ask("POST", "/api/v1/notifications/send", body)
    await program.until("breaker_changed", lambda line: line.get("endpoint") == endpoint and line["after"] == "open")
    table = page.get_by_role("table", name="Endpoints and rates")
    await expect(table).to_contain_text(endpoint)
    await expect(table).to_contain_text("open")
    await table.get_by_role("button", name=f"Call {endpoint} again").click()
    await page.get_by_label("Reason").fill("its owner has restarted it")
    await page.locator("#confirm").click()
    # Nobody listens there, so that it may be down again: that it was enabled is in the audit.
    await expect(page.get_by_text(f"{endpoint} is called again")).to_be_visible()
    (done, *_) = (await console.ask("GET", "/api/v1/admin/audit"))["items"]
    assert (done["action"], done["subject"]) == ("enable_endpoint", f"webhook@{endpoint}")
    assert done["reason"] == "its owner has restarted it"


@pytest.mark.req("P-1248")
async def test_a_replay_since_a_date_that_is_no_moment_is_refused_by_the_server(console: Console) -> None:
    page = await console.open("endpoints")
    await page.get_by_role("button", name="Replay to an endpoint").click()
    await page.get_by_label("Host and port").fill("127.0.0.1:8001")
    await page.get_by_label("Since").fill("12026-01-03T10:00:00")
    await page.locator("#confirm").click()
    await expect(page.locator(".toast")).to_contain_text("Expected a date and time such as 2026-01-31T12:00:00Z")
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1241")
async def test_how_often_a_failure_came_can_be_read_on_a_phone(console: Console, program: Program) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    for _ in range(3):
        await console.send("webhook", recipient=f"http://{endpoint}/hook")
    await program.until("breaker_changed", lambda line: line.get("endpoint") == endpoint and line["after"] == "open")
    page = await console.open(size=PHONE)
    why = page.get_by_role("table", name="Recent events").locator("td[data-name=why]", has_text=endpoint)
    often = why.get_by_text(re.compile(r"^\d+ times$"))
    await expect(often).to_be_visible()
    # In a column of its own beside the error it was as wide as two letters.
    lines = """one => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return range.getClientRects().length;
    }"""
    assert await often.evaluate(lines) <= 2


@pytest.mark.req("P-501")
async def test_an_endpoint_is_disabled_and_enabled_by_hand(console: Console) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    page = await console.open("endpoints", size=PHONE, scheme="dark")
    await page.get_by_role("button", name="Disable an endpoint").click()
    await page.get_by_label("Host and port").fill(endpoint)
    await page.get_by_label("Reason").fill("Its owner asked")
    await page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    row = page.get_by_role("table", name="Endpoints").locator("tbody tr", has_text=endpoint)
    await expect(row).to_contain_text("anonymous: Its owner asked")
    await console.fits()
    sent = await console.send("webhook", recipient=f"http://{endpoint}/hook")
    story = await console.ask("GET", f"/api/v1/notifications/{sent}")
    assert story["routes"][0]["waitsFor"] == f"endpoint webhook {endpoint} is paused by anonymous: Its owner asked"
    await page.get_by_role("button", name=f"Enable {endpoint}").click()
    await page.get_by_label("Reason").fill("Its owner asked again")
    await page.get_by_role("dialog").get_by_role("button", name="Enable").click()
    # Nobody listens there: the call that is made now fails, and its breaker may show it.
    await expect(page.get_by_role("button", name=f"Enable {endpoint}")).to_have_count(0)


@pytest.mark.req("P-610", "P-612")
@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
async def test_an_endpoint_that_works_is_shown_and_replayed_to(
    console: Console, tmp_path: Path, size: Any, scheme: Any
) -> None:
    with Vendor(tmp_path / "vendor.jsonl") as vendor:
        endpoint = f"127.0.0.1:{vendor.port}"
        for _ in range(2):
            await console.send("webhook", recipient=f"http://{endpoint}/hook")
        page = await console.open("endpoints", size=size, scheme=scheme)
        row = page.get_by_role("table", name="Endpoints").locator("tbody tr", has_text=endpoint)
        await expect(row).to_contain_text("works")
        await expect(row).to_contain_text("0 (0 %)")
        await console.fits()
        await page.get_by_role("button", name=f"Replay to {endpoint}").click()
        await page.get_by_label("What").select_option("all")
        await console.fits()
        await page.get_by_role("button", name="Count first").click()
        await expect(page.locator("#counted")).to_contain_text(f"0 notifications to {endpoint} ended in failure")
        await expect(page.locator("#counted")).to_contain_text("it took 2")
        await page.get_by_label("Reason").fill("They lost their disk")
        await page.get_by_role("button", name="Replay 2").click()
        await expect(page.get_by_text("Redrives under way")).to_be_visible()
        await expect(page.get_by_text("2 redriven: 2 delivered")).to_be_visible()
        assert len(vendor.entries) == 4
        (done, *_) = (await console.ask("GET", "/api/v1/admin/audit"))["items"]
        assert (done["reason"], done["detail"]["endpoint"]) == ("They lost their disk", endpoint)
