"""One browser and one running Carillon for the console's tests; every page is watched for complaints."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.support.browser import chromium
from tests.support.console import Console
from tests.support.process import Program

expect.set_options(timeout=40_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("console")
    environment = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where screenshots go, when CONSOLE_PICTURES names a folder."""
    named = os.environ.get("CONSOLE_PICTURES")
    return None if named is None else Path(named)


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, program: Program, pictures: Path | None) -> AsyncIterator[Console]:
    async with Console(browser, str(program.wait_ready()["addresses"][0]), pictures) as opened:
        yield opened
        assert opened.complaints == []
