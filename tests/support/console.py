"""The console as an operator has it before them: a page in a browser, and Carillon behind it."""

import asyncio
import json
import urllib.request
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.async_api import Browser, ConsoleMessage, Page, expect

from tests.support.browser import new_tab

PATIENCE_MS = 40_000
DESK, PHONE = (1280, 800), (380, 760)
# What somebody opens, such as a chart's numbers, may scroll.
_CUT = """[...document.querySelectorAll(".scroll")]
    .filter((one) => !one.closest("details") && one.scrollWidth > one.clientWidth + 1)
    .map((one) => `${one.firstElementChild.getAttribute("aria-label")}: ${one.scrollWidth} in ${one.clientWidth}`)"""


class Console:
    """One page of the browser; whatever the page complains about is kept."""

    def __init__(self, browser: Browser, address: str, pictures: Path | None = None) -> None:
        self._browser = browser
        self._pictures = pictures
        self._opened: Page | None = None
        self.address = address
        self.complaints: list[str] = []
        self.page: Page

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def open(self, page: str = "overview", *, size: tuple[int, int] = DESK, scheme: Any = "light") -> Page:
        """A page of the console for somebody who was never there: the browser remembers nothing of it."""
        if self._opened is not None:
            await self._opened.close()
        self.page = self._opened = await new_tab(self._browser, self.address)
        session = await self.page.context.new_cdp_session(self.page)
        forgotten = {"origin": self.address, "storageTypes": "all"}
        await session.send("Storage.clearDataForOrigin", forgotten)
        await session.detach()
        await self.page.set_viewport_size({"width": size[0], "height": size[1]})
        await self.page.emulate_media(color_scheme=scheme)
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        await self.page.goto(f"{self.address}/console#/{page}")
        await expect(self.page.locator("main h1")).to_be_visible()
        return self.page

    async def picture(self, name: str) -> None:
        """For the documentation, when somebody asked for pictures."""
        if self._pictures is not None:
            await self.page.screenshot(path=self._pictures / f"{name}.png")

    async def fits(self) -> None:
        """Nothing sticks out to the side, and no table hides columns."""
        width = await self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], width
        cut = await self.page.evaluate(_CUT)
        assert not cut, cut

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return await asyncio.to_thread(self._ask, method, path, body, headers)

    async def send(self, channel: str = "email", *, user: str | None = None, **more: Any) -> str:
        """A welcome to somebody; the notification's id."""
        to = {"email": "ada@example.org", "sms": "+491701234567"}.get(channel, "device-1")
        data = {"name": "Ada", "link": "https://example.org/start"}
        body = {"templateKey": "welcome", "channel": channel, "recipient": to, "data": data, **more}
        answer = await self.ask("POST", "/api/v1/notifications/send", body | {"userId": user or uuid.uuid4().hex})
        return str(answer["notificationId"])

    def _ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        asked = urllib.request.Request(self.address + path, data, given, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - loopback
            text = answer.read()
        return json.loads(text) if text else None

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.text} {message.location}")
