"""The doors that read from brokers, where the settings name any."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from carillon.compose import kafka_door, rabbitmq_door
from carillon.compose.process import Process
from carillon.compose.surface import Opened
from carillon.compose.telemetry import Telemetry
from carillon.ending import ended

Supervise = Callable[[str, Callable[[], Awaitable[None]]], Coroutine[Any, Any, None]]


class Door(Protocol):
    """Reads until it is stopped."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Consuming:
    """The doors that are open."""

    def __init__(self, doors: dict[str, Door], supervise: Supervise) -> None:
        self._doors = list(doors.values())
        self._reading = [asyncio.create_task(supervise(name, door.run)) for name, door in doors.items()]

    async def stop(self, seconds: float) -> None:
        """Take nothing more; what is being accepted is acknowledged if it takes no longer than this."""
        if not self._reading:
            return
        for door in self._doors:
            door.stop()
        await asyncio.wait(self._reading, timeout=seconds)
        await ended(*self._reading)


def start(process: Process, opened: Opened, supervise: Supervise, telemetry: Telemetry, *, wanted: bool) -> Consuming:
    """Start to read what is configured; nothing where the doors are another process's."""
    doors: dict[str, Door] = {}
    queue, topic = (rabbitmq_door.door(process, opened), kafka_door.door(process, opened)) if wanted else (None, None)
    if queue is not None:
        doors["rabbitmq_door"] = queue
    if topic is not None:
        doors["kafka_door"] = topic
        telemetry.metrics.watch_stream(topic.oldest_unprocessed_age_ms, asyncio.get_running_loop())
    return Consuming(doors, supervise)
