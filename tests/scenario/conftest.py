"""Stands for the galaxy blueprint: two Redis servers per worker, and one process per module that tests share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.galaxy_seen import ADMINISTRATORS, PATIENT
from tests.support.galaxy_stand import PASSWORD, Galaxy
from tests.support.servers import Postgres, Redis


@pytest.fixture(scope="session")
def galaxy_redis() -> Iterator[Redis]:
    """For stands of single tests, each of which empties it; the shared process has its own."""
    with Redis(password=PASSWORD) as server:
        yield server


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def galaxy(tmp_path: Path, postgres: Postgres, galaxy_redis: Redis) -> AsyncIterator[Galaxy]:
    """A stand of the test's own, in which nothing runs yet."""
    dsn = postgres.database()
    async with Galaxy(tmp_path, dsn, galaxy_redis) as stand:
        yield stand
    postgres.drop(dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, shared_redis: Redis
) -> AsyncIterator[Galaxy]:
    """A stand with one ready process, shared by a module whose tests tell their intents apart."""
    dsn = postgres.database()
    given = ADMINISTRATORS | PATIENT
    async with Galaxy(tmp_path_factory.mktemp("galaxy"), dsn, shared_redis, **given) as stand:
        stand.start()
        yield stand
    postgres.drop(dsn)
