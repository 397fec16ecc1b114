"""Attendance reports readers to the ledger in groups, so that deliveries do not wait behind thousands of names."""

import asyncio
from collections.abc import Collection
from typing import cast

from carillon.domain.events import Event
from carillon.domain.streams import Seat, StreamLedger, Tail
from carillon.live.attendance import AT_ONCE, Attendance
from carillon.live.hub import Hub
from carillon.system import SystemClock
from tests.support.waiting import until


class Alarm:
    """As much of a StreamLedger as wakes what waits."""

    def __init__(self) -> None:
        self.woken: list[Collection[str]] = []

    async def wake(self, user_ids: Collection[str]) -> int:
        self.woken.append(user_ids)
        return 0


async def test_a_crowd_that_comes_together_is_woken_in_small_numbers() -> None:
    alarm = Alarm()
    troubles: list[Event] = []
    attendance = Attendance(
        ledger=cast("StreamLedger", alarm),
        presence=None,
        replica="here",
        seconds=600,
        clock=SystemClock(),
        observer=troubles.append,
    )
    hub = Hub(max_seats=10_000, max_per_key=1, on_change=attendance.changed)
    attendance.watch(hub)
    people = {f"user-{number}" for number in range(3 * AT_ONCE + 1)}
    for person in people:
        hub.join(Seat(person, person, Tail(1), lambda: None))
    running = asyncio.create_task(attendance.run())

    async def everybody() -> bool:
        return {person for some in alarm.woken for person in some} == people

    await until(everybody, timeout=20, what="everybody woken")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert max(len(some) for some in alarm.woken) <= AT_ONCE
    assert not troubles
