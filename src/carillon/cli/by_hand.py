"""What commands share that look into the ledger or change something by hand."""

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
from carillon.config.settings import Settings

Answer = TypeVar("Answer")


def is_there(url: str) -> bool:
    """Whether a ledger can be asked at all: opening SQLite would make the file."""
    path = url.removeprefix("sqlite:///")
    return path == url or Path(path).exists()


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Ledger]:
    """The ledger for the time of one command, its tables up to date."""
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


def who() -> str:
    """Whoever types, for the audit trail."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container the user may have a number only.
        return str(os.getuid())


def why(row: dict[str, Any]) -> str:
    """The cause of a dead letter and what was said of it; words that begin with their cause say it once."""
    cause, said = str(row["failure_classification"]), str(row["failure_message"])
    return said if said.startswith(f"{cause}: ") else f"{cause}: {said}"


def confirmed(number: int, question: str, *, yes: bool) -> bool:
    """Whether so many are really meant."""
    # A script is not asked: whoever wrote it can count with --dry-run first.
    return yes or number == 1 or not sys.stdin.isatty() or typer.confirm(question)
