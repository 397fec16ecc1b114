"""The send endpoint in Starlette or Litestar, on granian or uvicorn, over the same intake as Carillon's own."""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import embed

from bench.runners.door import opened
from carillon.domain.errors import BadIntent
from carillon.domain.ports import Acceptor
from carillon.doors.http.wire import Context, SendAnswer, SendBody, reach_named, to_intent
from carillon.system import new_id
from carillon.upkeep.logs import lines as logs
from tests.support.ports import free_port

PATH = "/api/v1/notifications/send"
BACKLOG = 1024
LOOK_SECONDS = 0.01


def _accepting(acceptor: Acceptor) -> Callable[[SendBody, str | None], Awaitable[SendAnswer]]:
    """The endpoint's own work: the same for every framework."""

    async def accept(body: SendBody, key: str | None) -> SendAnswer:
        context = Context(
            reach=reach_named(body), correlation_id=new_id(), idempotency_key=key, trace_id=None, accept_language=None
        )
        accepted = await acceptor.accept(to_intent(body, context))
        return SendAnswer(notification_id=accepted.notification_id, queue_name=accepted.queue_name)

    return accept


def starlette(acceptor: Acceptor) -> Any:  # noqa: ANN401 - an ASGI application
    from starlette.applications import Starlette  # noqa: PLC0415 - found only after the path is set
    from starlette.requests import Request  # noqa: PLC0415 - same
    from starlette.responses import Response  # noqa: PLC0415 - same
    from starlette.routing import Route  # noqa: PLC0415 - same

    accept = _accepting(acceptor)

    async def send(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body(), type=SendBody)
            answer = await accept(body, request.headers.get("idempotency-key"))
        except (msgspec.ValidationError, BadIntent) as error:
            return Response(msgspec.json.encode({"detail": str(error)}), 400, media_type="application/problem+json")
        place = {"location": f"{PATH}/{answer.notification_id}"}
        return Response(msgspec.json.encode(answer), 202, place, "application/json")

    return Starlette(routes=[Route(PATH, send, methods=["POST"])])


def litestar(acceptor: Acceptor) -> Any:  # noqa: ANN401 - an ASGI application
    from litestar import Litestar, Request, Response, post  # noqa: PLC0415 - found only after the path is set
    from litestar.exceptions import ClientException  # noqa: PLC0415 - same

    accept = _accepting(acceptor)

    async def send(data: SendBody, request: Request[Any, Any, Any]) -> Response[SendAnswer]:
        try:
            answer = await accept(data, request.headers.get("idempotency-key"))
        except BadIntent as error:
            raise ClientException(str(error)) from None
        return Response(answer, status_code=202, headers={"location": f"{PATH}/{answer.notification_id}"})

    return Litestar([post(PATH, status_code=202)(send)], openapi_config=None, logging_config=None)


async def on_granian(application: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - see above
    port = free_port()
    server: Any = embed.Server(
        application,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        log_level=LogLevels.error,
    )
    serving = asyncio.create_task(server.serve())
    while not await _listens(port):  # noqa: ASYNC110 - granian has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    logs.ready([f"http://127.0.0.1:{port}"])
    await stop.wait()
    server.stop()
    await asyncio.wait({serving}, timeout=1)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True


async def on_uvicorn(application: Any, stop: asyncio.Event) -> None:  # noqa: ANN401 - see above
    import uvicorn  # noqa: PLC0415 - found only after the path is set

    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", log_level="error", access_log=False, backlog=BACKLOG
    )
    server = uvicorn.Server(config)
    # Uvicorn takes the signals over; the bench ends it as it ends the others.
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    logs.ready([f"http://127.0.0.1:{listener.getsockname()[1]}"])
    await stop.wait()
    server.should_exit = True
    await asyncio.wait({serving}, timeout=1)


async def main(framework: str, server: str, mode: str, dsn: str) -> None:
    ledger, intake = await opened(mode, dsn)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    application = {"starlette": starlette, "litestar": litestar}[framework](intake)
    await {"granian": on_granian, "uvicorn": on_uvicorn}[server](application, stop)
    await ledger.aclose()


if __name__ == "__main__":
    # At the end of the path: Carillon's own libraries stay the ones that count.
    sys.path.append(sys.argv[5])
    uvloop.run(main(*sys.argv[1:5]))
