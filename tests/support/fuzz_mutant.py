"""carillon with a planted fault that fuzzing has to find: `python -m tests.support.fuzz_mutant NAME serve …`."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from carillon import cli
from carillon.web import Reply
from carillon.web.application import Application
from tests.support.mutant import vars_of

_reply: Callable[[Any, Any], Awaitable[Reply]] = Application.reply


def answers_500() -> None:
    """A body that cannot be read is the server's fault."""

    async def reply(self: Any, request: Any) -> Reply:
        found = await _reply(self, request)
        return Reply(500, {"code": "INTERNAL_ERROR"}) if found.status in {400, 422} else found

    vars_of(Application, reply=reply)


def keeps_what_it_refuses() -> None:
    """A refusal leaves a row behind."""
    # Two refusals at once would both create the table, and the second one would be an answer of 500 instead.
    planting = asyncio.Lock()

    async def reply(self: Any, request: Any) -> Reply:
        found = await _reply(self, request)
        if found.status in {400, 404, 422}:
            async with planting:
                connection = await asyncpg.connect(os.environ["DATABASE_URL"])
                try:
                    await connection.execute("CREATE TABLE IF NOT EXISTS planted (at timestamptz DEFAULT now())")
                    await connection.execute("INSERT INTO planted DEFAULT VALUES")
                finally:
                    await connection.close()
        return found

    vars_of(Application, reply=reply)


FAULTS: dict[str, Callable[[], None]] = {each.__name__: each for each in (answers_500, keeps_what_it_refuses)}


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    cli.main()
