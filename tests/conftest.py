"""Fixtures every suite may ask for."""

from collections.abc import Iterator

import pytest

from tests.support.servers import Postgres, Redis


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres: Postgres) -> Iterator[str]:
    dsn = postgres.database()
    yield dsn
    postgres.drop(dsn)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    redis_server.flush()
    return redis_server.url()
