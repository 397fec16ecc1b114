"""Fixtures every suite may ask for, and the order in which files run."""

import gc
import os
from collections.abc import Iterator

import pytest

from tests.support import examples
from tests.support.databases import Databases
from tests.support.kafka import Kafka
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis, Valkey
from tests.support.workers import (  # noqa: F401 - pytest finds them here
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

# Importing and collecting make no garbage worth looking for; pytest_collection_finish turns it on again.
gc.disable()

# The private servers have no certificates: without this each connection makes a TLS context and asks for nothing.
os.environ["PGSSLMODE"] = "disable"

examples.register()


def pytest_collection_finish() -> None:
    # What was imported and collected stays until the end: no garbage collection has to look through it.
    gc.enable()
    gc.freeze()


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
def databases(postgres: Postgres) -> Iterator[Databases]:
    kept = Databases(postgres)
    yield kept
    kept.close()


@pytest.fixture
def ledger_dsn(databases: Databases) -> Iterator[str]:
    """An empty database that has the ledger's tables; `postgres_dsn` has none."""
    dsn, give_back = databases.take()
    yield dsn
    give_back()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    redis_server.flush()
    return redis_server.url()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    with RabbitMQ() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with Kafka() as cluster:
        yield cluster
