"""What strangers can do with /health, which everybody may ask for: one look at the servers at a time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from carillon.upkeep import health
from carillon.upkeep.health import Checks, Readiness
from carillon.web import Caller, Endpoint, Reply


class Server:
    """A server that answers checks when it is told to, and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.answers = asyncio.Event()

    async def check(self) -> dict[str, Any]:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answers.wait()
        finally:
            self.at_once -= 1
        return {}


class Stranger:
    """A request of nobody."""

    caller = Caller()


EVERY: dict[str, Callable[[Checks], Endpoint]] = {
    "usual": lambda checks: health.endpoints(Readiness(), checks)[2],
    "sse": lambda checks: health.of_streams(checks, lambda: 0),
    "push-worker": health.in_brief,
}


async def ask(endpoint: Endpoint) -> Reply:
    return await endpoint.call(cast("Any", Stranger()))


@pytest.mark.parametrize("name", EVERY)
async def test_many_who_ask_at_once_share_one_look(name: str) -> None:
    server = Server()
    endpoint = EVERY[name](Checks({"database": server.check}, {}))
    asking = [asyncio.create_task(ask(endpoint)) for _ in range(100)]
    await asyncio.sleep(0.01)
    asking[0].cancel()
    await asyncio.sleep(0.01)
    server.answers.set()
    replies = await asyncio.gather(*asking[1:])
    assert {reply.status for reply in replies} == {200}, "one who leaves does not end the look of the others"
    assert (server.asked, server.most_at_once) == (1, 1)
    assert (await ask(endpoint)).status == 200
    assert server.asked == 2, "a later caller gets a new look"
