"""What suites of several providers ask for."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from carillon.providers.http import HttpClient
from tests.support.vendor import Vendor


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "endpoint.jsonl") as vendor:
        yield vendor
