"""Both engines, with everything that makes them durable switched on."""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.galaxy_faults import FaultyGalaxy
from tests.support.galaxy_stand import PASSWORD
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis
from tests.support.stand import Rules, Stand

MakeStand = Callable[..., Stand]


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[Postgres]:
    with Postgres(durable=True) as server:
        yield server


@pytest.fixture(scope="session")
def durable_databases(durable_postgres: Postgres) -> Iterator[Databases]:
    kept = Databases(durable_postgres)
    yield kept
    kept.close()


@pytest.fixture
def durable_dsn(durable_databases: Databases) -> Iterator[str]:
    """An empty database that has the ledger's tables."""
    dsn, give_back = durable_databases.take()
    yield str(dsn)
    give_back()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("durable_dsn"))


@pytest.fixture
def make_stand(url: str, tmp_path: Path) -> MakeStand:
    return lambda **rules: Stand(tmp_path / "stand", url, Rules(**rules))


@pytest.fixture(scope="session")
def galaxy_redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD) as server:
        yield server


@pytest.fixture
async def galaxy(tmp_path: Path, postgres: Postgres, galaxy_redis: Redis) -> AsyncIterator[FaultyGalaxy]:
    """A galaxy in which nothing runs yet, on servers that outlive it."""
    dsn = postgres.database()
    async with FaultyGalaxy(tmp_path, dsn, galaxy_redis) as stand:
        yield stand
    postgres.drop(dsn)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """Like each server of one's own: not one that other tests share, because it dies or falls silent."""
    with Postgres(durable=True) as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def own_galaxy_redis() -> Iterator[Redis]:
    with Redis(password=PASSWORD, appendonly=True) as server:
        yield server


@pytest.fixture(scope="module")
def mortal_rabbit() -> Iterator[RabbitMQ]:
    with RabbitMQ() as server:
        yield server


@pytest.fixture
def own_rabbit(mortal_rabbit: RabbitMQ) -> RabbitMQ:
    """One for a module, because its start takes five seconds of processor time; whatever it suffered, it is well."""
    if mortal_rabbit.running:
        mortal_rabbit.resume()
    else:
        mortal_rabbit.start()
    return mortal_rabbit


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """What a test counted, as one JSON line in the file that CHAOS_FIGURES names."""

    def keep(**counted: object) -> None:
        if "CHAOS_FIGURES" in os.environ:
            with Path(os.environ["CHAOS_FIGURES"]).open("a") as file:
                file.write(json.dumps({"test": request.node.name, **counted}) + "\n")

    return keep
