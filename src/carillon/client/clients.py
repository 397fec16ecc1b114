"""The synchronous and the asyncio client; both make the same calls."""

import asyncio
import ssl
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from carillon.client import wire
from carillon.client.answers import Accepted, Notification
from carillon.client.calls import AsyncClientCalls, ClientCalls
from carillon.client.exchange import HttpExchange, Patience
from carillon.client.wire import ApiRequest, Item

Answered = TypeVar("Answered")
POLL_SECONDS = 0.2


class Client(ClientCalls):
    """Safe to share between threads.

    `token` is a JWT or an API key. Everything is repeated while that is safe: a send carries an idempotency key, made
    up here where the caller has none, and is accepted once however often it had to be asked.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        patience: Patience | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            # At the first call the HTTP library would say so in words that show the token.
            raise ValueError("token: it must be one line of printable ASCII characters without spaces")
        headers = {"User-Agent": "carillon-client"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._exchange = HttpExchange(url, headers=headers, patience=patience or Patience(), context=context)

    def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """Send one notification; `about` holds other fields of Item: channel, recipient, user_id, data and so on."""
        return self.send_item(Item(template_key=template_key, **about))

    def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        return self.run(wire.send(item, _key(item)))

    def get(self, notification_id: str, *, attempts: bool = False) -> Notification | None:
        """The notification as it stands now, with its attempts on request; None when there is none."""
        return self.run(wire.get(notification_id, attempts=attempts))

    def wait(self, notification_id: str, timeout_seconds: float = 30.0) -> Notification:
        """Wait until the notification is finished; raises TimeoutError after `timeout_seconds`."""
        ends_at = time.monotonic() + timeout_seconds
        while True:
            found = self.get(notification_id)
            if found is not None and found.finished:
                return found
            if time.monotonic() + POLL_SECONDS > ends_at:
                raise TimeoutError(f"{notification_id} is not finished after {timeout_seconds} s")
            time.sleep(POLL_SECONDS)

    def run(self, asked: ApiRequest[Answered]) -> Answered:
        return self._exchange.run(asked)

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(AsyncClientCalls):
    """The client for asyncio; at most `threads` calls run at once, each in a thread of the client."""

    def __init__(self, url: str = "http://127.0.0.1:8080", *, threads: int = 16, **options: Any) -> None:  # noqa: ANN401 - Client's
        self._client = Client(url, **options)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="carillon-client")

    async def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """Send one notification; `about` holds the other fields of Item."""
        return await self.send_item(Item(template_key=template_key, **about))

    async def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        return await self.run(wire.send(item, _key(item)))

    async def get(self, notification_id: str, *, attempts: bool = False) -> Notification | None:
        """The notification as it stands now, with its attempts on request; None when there is none."""
        return await self.run(wire.get(notification_id, attempts=attempts))

    async def wait(self, notification_id: str, timeout_seconds: float = 30.0) -> Notification:
        """Wait until the notification is finished; raises TimeoutError after `timeout_seconds`."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                found = await self.get(notification_id)
                if found is not None and found.finished:
                    return found
                await asyncio.sleep(POLL_SECONDS)

    async def run(self, asked: ApiRequest[Answered]) -> Answered:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._client.run, asked)

    async def aclose(self) -> None:
        """Close the connections and end the threads."""
        self._threads.shutdown(wait=False)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _key(item: Item) -> str:
    return item.idempotency_key or str(uuid.uuid4())
