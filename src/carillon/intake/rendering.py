"""Renders messages and makes templates ready; what takes long has a thread of its own and holds up nobody."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar

from carillon.domain.errors import Overloaded
from carillon.domain.notifications import Message, Template
from carillon.intake.jinja.budget import TooHeavy
from carillon.intake.jinja.formats import Person
from carillon.intake.render import OnMissing, render_message

MOST_WAITING = 16
"""Requests that may wait for a thread; the next one is told to come again."""
TURN_SECONDS, PYTHONS_TURN_SECONDS = 0.0005, 0.005
Made = TypeVar("Made")


def _politely(work: Callable[[], Made]) -> Made:
    """Run something in a thread that gives way to the others ten times as often as Python's threads do.

    A request takes turns with the thread at each of its steps: turns of 5 ms made a p99 of 160 ms, these one of 40 ms.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        return work()
    finally:
        # The other of the two threads may have begun meanwhile: its short turns are not what was before.
        sys.setswitchinterval(before if before > TURN_SECONDS else PYTHONS_TURN_SECONDS)


class Thread:
    """One thread: long work waits for each other, and everybody else has the processor between its steps."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = 0

    async def run(self, work: Callable[[], Made]) -> Made:
        """The result of something that may take long; raises Overloaded if too much of it waits already."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded("too many templates that take long are waiting")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(_politely, work))
        finally:
            self._waiting -= 1


@cache
def composing() -> Thread:
    """Where templates are joined and compiled."""
    return Thread("compose")


@cache
def _rendering() -> Thread:
    """Where long messages are rendered: never where templates are made ready, which every message waits for."""
    return Thread("render")


async def rendered(
    template: Template, data: Mapping[str, Any], on_missing: OnMissing = "error", person: Person | None = None
) -> Message:
    """`render_message`; a message that takes more than some milliseconds is rendered again beside all others."""
    try:
        return render_message(template, data, on_missing, person, quick=True)
    except TooHeavy:
        return await _rendering().run(partial(render_message, template, data, on_missing, person))
