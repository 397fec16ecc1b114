"""Templates: languages and gaps, a preview while one writes, what changes, publishing and going back."""

import asyncio
import re
import uuid
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, Route, expect

from tests.support.console import PHONE, Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One that promises a language in which nothing is written."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "carillon.toml").write_text('extends = "local"\n[locale]\nsupported = ["en-US", "pt-BR"]\n')
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", "carillon.toml", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


async def stored(console: Console, *bodies: str, key: str | None = None) -> tuple[str, str]:
    """A template of mails with so many versions; its key and its id."""
    key = key or f"t-{uuid.uuid4().hex[:12]}"
    for body in bodies:
        made = await console.ask(
            "POST",
            "/api/v1/templates",
            {
                "templateKey": key,
                "channel": "email",
                "locale": "en-US",
                "subjectTemplate": "Your parcel",
                "bodyTemplate": body,
            },
        )
    return key, str(made["id"])


async def written(page: Page, text: str) -> None:
    await page.get_by_label("Text", exact=True).fill(text)


async def test_every_language_and_what_is_missing(console: Console) -> None:
    page = await console.open("templates")
    await expect(page.locator(".human")).to_contain_text("missing: people with that language")
    row = page.get_by_role("table", name="Templates").locator("tbody tr", has_text="push")
    await expect(row).to_contain_text("en-US file")
    await expect(row.get_by_role("link", name="pt-BR is missing")).to_be_visible()
    await page.get_by_label("Key").fill("no-such-key")
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()


async def test_a_gap_is_filled_from_the_language_there_is(console: Console) -> None:
    page = await console.open("templates")
    row = page.get_by_role("table", name="Templates").locator("tbody tr", has_text="sms")
    await row.get_by_role("link", name="pt-BR is missing").click()
    await expect(page.get_by_label("Text", exact=True)).to_have_value(re.compile(r"\{\{"))
    await written(page, "Olá {{name}}: {{link}}")
    await expect(page.locator(".phone .bubble")).to_have_text("Olá Ada Lovelace: https://example.org/start")
    await page.get_by_role("button", name="Publish version 1").click()
    await expect(page.locator(".head")).to_contain_text("version 1 is in use")
    answer = await console.ask(
        "POST",
        "/api/v1/templates/render",
        {"templateKey": "welcome", "channel": "sms", "locale": "pt-BR", "data": {"name": "Ana", "link": "x"}},
    )
    assert answer["body"] == "Olá Ana: x"


async def test_seen_while_it_is_written_and_what_changes(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.\nThe first.", "Hello {{name}}.\nThe second.", key="parcel_sent")
    page = await console.open(f"templates/{key}/email/en-US")
    await expect(page.get_by_text("No difference: this is the published version.")).to_be_visible()
    await written(page, "Hello {{name}}.\nThe third costs {{amount}}.")
    await expect(page.locator(".letter")).to_contain_text("The third costs 19.90.")
    await expect(page.get_by_label("Sample variables")).to_have_value(re.compile("amount"))
    await expect(page.locator(".diff del")).to_have_text("- The second.\n")
    await expect(page.locator(".diff ins")).to_have_text("+ The third costs {{amount}}.\n")
    await page.get_by_label("Sample variables").fill('{"name": "<b>Grace</b>", "amount": 3}')
    await expect(page.locator(".letter")).to_contain_text("Hello <b>Grace</b>.")
    await console.picture("templates")
    await page.get_by_role("button", name="Publish version 3").click()
    await expect(page.locator(".head")).to_contain_text("version 3 is in use")


async def test_what_cannot_be_rendered_says_why(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_label("Sample variables").fill("{not json")
    await expect(page.get_by_text("The sample variables are not JSON.")).to_be_visible()
    await page.get_by_label("Sample variables").fill("{}")
    await expect(page.get_by_role("alert")).to_contain_text("name")
    # The browser reports every refused request by itself.
    console.complaints.clear()


async def test_back_to_an_old_version(console: Console) -> None:
    key, template = await stored(console, "The first.", "The second.")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_role("button", name="Compare version 1 with the version in use").click()
    await expect(page.locator(".diff del")).to_have_text("- The second.\n")
    await expect(page.locator(".diff ins")).to_have_text("+ The first.\n")
    await page.get_by_role("button", name="Roll back to version 1").press("Enter")
    await expect(page.locator(".head")).to_contain_text("version 3 is in use")
    await expect(page.get_by_label("Text", exact=True)).to_have_value("The first.")
    assert (await console.ask("GET", f"/api/v1/templates/{template}"))["bodyTemplate"] == "The first."


async def test_an_edit_made_meanwhile_is_not_overwritten(console: Console) -> None:
    key, template = await stored(console, "Mine.")
    page = await console.open(f"templates/{key}/email/en-US")
    await expect(page.get_by_role("table", name="Versions")).to_be_visible()
    await console.ask("PUT", f"/api/v1/templates/{template}", {"bodyTemplate": "Theirs."})
    answered = asyncio.Event()

    async def late(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await page.route("**/api/v1/templates/render", late)
    await written(page, "Mine again.")
    await page.get_by_role("button", name="Publish version 2").click()
    refusal = page.get_by_role("alert").filter(has_text="Somebody published version 2 meanwhile")
    await expect(refusal).to_be_visible()
    answered.set()
    await expect(page.locator(".letter")).to_contain_text("Mine again.")
    await expect(refusal).to_be_visible()
    await page.unroute("**/api/v1/templates/render")
    assert (await console.ask("GET", f"/api/v1/templates/{template}"))["bodyTemplate"] == "Theirs."


async def test_a_new_one(console: Console) -> None:
    key = f"t-{uuid.uuid4().hex[:12]}"
    page = await console.open("templates")
    await page.get_by_role("link", name="New template").click()
    await expect(page.locator("main h1")).to_have_text("New template")
    await page.get_by_label("Key").fill(key)
    await page.get_by_label("Channel").select_option("push")
    await page.get_by_role("button", name="Write it").click()
    await page.get_by_label("Subject or title").fill("News")
    await written(page, "Something for {{name}}")
    await expect(page.locator(".phone .notice")).to_contain_text("Something for Ada Lovelace")
    await page.get_by_role("button", name="Publish version 1").click()
    await expect(page.locator(".head")).to_contain_text("version 1 is in use")


async def test_on_a_phone(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.", "Hello again {{name}}.")
    await console.open("templates", size=PHONE)
    await console.fits()
    page = await console.open(f"templates/{key}/email/en-US", size=PHONE, scheme="dark")
    await expect(page.get_by_role("table", name="Versions")).to_be_visible()
    await console.fits()
