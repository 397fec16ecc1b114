"""carillon with one guard against strangers switched off: `python -m tests.support.stranger_mutant NAME serve …`."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from carillon import cli
from carillon.web import request as web_request
from carillon.web.application import Application
from carillon.web.http_connection import Connection, Connections
from carillon.web.idle import IdleConnections
from carillon.web.peers import SlowBodies
from tests.support.mutant import vars_of


def no_idle_limit() -> None:
    """A full listener stays full: granian waits, and h11 turns newcomers away."""

    async def never(_self: IdleConnections) -> None:
        await asyncio.Event().wait()

    def full(self: Any, connection: Connection) -> bool:
        if self.stopping or len(self._open) >= self.settings.max_connections:
            return False
        self._open.add(connection)
        return True

    vars_of(IdleConnections, run=never)
    vars_of(Connections, admit=full)


def slot_before_body() -> None:
    """A request counts as in flight while its body is still coming."""
    admitted = Application._admitted  # noqa: SLF001 - the guard itself

    async def counted(self: Any, request: Any) -> Any:
        self._refuse_beyond_bound(self._routes.find(request.scope["method"], request.scope["path"])[0])
        self._in_flight += 1
        try:
            return await admitted(self, request)
        finally:
            self._in_flight -= 1

    vars_of(Application, _admitted=counted)


def no_slow_limit() -> None:
    def always(self: Any, address: str) -> bool:
        self._slow[address] += 1
        return True

    vars_of(SlowBodies, begin=always)


def no_body_limit() -> None:
    async def everything(receive: Any, limit: int) -> bytes:
        del limit
        message = await receive()
        pieces: list[bytes] = [message.get("body", b"")]
        while message.get("more_body"):
            message = await receive()
            pieces.append(message.get("body", b""))
        return b"".join(pieces)

    if "_whole" not in vars(web_request):
        raise RuntimeError("bodies are read elsewhere now; mend the mutant")
    vars(web_request)["_whole"] = everything


def half_closed_is_open() -> None:
    def stay(_self: Connection) -> bool:
        return True

    vars_of(Connection, eof_received=stay)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (no_idle_limit, slot_before_body, no_slow_limit, no_body_limit, half_closed_is_open)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
