"""Copying history from both engines to a real ClickHouse: complete, once, and without delaying deliveries."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carillon.domain.errors import ArchiveUnavailable
from carillon.domain.events import Event, HistoryKept, Trouble
from carillon.domain.history import Archive, EndedRoute, HistoryLedger, Mark
from carillon.ledger.opening import Ledger
from carillon.system import SystemClock
from carillon.upkeep.history.copier import ArchiveAddress, ClickHouse, History, HistoryRules
from tests.contract.test_ledger_history import ended, settled_later
from tests.support.clickhouse import ClickHouse as Server
from tests.support.clickhouse import clickhouse_fixture, ending, place_fixture
from tests.support.ledger_builders import bury
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.slow

engine = engine_fixture()
ledger = ledger_fixture()
server = clickhouse_fixture()
place = place_fixture()

COUNT = "SELECT count() AS n FROM notification_history FINAL"


def history(ledger: HistoryLedger, archive: Archive, events: list[Event], **rules: Any) -> History:
    given = HistoryRules(**{"lag_seconds": 0.0, "poll_seconds": 0.05} | rules)
    return History(ledger, archive, owner="me", clock=SystemClock(), observer=events.append, rules=given)


@asynccontextmanager
async def running(history: History) -> AsyncIterator[None]:
    task = asyncio.create_task(history.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Forgetful:
    """An archive that keeps a batch and then says that it did not, as if the connection broke."""

    def __init__(self, archive: Archive, times: int) -> None:
        self._archive = archive
        self.times = times
        self.forget_notifications = archive.forget_notifications

    async def add(self, endings: Sequence[EndedRoute]) -> None:
        await self._archive.add(endings)
        if self.times:
            self.times -= 1
            raise ArchiveUnavailable("the answer got lost")


async def copied_once(ledger: Ledger, archive: Archive, place: Server) -> None:
    names = {await ended(ledger) for _ in range(20)} | {await ended(ledger, how=bury)}
    events: list[Event] = []

    async def done() -> bool:
        return sum(event.endings for event in events if isinstance(event, HistoryKept)) >= len(names)

    async with running(history(ledger, archive, events, batch=4)):
        await until(done, timeout=60, what="all endings kept")
    rows = await asyncio.to_thread(place.rows, "SELECT * FROM notification_history FINAL")
    assert sorted(row["notification_id"] for row in rows) == sorted(names)
    assert {row["status"] for row in rows} == {"published", "dead_letter"}


@pytest.mark.req("S4-12")
async def test_everything_is_there_once_although_answers_got_lost(ledger: Ledger, place: Server) -> None:
    await copied_once(ledger, Forgetful(ClickHouse(place.url, timeout_seconds=60), 4), place)


class Deaf:
    """An archive that hears nothing the first time."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._asked = 0
        self.forget_notifications = archive.forget_notifications

    async def add(self, endings: Sequence[EndedRoute]) -> None:
        self._asked += 1
        if self._asked == 1:
            raise ArchiveUnavailable("nobody is there")
        await self._archive.add(endings)


class Hasty:
    """A ledger that is told how far history has come before the archive has it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.take_history = ledger.take_history
        self.still_there = ledger.still_there
        self.advance_history = ledger.advance_history
        self.rewind_history = ledger.rewind_history

    async def endings(self, after: Mark, until_us: int, limit: int) -> list[EndedRoute]:
        found = await self._ledger.endings(after, until_us, limit)
        if found:
            await self._ledger.advance_history("me", found[-1].mark)
        return found


@pytest.mark.parametrize("hasty", [False, True])
async def test_noted_before_it_is_kept_is_lost(ledger: Ledger, place: Server, *, hasty: bool) -> None:
    await ended(ledger)
    await settled_later(ledger)
    keeper = history(Hasty(ledger) if hasty else ledger, Deaf(ClickHouse(place.url, timeout_seconds=60)), [])
    with pytest.raises(ArchiveUnavailable):
        await keeper.keep()
    later = await ended(ledger)
    await settled_later(ledger)
    await keeper.keep()
    rows = await asyncio.to_thread(place.rows, "SELECT notification_id FROM notification_history FINAL")
    assert later in {row["notification_id"] for row in rows}
    assert len(rows) == (1 if hasty else 2)


async def test_nobody_answers_and_then_somebody_does(ledger: Ledger, place: Server) -> None:
    await ended(ledger)
    events: list[Event] = []
    archive = ClickHouse(f"http://127.0.0.1:{free_port()}")
    async with running(history(ledger, archive, events)):

        async def in_trouble() -> bool:
            return len([event for event in events if isinstance(event, Trouble)]) >= 2

        await until(in_trouble, timeout=40, what="trouble told twice")
        archive._place = ArchiveAddress.parse(place.url)  # noqa: SLF001 - the server comes up at last

        async def kept() -> bool:
            return any(isinstance(event, HistoryKept) for event in events)

        await until(kept, timeout=40, what="kept after all")
    assert (await asyncio.to_thread(place.rows, COUNT))[0]["n"] == 1


async def test_an_archive_that_hangs_holds_up_nobody(ledger: Ledger, place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=0.5)
    place.pause()
    try:
        with pytest.raises(ArchiveUnavailable, match=r"did not answer within 0\.5 s"):
            await archive.add([ending()])
        with pytest.raises(ArchiveUnavailable, match="last call"):
            await archive.add([ending()])
        # The ledger is as quick as ever.
        await ended(ledger)
    finally:
        place.resume()
    patient = ClickHouse(place.url, timeout_seconds=60)
    await patient.add([ending()])
    assert (await asyncio.to_thread(place.rows, COUNT))[0]["n"] == 1


async def test_two_processes_copy_once_between_them(engine: Engine, place: Server) -> None:
    async with engine.ledger() as one, engine.ledger() as other:
        names = {await ended(one) for _ in range(12)}
        await settled_later(one)
        await engine.grow_old("history_cursor", "held_until", 61)
        events: list[Event] = []
        archive = ClickHouse(place.url, timeout_seconds=60)
        rules = HistoryRules(lag_seconds=0.0, batch=5)
        mine, yours = (
            History(each, archive, owner=name, clock=SystemClock(), observer=events.append, rules=rules)
            for each, name in ((one, "a"), (other, "b"))
        )
        assert await mine.keep()
        assert not await yours.keep()
        await engine.grow_old("history_cursor", "held_until", 61)
        assert await yours.keep()
        assert not await mine.keep()
        assert not await yours.keep()
    rows = await asyncio.to_thread(place.rows, "SELECT notification_id FROM notification_history")
    assert sorted(row["notification_id"] for row in rows) == sorted(names)
