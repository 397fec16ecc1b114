"""Somebody comes back to a live stream: everything that waited arrives in the order of its acceptance, at once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from carillon.ledger.opening import open_ledger
from tests.support import tables
from tests.support.sse_stand import SseStand
from tests.support.stream_builders import told
from tests.support.waiting import until

PEOPLE = ("ann", "bob")
WAITING = 300
"""Several claims: the blueprint claims a hundred at once."""
SETTINGS = 'offline_policy = "hold"\nlease_duration = "3s"\nlease_cleanup_interval = "500ms"\n'
THROTTLED = "SELECT count(*) AS n FROM routes WHERE claim_token IS NULL AND last_error_classification = 'throttled'"
WITHIN = 30.0


async def accept(url: str) -> None:
    """As two partitions of a topic bring them: ids that say nothing about the order of acceptance."""
    ledger = await open_ledger(url, allow_unsafe=True)
    try:
        for first in range(0, WAITING, 20):
            numbers = range(first, first + 20)
            batch = [
                told(person, notification_id=str(UUID(int=10**9 - 2 * n + which)), payload_json=f'{{"n":{n}}}')
                for n in numbers
                for which, person in enumerate(PEOPLE)
            ]
            await ledger.enrol(batch)
    finally:
        await ledger.aclose()


async def held(url: str) -> None:
    async def all_held() -> bool:
        return await tables.number(url, THROTTLED) == len(PEOPLE) * WAITING

    await until(all_held, timeout=60, what="everything waits for its person")


def order(payloads: Sequence[Any]) -> list[int]:
    return [payload["n"] for payload in payloads]


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sse.db'}"
    return str(request.getfixturevalue("postgres_dsn"))


@pytest.mark.req("S4-17", "S4-28", "S4-48", "S4-49", "S4-50")
async def test_everything_that_waited_arrives_in_order_on_every_tab(url: str, tmp_path: Path) -> None:
    async with SseStand(tmp_path, url, SETTINGS) as stand:
        await stand.start()
        await accept(url)
        await held(url)
        tabs = [await stand.read("ann"), await stand.read("ann"), await stand.read("bob")]
        for tab in tabs:
            await tab.until(lambda _, tab=tab: len(tab.told) >= WAITING, "the whole backlog", WITHIN)  # type: ignore[misc]
            assert order(tab.payloads) == list(range(WAITING))
            assert [int(frame.id or 0) for frame in tab.told] == list(range(1, WAITING + 1))
            assert not tab.ended.is_set(), "a burst is no slow reader"
        assert (await stand.ask("GET", "/notifications/ann")).json["count"] == 100, "the inbox shows a page"


async def test_control_an_order_by_id_contradicts_the_claim(postgres_dsn: str, tmp_path: Path) -> None:
    async with SseStand(tmp_path, postgres_dsn, SETTINGS) as stand:
        await stand.start(mutant="turns_by_id")
        await accept(postgres_dsn)
        await held(postgres_dsn)
        reader = await stand.read("ann")
        with pytest.raises(TimeoutError):
            await reader.until(lambda _: order(reader.payloads)[:1] == [0], "the first to be accepted", 5.0)


async def test_two_replicas_give_one_order(postgres_dsn: str, tmp_path: Path) -> None:
    async with SseStand(tmp_path, postgres_dsn, SETTINGS) as stand:
        for _ in range(2):
            await stand.start()
        await accept(postgres_dsn)
        await held(postgres_dsn)
        readers = [await stand.read("ann", at=stand.addresses[0]), await stand.read("ann", at=stand.addresses[1])]
        for reader in readers:
            await reader.until(lambda _, reader=reader: len(reader.told) >= WAITING, "all", 60.0)  # type: ignore[misc]
            assert order(reader.payloads) == list(range(WAITING))


@pytest.mark.req("S4-64", "S4-68")
async def test_a_replica_that_dies_with_claims_costs_its_leases_and_no_order(postgres_dsn: str, tmp_path: Path) -> None:
    async with SseStand(tmp_path, postgres_dsn, SETTINGS) as stand:
        doomed = await stand.start()
        await stand.start()
        await accept(postgres_dsn)
        await held(postgres_dsn)
        reader = await stand.read("ann", at=stand.addresses[1])
        await reader.number(1)
        await asyncio.to_thread(doomed.kill)
        await reader.until(lambda _: len(reader.told) >= WAITING, "the whole backlog", 60.0)
        assert order(reader.payloads) == list(range(WAITING))
