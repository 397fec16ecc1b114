"""Presence: which replica serves which person; replicas that stop renewing are removed."""

import asyncio

import pytest

from carillon.ledger.opening import Ledger
from carillon.ledger.streams import FORGOTTEN_SECONDS
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()


@pytest.mark.req("S4-54")
async def test_people_are_found_where_they_are(ledger: Ledger) -> None:
    assert not await ledger.renew("a", 30.0), "nobody knew it yet"
    await ledger.renew("b", 30.0)
    await ledger.arrive("a", ["ann", "bob", "ann"])
    await ledger.arrive("b", ["ann"])
    await ledger.arrive("b", ["ann"])
    assert await ledger.where(["ann", "bob", "cid"]) == {"ann": frozenset("ab"), "bob": frozenset("a")}
    await ledger.leave("a", ["ann", "nobody"])
    assert await ledger.where(["ann", "bob"]) == {"ann": frozenset("b"), "bob": frozenset("a")}
    assert await ledger.where([]) == {}


@pytest.mark.req("S4-54")
async def test_a_replica_that_says_nothing_is_connected_to_nobody(engine: Engine, ledger: Ledger) -> None:
    await ledger.arrive("a", ["ann"])
    assert await ledger.where(["ann"]) == {}, "it never said that it lives"
    await ledger.renew("a", 30.0)
    assert await ledger.where(["ann"]) == {"ann": frozenset("a")}
    await engine.grow_old("replicas", "alive_until", 60)
    assert await ledger.where(["ann"]) == {}
    assert await ledger.renew("a", 30.0), "it was late, and is remembered"
    assert await ledger.where(["ann"]) == {"ann": frozenset("a")}


@pytest.mark.req("S4-54")
async def test_the_dead_are_forgotten_and_told_so_when_they_come_back(engine: Engine, ledger: Ledger) -> None:
    await ledger.renew("a", 30.0)
    await ledger.arrive("a", ["ann"])
    await engine.grow_old("replicas", "alive_until", round(FORGOTTEN_SECONDS) + 60)
    await ledger.renew("b", 30.0)
    assert await engine.execute("SELECT * FROM presence") == []
    assert not await ledger.renew("a", 30.0), "its people must arrive again"


async def test_renewals_at_once_do_not_disturb_each_other(ledger: Ledger) -> None:
    await asyncio.gather(*(ledger.renew(f"r{number % 4}", 30.0) for number in range(20)))
    await ledger.arrive("r0", ["ann"])
    assert await ledger.where(["ann"]) == {"ann": frozenset({"r0"})}
