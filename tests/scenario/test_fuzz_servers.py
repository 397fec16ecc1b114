"""A short run of `make fuzz` over both listeners and every broker, and planted faults that it has to find."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import messages, requests
from tests.fuzz.running import Finding
from tests.support.client import Client
from tests.support.every_blueprint import EVERY, PATIENCE, World
from tests.support.galaxy_stand import PASSWORD
from tests.support.kafka import Kafka
from tests.support.process import Program
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis

pytestmark = pytest.mark.timeout(600)
SEED = 16
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, rabbitmq: RabbitMQ) -> Iterator[World]:
    with (
        Redis(password=PASSWORD) as redis_server,
        Kafka() as kafka,
        World(
            tmp_path_factory.mktemp("fuzz"), postgres=postgres, redis_server=redis_server, rabbit=rabbitmq, kafka=kafka
        ) as found,
    ):
        yield found


@pytest.mark.parametrize("name", ["local", "sse"])
def test_a_listener_refuses_and_keeps_nothing(world: World, name: str) -> None:
    """The first on granian, the second on h11."""
    world.redis.flushall()
    with EVERY[name](world) as blueprint:
        rows, findings = requests.run(blueprint, SEED, number=800, seconds=120, say=lambda _: None)
    assert findings == []
    assert [row.stored for row in rows] == [0, 0]
    assert rows[0].answers["4xx"] > 100 < sum(rows[0].answers.values())


@pytest.mark.parametrize("name", messages.WAYS)
def test_a_broker_brings_nothing_that_stops_those_behind_it(world: World, name: str) -> None:
    world.redis.flushall()
    with messages.opened(name, world) as blueprint:
        row, findings = messages.run(name, blueprint, SEED, number=200, seconds=60, say=lambda _: None)
    assert findings == []
    assert row.tried >= 200


def found_with(world: World, fault: str) -> list[Finding]:
    with EVERY["local"](world) as blueprint:
        program = Program(
            "serve",
            "--config",
            str(blueprint.config),
            env={**blueprint.environment(), **requests.UNLIMITED, "PYTHONPATH": str(ROOT)},
            cwd=world.folder,
            command=[sys.executable, "-m", "tests.support.fuzz_mutant", fault],
        )
        blueprint.programs.append(program)
        program.wait_ready(PATIENCE)
        seeds = requests.operations(Client.of(program))
        campaign = requests.Campaign(blueprint, program, seeds, SEED, "")
        campaign.run(300, 60)
        campaign.nothing_is_kept_of_refused()
        return campaign.findings


@pytest.mark.parametrize(
    ("fault", "said"), [("answers_500", "answered 500"), ("keeps_what_it_refuses", "these tables changed")]
)
def test_control_a_planted_fault_is_found(world: World, fault: str, said: str) -> None:
    assert said in found_with(world, fault)[0].error
