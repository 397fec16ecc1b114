"""What suites of several providers ask for."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from carillon.providers.http import HttpClient
from tests.support.databases import Databases
from tests.support.ledger_engines import WarmEngines, in_the_workers_loop
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A new connection costs PostgreSQL ten times as much as what a short test asks: tests that share a loop share them.
    for item in items:
        if in_the_workers_loop(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def warm_engines(databases: Databases) -> AsyncIterator[WarmEngines]:
    engines = WarmEngines(databases)
    yield engines
    await engines.aclose()
