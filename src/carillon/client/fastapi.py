"""One client for a FastAPI application, opened and closed with it.

app = FastAPI(lifespan=carillon_lifespan("http://127.0.0.1:8080"))

@app.post("/orders")
async def order(carillon: Carillon) -> ...:
    await carillon.send("order.confirmed", user_id="u-1", data={...})
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from carillon.client.clients import AsyncClient


def carillon_lifespan(url: str, **options: Any) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:  # noqa: ANN401 - AsyncClient's
    """The `lifespan` of a FastAPI application; `options` are those of AsyncClient."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient(url, **options) as client:
            app.state.carillon = client
            yield

    return lifespan


def _client(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.carillon
    return client


Carillon = Annotated[AsyncClient, Depends(_client)]
"""The type of a parameter that gets the application's client."""
