"""Shared by the commands that read or change the ledger directly."""

import asyncio
import getpass
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer

from carillon.compose import Ledger, open_ledger
from carillon.config.reading import Needs, load
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError
from carillon.ledger.opening import SQLITE, file_of

Answer = TypeVar("Answer")


def is_there(url: str) -> bool:
    """Whether the ledger exists; opening a missing SQLite file would create it."""
    return not url.startswith(SQLITE) or Path(file_of(url)).exists()


class NoLedger(CarillonError):
    """There is no ledger to look into."""


def settings_of_ledger(blueprint: str | None, config: Path | None, needs: Needs = "ledger") -> Settings:
    """The settings of a command that works on the ledger; raises NoLedger where nobody has made it yet."""
    return of_existing(load(blueprint, config, needs=needs))


def of_existing(settings: Settings) -> Settings:
    """The settings themselves; raises NoLedger where nobody has made their ledger yet."""
    if not is_there(settings.ledger.url):
        raise NoLedger(f"there is no ledger at {file_of(settings.ledger.url)} yet; `carillon serve` creates it")
    return settings


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Ledger]:
    """Open the ledger for one command and migrate its tables."""
    ledger = await open_ledger(settings)
    try:
        await ledger.migrate()
        yield ledger
    finally:
        await ledger.aclose()


def with_ledger(settings: Settings, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    """The same for commands outside an event loop."""

    async def run() -> Answer:
        async with opened(settings) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def read_ledger(settings: Settings, work: Callable[[Ledger], Awaitable[Answer]]) -> Answer | None:
    """The same for commands that only read: they do not create a ledger that is not there yet, and find nothing."""
    return with_ledger(settings, work) if is_there(settings.ledger.url) else None


def who() -> str:
    """The user who runs the command, for the audit trail."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container the user may have a number only.
        return str(os.getuid())


def why(row: dict[str, Any]) -> str:
    """Cause and message of a dead letter; a message that starts with the cause is printed alone."""
    cause, said = str(row["failure_classification"]), str(row["failure_message"])
    return said if said.startswith(f"{cause}: ") else f"{cause}: {said}"


def confirmed(number: int, question: str, *, yes: bool) -> bool:
    """Ask the operator before a change of more than one thing."""
    # A script is not asked: its author can count with --dry-run first.
    return yes or number == 1 or not sys.stdin.isatty() or typer.confirm(question)
