"""The inbox where callers prove who they are: a ticket ends, somebody is signed out and signs in again."""

import asyncio
import json
import sqlite3
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import jwt
import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.console.test_inbox import MESSAGES
from tests.console.test_inbox_rough import own_page, true_in
from tests.support.process import Program
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("P-950")]

SECRET = "a secret of the inbox's callers that is long enough"
SIGN_IN = "Sign in again to see your notifications."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signed-out")


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    trust = {"JWT_SECRET_KEY": SECRET, "JWT_ISSUER": "tests", "JWT_AUDIENCE": "carillon"}
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0", **trust}
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


def token(user: str, role: str = "user") -> str:
    now = int(time.time())
    claims = {"sub": user, "role": role, "tenant_id": "acme", "iat": now, "exp": now + 600}
    return jwt.encode({**claims, "iss": "tests", "aud": "carillon"}, SECRET, algorithm="HS256")


class Backend:
    """A product's own backend: it knows who is signed in, and asks Carillon for tickets."""

    def __init__(self, address: str, folder: Path, user: str) -> None:
        self.address = address
        self.user = user
        self.signed_in = True
        self._folder = folder

    async def ask(self, method: str, path: str, body: Any = None, role: str = "user") -> Any:
        return await asyncio.to_thread(self._ask, method, path, body, role)

    def _ask(self, method: str, path: str, body: Any, role: str) -> Any:
        said = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", "Authorization": f"Bearer {token(self.user, role)}"}
        asked = urllib.request.Request(self.address + path, said, given, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - loopback
            return json.loads(answer.read())

    async def tell(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            body = {"templateKey": "welcome", "channel": "inApp", "userId": self.user, "inApp": message}
            data = {"name": "Ada", "link": "https://example.org"}
            await self.ask("POST", "/api/v1/notifications/send", body | {"data": data}, "admin")

    async def unread(self) -> int:
        return int((await self.ask("GET", f"/notifications/{self.user}/unread"))["unread"])

    async def counts(self, unread: int) -> None:
        """Until Carillon counts so many."""

        async def as_many() -> bool:
            return await self.unread() == unread

        await until(as_many, timeout=40, what=f"{unread} unread")

    async def ticket(self, route: Route) -> None:
        if not self.signed_in:
            await route.fulfill(status=401, body="sign in first")
            return
        made = await self.ask("POST", "/notifications/stream/tickets", {"user_id": self.user})
        await route.fulfill(body=made["ticket"], content_type="text/plain")

    def end_tickets(self) -> None:
        """As if the time of every ticket were over."""
        with closing(sqlite3.connect(self._folder / "c.db", timeout=30)) as ledger, ledger:
            ledger.execute("UPDATE stream_tickets SET expires_at = 0")

    @asynccontextmanager
    async def page(self, browser: Browser) -> AsyncIterator[Page]:
        """A page of the product, with the ticket function of the documentation."""
        context = await browser.new_context()
        page = await context.new_page()
        await page.route("**/my/ticket", self.ticket)
        await own_page(page, self.address, f"<carillon-inbox id=own lang=en user={self.user}></carillon-inbox>")
        await page.evaluate(
            """async () => {
              const own = document.getElementById("own");
              own.ticket = () => fetch("/my/ticket").then((answer) => answer.text());
              own.addEventListener("carillon-refused", () => { window.refused = (window.refused ?? 0) + 1; });
              await import("/inbox/inbox.js");
            }"""
        )
        yield page
        await context.close()


@pytest.fixture
def backend(program: Program, folder: Path, request: pytest.FixtureRequest) -> Backend:
    user = request.node.name.replace("_", "-")[:60]
    return Backend(str(program.wait_ready()["addresses"][0]), folder, user)


async def test_who_is_not_signed_in_reads_that(browser: Browser, backend: Backend) -> None:
    await backend.tell(MESSAGES[0])
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{backend.address}/inbox?user={backend.user}&lang=en")
    inbox = page.locator("#inbox carillon-inbox")
    await expect(inbox.locator(".empty")).to_contain_text("You are signed out")
    await expect(inbox.locator("[aria-busy]")).to_have_count(0)
    await expect(inbox).not_to_contain_text("No connection")
    await page.get_by_label("Token").fill(token(backend.user))
    await page.get_by_role("button", name="Open").click()
    await expect(inbox.locator("li")).to_have_count(1)
    await expect(inbox.locator(".notice")).to_be_hidden()
    await context.close()


async def test_a_ticket_that_ended_is_replaced_where_somebody_acts(browser: Browser, backend: Backend) -> None:
    await backend.tell(*MESSAGES)
    async with backend.page(browser) as page:
        own = page.locator("#own")
        await expect(own.locator("li.unread")).to_have_count(3)
        await true_in(page, "document.getElementById('own').inbox.connected")
        backend.end_tickets()
        await own.locator("li").first.focus()
        await page.keyboard.press("u")
        await backend.counts(2)
        await expect(own.locator("li.unread")).to_have_count(2)
        await expect(own.locator(".toast")).to_have_count(0)
        # A ticket is replaced where its stream has opened.
        await true_in(page, "document.getElementById('own').inbox.connected")
        # Preferences ask with the ticket, too; two requests at once share the new one.
        backend.end_tickets()
        await page.evaluate(
            """async () => {
              const { inbox } = document.getElementById("own");
              await Promise.all([inbox.choices(), inbox.markRead()]);
            }"""
        )
        assert await backend.unread() == 0
        await backend.tell(MESSAGES[1])
        await expect(own.locator("li.unread")).to_have_count(1)


async def test_who_is_signed_out_sees_what_holds_and_comes_back(browser: Browser, backend: Backend) -> None:
    await backend.tell(*MESSAGES[:2])
    async with backend.page(browser) as page:
        own = page.locator("#own")
        await expect(own.locator("li.unread")).to_have_count(2)
        await true_in(page, "document.getElementById('own').inbox.connected")
        backend.signed_in = False
        backend.end_tickets()
        await own.locator("li").first.focus()
        await page.keyboard.press("u")
        await expect(own.locator(".notice")).to_have_text(SIGN_IN)
        await expect(own.locator(".toast")).to_have_text(SIGN_IN)
        await expect(own.locator("li.unread")).to_have_count(2)
        await expect(own.locator("h2 small")).to_have_text("2 unread")
        await page.keyboard.press("e")
        await expect(own.locator("li")).to_have_count(2)
        await true_in(page, "window.refused === 1")
        assert await backend.unread() == 2
        # They sign in in another tab, and return to this one.
        backend.signed_in = True
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(own.locator(".notice")).to_be_hidden()
        await page.keyboard.press("u")
        await backend.counts(1)
        await expect(own.locator("li.unread")).to_have_count(1)


async def test_what_could_not_be_written_is_not_shown_as_written(browser: Browser, backend: Backend) -> None:
    await backend.tell(*MESSAGES[:2])
    async with backend.page(browser) as page:
        own = page.locator("#own")
        await expect(own.locator("li.unread")).to_have_count(2)
        await true_in(page, "document.getElementById('own').inbox.connected")
        await page.context.set_offline(True)
        await own.locator("li").first.focus()
        await page.keyboard.press("u")
        await expect(own.locator(".toast")).to_have_text("That did not work. Try again.")
        await expect(own.locator("li.unread")).to_have_count(2)
        await page.keyboard.press("e")
        await expect(own.locator("li")).to_have_count(2)
        await expect(own.locator("h2 small")).to_have_text("2 unread")
