"""A real Redis Cluster of six: breakers and targets work there, across moved slots; what cannot work there refuses."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio.cluster import RedisCluster as ClusterClient

from carillon.compose.blueprints import examine
from carillon.compose.redis_topology import cluster_client
from carillon.config.reading import load
from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Event, Trouble
from carillon.outbound.breakers.redis import RedisBreakers, RedisTargets
from carillon.queues import Queues
from tests.fleet.redis_fleet import RedisCluster
from tests.support.client import Client
from tests.support.clocks import ManualClock
from tests.support.fcm_stub import SERVER_KEY
from tests.support.process import Program

pytestmark = pytest.mark.slow

POLICIES = {"*": BreakerPolicy(failure_threshold=3, open_seconds=30.0)}
PREFIX = "circuit:{listo}:"
PROVIDERS = [f"vendor-{number}" for number in range(12)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    found = RedisCluster()
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture
async def client(cluster: RedisCluster) -> AsyncIterator[ClusterClient]:
    found = cluster_client(cluster.url, 20, 2.0)
    yield found
    await found.flushall()
    await found.aclose()


def breakers_of(client: ClusterClient, events: list[Event]) -> RedisBreakers:
    clock = ManualClock()
    return RedisBreakers(client, POLICIES, prefix=PREFIX, clock=clock, observer=events.append)


def troubles(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, Trouble)]


@pytest.mark.req("P-585")
async def test_a_fleet_shares_breakers_in_a_cluster(client: ClusterClient) -> None:
    events: list[Event] = []
    first, second = breakers_of(client, events), breakers_of(client, events)
    for provider in PROVIDERS:
        for _ in range(3):
            await first.record(provider, ok=False)
    assert {await second.admit(provider) for provider in PROVIDERS} == {Admission.STOP}
    assert troubles(events) == []


@pytest.mark.req("P-585")
async def test_breakers_outlive_a_slot_that_moves(cluster: RedisCluster, client: ClusterClient) -> None:
    events: list[Event] = []
    breakers = breakers_of(client, events)
    for _ in range(3):
        await breakers.record("vendor-1", ok=False)
    before = cluster.owner(f"{PREFIX}vendor-1:state")
    moving = asyncio.create_task(asyncio.to_thread(cluster.move_slot, f"{PREFIX}vendor-1:state"))
    while not moving.done():
        assert await breakers_of(client, events).admit("vendor-1") is Admission.STOP
    await moving
    assert cluster.owner(f"{PREFIX}vendor-1:state") is not before
    assert await breakers_of(client, events).look(["vendor-1"]) == {"vendor-1": State.OPEN}
    assert troubles(events) == []


@pytest.mark.req("P-585")
async def test_targets_are_changed_in_a_cluster(client: ClusterClient) -> None:
    targets = RedisTargets(client)
    await asyncio.gather(*(targets.change_target("listo", "host:1", lambda state, _: (state, None)) for _ in range(5)))
    assert (await targets.target_states("listo"))[1] == {}


def environment(cluster: RedisCluster, dsn: str) -> dict[str, str]:
    return {
        "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_ALLOW_SANDBOX": "1",
        "DATABASE_URL": dsn,
        "REDIS_URL": cluster.url,
        "RABBITMQ_URL": "amqp://guest:guest@127.0.0.1:1/",
        "TEMPLATE_SERVICE_URL": "http://127.0.0.1:1",
        "FCM_API": "legacy",
        "FCM_SERVER_KEY": SERVER_KEY,
        "WEBHOOK_SIGNING_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "SERVICE_TOKEN": "cluster-service-token",
        "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{cluster.nodes[0].port}",
        "NOTIFICATION_REDIS_PASSWORD": "none",
        "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{dsn}?search_path=notification",
        "NOTIFICATION_USER_SERVICE_BASE_URL": "http://127.0.0.1:1",
        "NOTIFICATION_INTERNAL_HTTP_ADDR": "127.0.0.1:0",
    }


@pytest.mark.req("P-586")
@pytest.mark.parametrize(
    ("blueprint", "reason"),
    [
        ("local", "set redis.cluster = true"),
        ("listo", "set redis.cluster = true"),
        ("push-worker", "idempotency marks"),
        ("billing", "messages move between lists"),
    ],
)
def test_who_cannot_work_there_says_so_and_the_doctor_too(
    cluster: RedisCluster, postgres_dsn: str, tmp_path: Path, blueprint: str, reason: str
) -> None:
    given = environment(cluster, postgres_dsn)
    with Program("serve", "--blueprint", blueprint, env=given, cwd=tmp_path) as program:
        assert program.wait(60) == 2
        assert reason in program.tail()
        assert "Redis Cluster" in program.tail()
    settings = load(blueprint, None, given)
    (found,) = (each for each in asyncio.run(examine(settings)) if each.part == "Redis")
    assert (found.verdict, reason in found.words) == ("ill", True)


@pytest.mark.req("P-586")
def test_galaxy_says_so_too(cluster: RedisCluster, postgres_dsn: str, tmp_path: Path) -> None:
    given = environment(cluster, postgres_dsn) | {"NOTIFICATION_REDIS_PASSWORD": "a-password"}
    node = cluster.nodes[0]
    node.execute("CONFIG SET requirepass a-password")
    try:
        with Program("serve", "--blueprint", "galaxy", env=given, cwd=tmp_path) as program:
            assert program.wait(60) == 2
            assert "Redis Cluster: intents, leases" in program.tail()
    finally:
        node.password = "a-password"
        node.execute('CONFIG SET requirepass ""')
        node.password = None


@pytest.mark.req("P-586")
@pytest.mark.parametrize("blueprint", ["push-worker", "billing", "galaxy"])
def test_the_setting_is_refused_where_it_cannot_help(cluster: RedisCluster, postgres_dsn: str, blueprint: str) -> None:
    given = environment(cluster, postgres_dsn) | {"CARILLON_REDIS__CLUSTER": "true"}
    with pytest.raises(ConfigurationError, match=r"redis\.cluster"):
        load(blueprint, None, given)


@pytest.mark.req("P-586")
async def test_queues_of_your_own_are_refused_for_producers_too(cluster: RedisCluster) -> None:
    queues = Queues(cluster.url)
    with pytest.raises(ConfigurationError, match="Redis Cluster: messages move"):
        await queues.enqueue("q:test:work", {"n": 1}, action="work")
    await queues.aclose()


@pytest.mark.req("P-585")
def test_listo_works_with_a_cluster(cluster: RedisCluster, ledger_dsn: str, tmp_path: Path) -> None:
    given = environment(cluster, ledger_dsn) | {"CARILLON_REDIS__CLUSTER": "true"}
    with Program("serve", "--blueprint", "listo", env=given, cwd=tmp_path) as program:
        client = Client.of(program)
        body = {"templateKey": "order_confirmed", "channel": "email", "recipient": "ada@example.org"}
        assert client.call("POST", "/api/v1/notifications/send", body).status == 202
        program.wait_for("route_attempted", lambda line: line["outcome"] == "sent")
        health = client.get("/health").body
        assert health["status"] == "healthy", health
        assert [line for line in program.lines if line.get("event") == "trouble"] == []
        program.terminate()
        assert program.wait() == 0
