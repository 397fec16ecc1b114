"""Renders messages and makes templates ready; what takes long goes its own way and holds up nobody."""

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
from carillon.intake.render_process import RenderProcess

MOST_WAITING = 16
"""Requests that may wait for a thread; the next one is told to come again."""
AT_ONCE = 16
"""So many messages of a template that took long go to the process without a first try, which costs milliseconds."""
_MOST_HEAVY = 1024
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
    """One thread: long work waits for each other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = 0

    async def run_politely(self, work: Callable[[], Made]) -> Made:
        """The same; everybody else has the processor between the steps of the work."""
        return await self.run(partial(_politely, work))

    async def run(self, work: Callable[[], Made]) -> Made:
        """The result of something that may take long; raises Overloaded if too much of it waits already."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded("too many templates that take long are waiting")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1


@cache
def composing() -> Thread:
    """Where templates are joined and compiled."""
    return Thread("compose")


@cache
def _rendering() -> Thread:
    """Who waits for the process of long messages: not where templates are made ready, as every message waits there."""
    return Thread("render")


@cache
def _process() -> RenderProcess:
    return RenderProcess()


class _Heavy:
    """The templates whose messages took long lately: they go to the process at once, without a first try beside all."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def take(self, template: Template) -> bool:
        """Whether this message goes to the process at once."""
        name = _name(template)
        left = self._left.get(name, 0)
        if left == 0:
            return False
        if left == 1:
            # The data decide too: the next message is tried beside all others again.
            del self._left[name]
        else:
            self._left[name] = left - 1
        return True

    def note(self, template: Template) -> None:
        if len(self._left) >= _MOST_HEAVY:
            self._left.clear()
        self._left[_name(template)] = AT_ONCE


def _name(template: Template) -> str:
    made = template.composition
    return "" if made is None else f"{made.text.name}{made.html.name if made.html is not None else ''}"


_HEAVY = _Heavy()


async def rendered(
    template: Template, data: Mapping[str, Any], on_missing: OnMissing = "error", person: Person | None = None
) -> Message:
    """`render_message`; a message that takes more than some milliseconds is rendered apart from all others."""
    if not _HEAVY.take(template):
        try:
            return render_message(template, data, on_missing, person, quick=True)
        except TooHeavy:
            _HEAVY.note(template)
    beside = partial(_politely, partial(render_message, template, data, on_missing, person))
    return await _rendering().run(partial(_process().render, (template, data, on_missing, person), beside))
