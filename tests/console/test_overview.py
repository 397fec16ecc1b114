"""The first page: what needs attention and what goes on, updated without a reload."""

import re
import time
from pathlib import Path

import jwt
import pytest
from playwright.async_api import Browser, Page, Route, expect

from carillon import __version__
from tests.support.console import PHONE, Console
from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_empty_house_says_so(console: Console) -> None:
    page = await console.open()
    await expect(page.locator(".human")).to_contain_text("Nothing needs attention")
    await expect(page.get_by_text("Nothing has been accepted yet.")).to_be_visible()
    await expect(page.locator("#live")).to_have_text("live")


async def test_the_bare_address_leads_here(console: Console) -> None:
    page = await console.open()
    await page.goto(console.address)
    await expect(page).to_have_url(re.compile("/console"))
    await expect(page.locator("main h1")).to_be_visible()


async def test_what_happens_appears_by_itself(console: Console) -> None:
    page = await console.open()
    delivered = page.locator(".figures div", has_text="Delivered").locator("dd").first
    await expect(delivered).to_have_text(re.compile(r"\d+"))
    before = int(await delivered.inner_text())
    await console.send("email")
    await console.send("push")
    await expect(delivered).to_have_text(str(before + 2))
    await expect(page.get_by_role("table", name="Lanes")).to_contain_text("standard")


async def test_what_needs_a_human_comes_first(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    try:
        page = await console.open()
        await console.send("sms")
        link = page.locator("#dead-letters-all")
        await expect(link).to_contain_text("dead letter")
        await expect(page.get_by_role("table", name="Recent events")).to_contain_text("drill: refused")
        await link.click()
        await expect(page.locator("main h1")).to_have_text("Dead letters")
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/sms")


async def test_a_channel_that_fails_is_named_with_its_reason(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, pictures: Path | None
) -> None:
    folder = tmp_path_factory.mktemp("failing")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as program:
        async with Console(browser, str(program.wait_ready(60)["addresses"][0]), pictures) as console:
            await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
            for _ in range(5):
                await console.send("sms")
                await console.send("push")
            await console.send("email", scheduledFor="2099-01-01T00:00:00Z")
            page = await console.open()
            failing = page.locator(".human a", has_text="fails")
            await expect(failing).to_have_text(
                "sms fails: 100 % of 5 calls to sandbox in 5 min, the newest with “drill: refused”"
            )
            await expect(page.locator("#figure-Scheduled")).to_have_text("1")
            await expect(page.get_by_role("table", name="What ended")).to_contain_text("sms")
            await console.picture("overview")
            await failing.click()
            await expect(page.get_by_label("Channel")).to_have_value("sms")
            await expect(page.get_by_role("table", name="Dead letters").locator("tbody tr")).to_have_count(5)


@pytest.mark.req("P-546")
async def test_charts_of_a_time_with_a_table_behind_each(console: Console) -> None:
    await console.send("email")
    await console.send("push")
    page = await console.open()
    ended = page.get_by_role("table", name="What ended")
    await expect(ended).to_contain_text("email")
    await page.get_by_role("button", name="7 d").click()
    await expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    assert "range=7d" in page.url
    await page.get_by_text("as a table").first.click()
    shown = page.get_by_role("table", name=re.compile("Accepted, delivered.*as a table"))
    await expect(shown.locator("tbody tr")).to_have_count(60)
    await expect(shown).to_contain_text(f"Carillon {__version__} started")
    await page.get_by_role("button", name="template").click()
    await ended.get_by_role("button", name="welcome").click()
    await expect(page.get_by_role("button", name="Only template welcome")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="Only template welcome")).to_be_visible()
    drawing = page.locator("svg.chart").first
    await drawing.hover(position={"x": 300, "y": 60})
    await expect(page.locator(".tip").first).to_contain_text("delivered")


@pytest.mark.req("P-785", "P-980")
async def test_an_open_breaker_of_a_failing_provider_is_one_sentence_and_its_probes_one_event(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    now = time.time()
    changed = {"type": "breaker_changed", "provider": "sandbox", "after": "open"}
    recent = [changed | {"at": now, "before": "half_open", "probes": 3}, changed | {"at": now - 9, "before": "closed"}]

    async def trouble(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=await answer.json() | {"recent": recent})

    folder = tmp_path_factory.mktemp("open")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as program:
        async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
            await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "unavailable"})
            for _ in range(6):
                await console.send("sms")
            page = await console.open("people")
            await page.route("**/api/v1/console/overview", trouble)
            await page.get_by_role("link", name="Overview").click()
            named = page.locator(".human a", has_text="sandbox")
            said = (
                r"sms fails: 100 % of \d+ calls to sandbox in 5 min, the newest with “.*”; its breaker is (half )?open"
            )
            await expect(named).to_have_text(re.compile(said))
            # Its messages wait for another attempt: no dead letter would say why.
            await expect(named).to_have_attribute("href", "#/notifications?status=queued&channel=sms")
            events = page.get_by_role("table", name="Recent events").locator("tbody tr")
            await expect(events).to_contain_text(["3 failed probes", "was closed"])
            await expect(events).to_have_count(2)
            await page.get_by_role("link", name="Providers").click()
            await expect(page.locator(".human li")).to_have_text(re.compile(said))
            await expect(page.get_by_role("table", name="What changed").locator("tbody tr").first).to_contain_text(
                "3 failed probes"
            )


async def test_a_long_name_in_the_verdict_fits_a_phone(console: Console) -> None:
    pause = {
        "scope": "template",
        "name": "a-template-with-a-long-name.of.several.parts.for.the.campaign",
        "reason": "x",
    }
    override = {"X-Admin-Override": "true"}
    await console.ask("POST", "/api/v1/admin/pauses", pause, **override)
    try:
        for name in ("overview", "providers"):
            page = await console.open(name, size=PHONE)
            await expect(page.locator(".human")).to_contain_text("for.the.campaign")
            await console.fits()
    finally:
        await console.ask("POST", "/api/v1/admin/pauses/resume", pause, **override)


@pytest.mark.req("P-1250")
async def test_the_names_of_templates_and_tenants_fit_a_phone(console: Console) -> None:
    await console.send("email", tenantId="globex-international-company-llc")
    await console.send("email")
    page = await console.open("overview?by=tenant", size=PHONE)
    ended = page.get_by_role("table", name="What ended")
    await expect(ended).to_contain_text("globex-international")
    await console.fits()
    # What has no tenant cannot be chosen, and is not chosen where nothing is.
    await expect(ended.get_by_role("button", name="none")).to_have_attribute("aria-pressed", "false")


@pytest.mark.req("P-784")
async def test_the_legend_is_about_the_whole_time(console: Console) -> None:
    """A quiet minute at the end does not make the legend say that there is nothing."""

    async def earlier(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        rest = len(found["times"]) - 3
        found |= {"averageMs": [10.0, 40.0, None] + [None] * rest, "slowestMs": [20.0, 90.0, None] + [None] * rest}
        found |= {"delivered": [2, 1, 0] + [0] * rest}
        await route.fulfill(response=answer, json=found)

    page = await console.open()
    await page.route("**/api/v1/console/history*", earlier)
    await page.reload()
    legend = page.locator("figure", has=page.get_by_role("img", name="Average and slowest")).locator("figcaption")
    await expect(legend).to_contain_text("average 20 ms")
    await expect(legend).to_contain_text("slowest 90 ms")


async def standing(page: Page) -> str:
    """The id of what has the focus."""
    return str(await page.evaluate("document.activeElement.id"))


@pytest.mark.req("P-860")
async def test_the_focus_stays_on_its_link(console: Console) -> None:
    await console.ask("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "refused"})
    try:
        page = await console.open()
        before = (await console.ask("GET", "/api/v1/dead-letters?pageSize=1"))["totalCount"]
        await console.send("sms")
        link = page.locator("#dead-letters-all")
        await expect(link).to_contain_text(f"{before + 1} dead letter")
        await link.focus()
        await console.send("sms")
        await expect(link).to_contain_text(f"{before + 2} dead letters")
        await expect(link).to_be_focused()
        rows = page.get_by_role("table", name="Recent events").locator("tbody tr")
        first = rows.locator("a").first
        await first.focus()
        stood = await standing(page)
        await console.send("sms")
        await expect(link).to_contain_text(f"{before + 3} dead letters")
        # The same failure again is in the same row.
        await expect(rows.first).to_contain_text(re.compile(r"[2-9] times"))
        assert await standing(page) == stood
        await console.ask("PUT", "/api/v1/sandbox/drills/email", {"outcome": "refused"})
        await console.send("email")
        # The newest row comes first, so the row with the focus has moved down.
        await expect(first).not_to_have_id(stood)
        assert await standing(page) == stood
        ids = await rows.locator("a").evaluate_all("links => links.map((link) => link.id)")
        assert len(ids) == len(set(ids))
    finally:
        await console.ask("DELETE", "/api/v1/sandbox/drills/sms")
        await console.ask("DELETE", "/api/v1/sandbox/drills/email")


async def test_control_a_page_that_is_only_filled_loses_the_focus(console: Console) -> None:
    async def careless(route: Route) -> None:
        answer = await route.fetch()
        text = await answer.text()
        assert "refill(places.verdict, " in text
        await route.fulfill(response=answer, body=text.replace("refill(places.verdict, ", "fill(places.verdict, "))

    page = await console.open("templates")
    await page.route("**/console/console.js", careless)
    await page.reload()
    await expect(page.locator("main h1")).to_be_visible()
    await page.locator("nav a", has_text="Overview").click()
    link = page.locator("#dead-letters-all")
    await link.focus()
    await expect(link).to_be_focused()
    delivered = page.locator(".figures div", has_text="Delivered").locator("dd").first
    before = await delivered.inner_text()
    await console.send("email")
    await expect(delivered).not_to_have_text(before)
    await expect(link).not_to_be_focused()


async def test_by_keyboard_alone(console: Console) -> None:
    page = await console.open()
    await page.locator(".skip").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await page.locator("nav a", has_text="Notifications").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("main h1")).to_have_text("Notifications")
    await expect(page).to_have_title("Notifications · Carillon")


@pytest.mark.req("P-783")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone(console: Console, scheme: str) -> None:
    await console.send("email")
    page = await console.open(size=PHONE, scheme=scheme)
    await expect(page.get_by_role("table", name="What ended")).to_be_visible()
    await console.fits()
    back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(22, 20, 18)") is (scheme == "dark")


async def test_light_and_dark_are_kept(console: Console) -> None:
    page = await console.open()
    await page.locator("#theme").click()
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_landmarks_for_screen_readers(console: Console) -> None:
    page = await console.open()
    for role in ("banner", "navigation", "main"):
        await expect(page.get_by_role(role)).to_have_count(1)
    assert await page.locator("svg.chart:not([aria-label])").count() == 0
    assert await page.locator("button:not([aria-label])", has_text=re.compile(r"^\W*$")).count() == 0


async def test_nothing_from_elsewhere_and_nothing_inline_runs(console: Console) -> None:
    page = await console.open()
    answer = await page.request.get(f"{console.address}/console")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    violated = await page.evaluate("""new Promise((done) => {
        addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
    })""")
    assert violated.startswith("script-src")
    assert await page.evaluate("window.ran") is None
    # The browser says aloud what it refused; that is what was wanted here.
    console.complaints.clear()


async def test_when_carillon_goes_away_the_page_says_so(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("gone")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as program:
        address = str(program.wait_ready(60)["addresses"][0])
        async with Console(browser, address) as console:
            page = await console.open()
            await expect(page.locator("#live")).to_have_text("live")
            program.kill()
            await expect(page.locator("#live")).to_have_text("not live")
            await page.locator("nav a", has_text="Notifications").click()
            await expect(page.get_by_text("Is Carillon running?")).to_be_visible()
            await expect(page.get_by_role("button", name="Try again")).to_be_visible()


async def test_a_server_that_stands_still_is_not_live(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("still")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as program:
        async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
            page = await console.open()
            await expect(page.locator("#live")).to_have_text("live")
            program.stop()
            await expect(page.locator("#live")).to_have_text("not live")
            program.cont()
            await expect(page.locator("#live")).to_have_text("live")


async def test_who_is_asking(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("asked")
    environment = {
        "DATABASE_URL": f"sqlite:///{folder}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "JWT_SECRET_KEY": "a-secret-of-the-console-tests-that-is-long",
        "JWT_ISSUER": "console-tests",
        "JWT_AUDIENCE": "carillon",
    }
    with Program("serve", env=environment, cwd=folder) as program:
        async with Console(browser, str(program.wait_ready(60)["addresses"][0])) as console:
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(f"{console.address}/console")
            await page.get_by_label("Token or API key").fill("not-a-token")
            await page.get_by_role("button", name="Open the console").click()
            await expect(page.get_by_text("This token is not accepted.")).to_be_visible()
            await page.get_by_label("Token or API key").fill(_token(environment))
            await page.get_by_role("button", name="Open the console").click()
            await expect(page.locator("main h1")).to_have_text("Overview")
            await expect(page.locator("#live")).to_have_text("live")
            assert "eyJ" not in page.url
            await context.close()


def _token(environment: dict[str, str]) -> str:
    now = int(time.time())
    claims = {"sub": "root", "role": "admin", "iat": now, "exp": now + 600, "aud": "carillon", "iss": "console-tests"}
    return jwt.encode(claims, environment["JWT_SECRET_KEY"], algorithm="HS256")
