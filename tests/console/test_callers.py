"""An administrator of one tenant sees that tenant's pages, which poll instead of using the live stream."""

import time
from collections.abc import Iterator

import jwt
import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.support.process import Program

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "a secret of the console's callers that is long enough"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("callers")
    trust = {"JWT_SECRET_KEY": SECRET, "JWT_ISSUER": "tests", "JWT_AUDIENCE": "carillon"}
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0", **trust}
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


def token(role: str) -> str:
    now = int(time.time())
    claims = {"sub": "ada", "role": role, "tenant_id": "acme", "iat": now, "exp": now + 600}
    return jwt.encode({**claims, "iss": "tests", "aud": "carillon"}, SECRET, algorithm="HS256")


async def signed_in(browser: Browser, program: Program, role: str) -> Page:
    page = await (await browser.new_context()).new_page()
    await page.goto(f"{program.wait_ready()['addresses'][0]}/console")
    await page.get_by_label("Token or API key").fill(token(role))
    await page.get_by_role("button", name="Open the console").click()
    return page


async def test_an_administrator_of_one_tenant(browser: Browser, program: Program) -> None:
    page = await signed_in(browser, program, "admin")
    await expect(page.locator("#nav a")).to_have_text(
        ["Notifications", "Dead letters", "People", "Templates", "Suppressions", "Categories", "Digests", "Audit"]
    )
    await expect(page.locator("#live")).to_have_text("every few seconds")
    body = {"templateKey": "welcome", "channel": "push", "recipient": "tenants-device", "userId": "zoe"}
    await page.evaluate(
        """async ([body, token]) => fetch("/api/v1/notifications/send", {method: "POST", body: JSON.stringify(body),
            headers: {"Content-Type": "application/json", Authorization: `Bearer ${token}`}})""",
        [body | {"data": {"name": "Zoe", "link": "x"}}, token("admin")],
    )
    await expect(page.get_by_role("table", name="Notifications")).to_contain_text("zoe")
    await page.get_by_role("link", name="Dead letters").click()
    await expect(page.get_by_text("They will be listed here, by cause")).to_be_visible()
    await page.get_by_role("link", name="Templates").click()
    await expect(page.get_by_role("table", name="Templates")).to_contain_text("welcome")
    await page.get_by_role("link", name="Suppressions").click()
    await page.get_by_label("Address to suppress").fill("tenants-person@example.org")
    await page.get_by_label("Reason").fill("asked")
    await page.get_by_role("button", name="Suppress").click()
    await expect(page.get_by_role("table", name="Suppressions")).to_contain_text("acme")
    await page.context.close()


@pytest.mark.req("P-1147")
async def test_a_token_that_shows_no_page_is_changed_for_another(browser: Browser, program: Program) -> None:
    """As that of a tenant's administrator where all pages are those of operators."""
    page = await (await browser.new_context()).new_page()

    async def none(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=await answer.json() | {"pages": [], "absent": {}})

    surface = "**/api/v1/console/surface"
    await page.goto(f"{program.wait_ready()['addresses'][0]}/console")
    await expect(page.get_by_label("Token or API key")).to_be_visible()
    await page.route(surface, none)
    await page.get_by_label("Token or API key").fill(token("user"))
    await page.get_by_role("button", name="Open the console").click()
    await expect(page.get_by_text("This token may not see any page")).to_be_visible()
    await page.unroute(surface)
    await page.get_by_role("button", name="Use another token").click()
    await expect(page.get_by_text("This token is not accepted.")).to_have_count(0)
    await page.get_by_label("Token or API key").fill(token("admin"))
    await page.get_by_role("button", name="Open the console").click()
    await expect(page.locator("#live")).to_have_text("every few seconds")
    await page.get_by_role("link", name="Suppressions").click()
    await expect(page.locator("main h1")).to_have_text("Suppressions")
    await page.context.close()


async def test_a_person(browser: Browser, program: Program) -> None:
    page = await signed_in(browser, program, "user")
    await expect(page.locator("#nav a")).to_have_text(["Notifications"])
    await page.context.close()
