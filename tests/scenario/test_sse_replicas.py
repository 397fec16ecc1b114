"""Several replicas over one PostgreSQL: every reader gets every entry in order, whichever replica claims it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from carillon.compose.ledger import open_ledger
from carillon.compose.live import open_live
from carillon.compose.process import Process
from carillon.config.reading import load
from carillon.domain.errors import ConfigurationError
from carillon.system import SystemClock
from tests.support.servers import Postgres, Redis
from tests.support.sse_stand import SseStand

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = """
[sse]
presence_seconds = 10
heartbeat_seconds = 0.5
"""


@pytest_asyncio.fixture(params=["redis", "postgres"], scope="module", loop_scope="module")
async def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, redis_server: Redis
) -> AsyncIterator[SseStand]:
    """Two replicas that serve readers and one that only claims; `addresses` are those of the first two."""
    dsn = postgres.database()
    given = {"REDIS_URL": redis_server.url(3)} if request.param == "redis" else {}
    async with SseStand(tmp_path_factory.mktemp("sse"), dsn, SETTINGS, **given) as stand:
        await stand.start("--roles", "doors,upkeep")
        await stand.start("--roles", "doors")
        await stand.start("--roles", "outbound")
        stand.addresses.pop()
        yield stand
    postgres.drop(dsn)


@pytest.mark.req("S4-54")
async def test_a_reader_hears_what_another_replica_claims(fleet: SseStand) -> None:
    first, second = fleet.addresses
    reader = await fleet.read("ada", at=first)
    told = await fleet.tell("ada", at=second, payload={"n": 1})
    await reader.number(1)
    row = await fleet.until_row(told, status="pushed")
    assert row["retry_count"] == 0


@pytest.mark.req("S4-50", "S4-54")
async def test_two_windows_at_two_replicas_hear_the_same(fleet: SseStand) -> None:
    readers = [await fleet.read("bob", at=address) for address in fleet.addresses]
    for number in range(20):
        await fleet.tell("bob", payload={"n": number})
    for reader in readers:
        await reader.number(20)
    assert readers[0].told == readers[1].told
    assert [int(frame.id or 0) for frame in readers[0].told] == list(range(1, 21))


@pytest.mark.req("S4-28", "S4-54")
async def test_who_comes_to_any_replica_finds_what_waited(fleet: SseStand) -> None:
    told = await fleet.tell("cleo", payload={"n": 1})
    await fleet.until_row(told, status="not_pushed", last_error="not connected")
    reader = await fleet.read("cleo", at=fleet.addresses[1])
    await reader.number(1)
    assert (await fleet.until_row(told, status="pushed"))["retry_count"] == 0


@pytest.mark.req("S4-48", "S4-54")
async def test_a_reader_resumes_at_another_replica(fleet: SseStand) -> None:
    first, second = fleet.addresses
    reader = await fleet.read("dora", at=first)
    await fleet.tell("dora", payload={"n": 1})
    await reader.number(1)
    await reader.leave()
    await fleet.tell("dora", payload={"n": 2})
    again = await fleet.read("dora", at=second, headers={"Last-Event-ID": reader.last_id})
    # What was held for her is woken by her coming: only then does the order of two pickers say something.
    await again.number(1)
    await fleet.tell("dora", payload={"n": 3})
    await again.number(2)
    assert again.payloads == [{"n": 2}, {"n": 3}]


@pytest.mark.req("S4-49", "S4-15")
async def test_numbers_grow_without_a_gap_from_every_replica(fleet: SseStand) -> None:
    await fleet.start("--roles", "outbound")
    fleet.addresses.pop()
    people = [f"many-{number}" for number in range(5)]
    readers = {user: [await fleet.read(user, at=address) for address in fleet.addresses] for user in people}
    events = [(user, number) for number in range(20) for user in people]
    await asyncio.gather(*(fleet.tell(user, payload={"n": number}) for user, number in events))
    for user in people:
        for reader in readers[user]:
            await reader.number(20)
            numbers = [int(frame.id or 0) for frame in reader.told]
            assert numbers == sorted(set(numbers))
            assert sorted(payload["n"] for payload in reader.payloads) == list(range(20))
        assert [frame.id for frame in readers[user][0].told] == [frame.id for frame in readers[user][1].told]


@pytest.mark.req("S4-68")
async def test_a_replica_that_dies_takes_nobodys_notifications_along(
    tmp_path: Path, postgres: Postgres, redis_server: Redis
) -> None:
    dsn = postgres.database()
    async with SseStand(tmp_path, dsn, SETTINGS, REDIS_URL=redis_server.url(4)) as stand:
        dying = await stand.start()
        reader = await stand.read("ada")
        await stand.start()
        await stand.tell("ada", payload={"n": 0})
        await reader.number(1)
        dying.kill()
        told = [await stand.tell("ada", payload={"n": number}) for number in range(1, 4)]
        again = await stand.read("ada", headers={"Last-Event-ID": reader.last_id})
        await again.number(3)
        assert sorted(payload["n"] for payload in again.payloads) == [1, 2, 3]
        for each in told:
            await stand.until_row(each, status="pushed")
    postgres.drop(dsn)


async def test_control_without_the_relay_nobody_hears(tmp_path: Path, postgres: Postgres) -> None:
    dsn = postgres.database()
    settings = f"{SETTINGS}\n[providers.sse]\nwritten_seconds = 0.3\n"
    async with SseStand(tmp_path, dsn, settings) as stand:
        await stand.start("--roles", "doors")
        reader = await stand.read("ada")
        await stand.start("--roles", "outbound", mutant="no_relay")
        told = await stand.tell("ada", at=stand.addresses[0])
        await stand.until_row(told, status="not_pushed", last_error="no replica confirmed the delivery")
        assert reader.told == []
    postgres.drop(dsn)


async def test_streams_of_several_processes_need_postgresql(tmp_path: Path) -> None:
    settings = load("sse", environ={"DATABASE_URL": f"sqlite:///{tmp_path / 'sse.db'}"})
    process = Process(settings, {"sse": ("sse",)}, SystemClock(), lambda _event: None, "owner")
    async with AsyncExitStack() as stack:
        ledger = await open_ledger(settings)
        stack.push_async_callback(ledger.aclose)
        assert open_live(process, ledger, stack) is not None
        with pytest.raises(ConfigurationError, match="PostgreSQL"):
            open_live(msgspec.structs.replace(process, share_port=True), ledger, stack)
