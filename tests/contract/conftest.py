"""What suites of several providers ask for."""

from collections.abc import AsyncIterator

import pytest

from carillon.providers.http import HttpClient


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()
