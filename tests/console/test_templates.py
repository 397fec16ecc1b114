"""Templates: languages and gaps, a preview while one writes, what changes, publishing and going back."""

import asyncio
import json
import re
import uuid
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, Route, expect

from carillon.domain.templates import LOCALE
from tests.support.console import PHONE, Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = """
extends = "local"
[locale]
supported = ["en-US", "pt-BR"]
[categories.orders]
[categories.marketing]
"""
LETTER = """<html><head><style>
p { color: rgb(1, 2, 3) }
@media (prefers-color-scheme: dark) { p { color: rgb(250, 251, 252) !important } }
</style></head><body onload="parent.hacked = 1"><p style="font-size: 33px">Dear {{ name }}</p>
<script>parent.hacked = 1</script></body></html>"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One that promises a language in which nothing is written."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "carillon.toml").write_text(SETTINGS)
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


async def publish(page: Page, version: int) -> None:
    await page.get_by_role("button", name="Review and publish").click()
    await page.get_by_role("button", name=f"Publish version {version}").click()
    await expect(page.locator(".head")).to_contain_text(f"version {version} is in use")


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
    await publish(page, 1)
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
    await publish(page, 3)


async def test_what_cannot_be_rendered_says_why(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_label("Sample variables").fill("{not json")
    await expect(page.get_by_text("The sample variables are not JSON.")).to_be_visible()
    await page.get_by_label("Sample variables").fill("{}")
    await expect(page.get_by_role("alert").filter(has_text="name")).to_be_visible()
    # The browser reports every refused request by itself.
    console.complaints.clear()


@pytest.mark.req("P-1153")
async def test_back_to_an_old_version(console: Console) -> None:
    key, template = await stored(console, "The first.", "The second.")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_role("button", name="Compare version 1 with the version in use").click()
    await expect(page.locator(".diff del")).to_have_text("- The second.\n")
    await expect(page.locator(".diff ins")).to_have_text("+ The first.\n")
    await page.get_by_role("button", name="Roll back to version 1").press("Enter")
    question = page.get_by_role("dialog", name="Roll back to version 1?")
    await expect(question.locator("ins")).to_have_text("+ The first.\n")
    await question.get_by_role("button", name="Not now").click()
    assert (await console.ask("GET", f"/api/v1/templates/{template}"))["bodyTemplate"] == "The second."
    await page.get_by_role("button", name="Roll back to version 1").press("Enter")
    await question.get_by_role("button", name="Roll back").click()
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
    await page.get_by_role("button", name="Review and publish").click()
    await page.get_by_role("button", name="Publish version 2").click()
    refusal = page.get_by_role("alert").filter(has_text="Somebody published version 2 meanwhile")
    await expect(refusal).to_be_visible()
    answered.set()
    await expect(page.locator(".letter")).to_contain_text("Mine again.")
    await expect(refusal).to_be_visible()
    await page.unroute("**/api/v1/templates/render")
    assert (await console.ask("GET", f"/api/v1/templates/{template}"))["bodyTemplate"] == "Theirs."
    await page.get_by_role("button", name="Compare version 2 with what is written above").click()
    await expect(page.locator(".card", has_text="Versions").locator(".diff del")).to_have_text("- Theirs.\n")
    await publish(page, 3)
    assert (await console.ask("GET", f"/api/v1/templates/{template}"))["bodyTemplate"] == "Mine again."


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
    await publish(page, 1)


@pytest.mark.req("P-1134")
async def test_a_new_one_has_a_language_that_the_api_takes(console: Console) -> None:
    page = await console.open("templates/new")
    language = page.get_by_label("Language")
    for locale in ("fil", "fil-PH", "en_US", "de", "de-AT"):
        await language.fill(locale)
        fits = await language.evaluate("one => one.checkValidity()")
        assert fits is (re.fullmatch(LOCALE, locale) is not None), locale


async def test_on_a_phone(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.", "Hello again {{name}}.")
    await console.open("templates", size=PHONE)
    await console.fits()
    page = await console.open(f"templates/{key}/email/en-US", size=PHONE, scheme="dark")
    await expect(page.get_by_role("table", name="Versions")).to_be_visible()
    await console.fits()


async def test_an_error_stands_at_its_line(console: Console) -> None:
    key, _ = await stored(console, "Hello {{name}}.")
    page = await console.open(f"templates/{key}/email/en-US")
    text = page.get_by_label("Text", exact=True)
    await text.fill("Hello\n{{ name }}\n{% if name %}\nagain")
    error = page.get_by_role("button", name="Line 3, column 1")
    await expect(error).to_be_visible()
    await expect(page.locator(".bad-line")).to_have_text("{% if name %}")
    await expect(text).to_have_attribute("aria-invalid", "")
    await expect(page.get_by_text("this is the last text that could")).to_be_visible()
    await error.press("Enter")
    assert await text.evaluate("field => field.selectionStart") == len("Hello\n{{ name }}\n")
    await text.fill("Hello\n{{ name }}")
    await expect(error).to_have_count(0)
    await expect(page.locator(".line-of").filter(has_text="{{ name }}").locator(".tint-value")).to_have_count(1)
    console.complaints.clear()


async def test_html_is_shown_in_a_frame_that_runs_nothing(console: Console) -> None:
    key, _ = await stored(console, "Dear {{name}}")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_text("Layout, category and more").click()
    await page.get_by_label("HTML from").select_option("HTML")
    await page.get_by_label("HTML", exact=True).fill(LETTER)
    words = page.frame_locator(".letter-frame").locator("p")
    await expect(words).to_have_text("Dear Ada Lovelace")
    await expect(words).to_have_css("font-size", "33px")
    await expect(words).to_have_css("color", "rgb(1, 2, 3)")
    await page.get_by_role("button", name="Dark", exact=True).click()
    await expect(words).to_have_css("color", "rgb(250, 251, 252)")
    wide = await page.locator(".letter-frame").bounding_box()
    await page.get_by_role("button", name="Phone", exact=True).click()
    await expect(page.locator(".seen.phone .letter-frame")).to_be_visible()
    narrow = await page.locator(".letter-frame").bounding_box()
    assert wide is not None
    assert narrow is not None
    assert narrow["width"] < 400 < wide["width"]
    assert await page.evaluate("window.hacked") is None
    await page.get_by_role("button", name="Source", exact=True).click()
    await expect(page.locator(".seen-source")).to_contain_text("font-size: 33px")
    # The browser reports what the frame refuses to run.
    console.complaints[:] = [
        said for said in console.complaints if "script" not in said and "event handler" not in said
    ]


async def test_a_draft_is_not_lost(console: Console) -> None:
    key, _ = await stored(console, "As published.")
    page = await console.open(f"templates/{key}/email/en-US")
    await written(page, "Not yet published.")
    await expect(page.locator(".letter")).to_contain_text("Not yet published.")
    await page.get_by_role("link", name="All templates").click()
    row = page.get_by_role("table", name="Templates").locator("tbody tr", has_text=key)
    await expect(row).to_contain_text("draft")
    await row.get_by_role("link", name="en-US").click()
    await expect(page.get_by_text("Your draft of")).to_be_visible()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("Not yet published.")
    await page.get_by_role("button", name="Discard the draft").click()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("As published.")
    await page.get_by_role("link", name="All templates").click()
    await expect(row).not_to_contain_text("draft")


async def test_the_browser_asks_before_something_unpublished_is_closed(console: Console) -> None:
    key, _ = await stored(console, "As published.")
    page = await console.open(f"templates/{key}/email/en-US")
    asks = "!dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert not await page.evaluate(asks)
    await written(page, "Changed.")
    assert await page.evaluate(asks)
    await publish(page, 2)
    assert not await page.evaluate(asks)


async def test_publishing_by_keyboard(console: Console) -> None:
    key, _ = await stored(console, "The first.")
    page = await console.open(f"templates/{key}/email/en-US")
    await written(page, "By keyboard.")
    await page.keyboard.press("Control+s")
    dialog = page.get_by_role("dialog", name=f"Publish {key} as version 2?")
    await expect(dialog.locator(".diff ins")).to_have_text("+ By keyboard.\n")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.keyboard.press("Control+s")
    await page.keyboard.press("Control+s")
    await expect(page.locator(".head")).to_contain_text("version 2 is in use")
    row = page.get_by_role("table", name="Versions").locator("tbody tr", has_text="v2")
    await expect(row).to_contain_text("Text +1")


async def test_category_and_sample_are_published_with_the_text(console: Console) -> None:
    key, template = await stored(console, "Hello {{name}}.")
    page = await console.open(f"templates/{key}/email/en-US")
    await page.get_by_text("Layout, category and more").click()
    await page.get_by_label("Category").select_option("orders")
    await page.get_by_label("Sample variables").fill('{"name": "Grace"}')
    await expect(page.locator(".letter")).to_contain_text("Hello Grace.")
    await publish(page, 2)
    found = await console.ask("GET", f"/api/v1/templates/{template}")
    assert (found["category"], found["sample"], found["bodyTemplate"]) == (
        "orders",
        {"name": "Grace"},
        "Hello {{name}}.",
    )
    await page.get_by_role("link", name="All templates").click()
    await page.get_by_label("Category").select_option("orders")
    rows = page.get_by_role("table", name="Templates").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text(key)
    await expect(page).to_have_url(re.compile("category=orders"))


async def test_what_is_written_is_sent_to_its_author(console: Console) -> None:
    key, _ = await stored(console, "As published, {{name}}.")
    page = await console.open(f"templates/{key}/email/en-US")
    await written(page, "Unpublished, {{name}}.")
    await page.get_by_label("Your email address").fill("author@example.org")
    await page.get_by_role("button", name="Send it to me").click()
    await page.get_by_role("link", name="See its story").click()
    await expect(page.locator("main")).to_contain_text("Unpublished, Ada Lovelace.")
    await expect(page.locator("main")).to_contain_text("author@example.org")


@pytest.mark.req("P-536")
@pytest.mark.parametrize(
    ("channel", "label", "fields"),
    [
        ("push", "Fields of the push", {"image": "https://example.org/{{ name }}.png", "badge": 3}),
        ("inApp", "Fields of the inbox", {"url": "/orders/{{ name }}", "actions": [{"label": "Track", "url": "/t"}]}),
    ],
)
async def test_what_a_channel_carries_is_written_beside_its_texts(
    console: Console, channel: str, label: str, fields: dict[str, object]
) -> None:
    key = f"t-{uuid.uuid4().hex[:12]}"
    before = {"push": {"sound": "bell"}, "inApp": {"icon": "/bell.svg"}}[channel]
    body = {"templateKey": key, "channel": channel, "locale": "en-US", "subjectTemplate": "Hi", "bodyTemplate": "Yes"}
    made = await console.ask("POST", "/api/v1/templates", {**body, channel: before})
    page = await console.open(f"templates/{key}/{channel}/en-US")
    await expect(page.get_by_label(label)).to_have_value(json.dumps(before, indent=2))
    # What somebody else has written there stays when only the text changes.
    await written(page, "Yes {{ name }}")
    await publish(page, 2)
    found = await console.ask("GET", f"/api/v1/templates/{made['id']}")
    assert (found[channel], found["bodyTemplate"]) == (before, "Yes {{ name }}")
    await page.get_by_label(label).fill(json.dumps(fields))
    await publish(page, 3)
    found = await console.ask("GET", f"/api/v1/templates/{made['id']}")
    assert found[channel] == fields
    await page.get_by_label(label).fill("{ no JSON")
    await page.get_by_role("button", name="Review and publish").click()
    await page.get_by_role("button", name="Publish version 4").click()
    await expect(page.get_by_role("dialog")).to_contain_text(f"at {channel}")
    # The browser notes each refusal of the server's, also of the preview, which is asked a little later.
    await page.goto("about:blank")
    console.complaints.clear()
