"""The synchronous and the asyncio client; both make the same calls."""

import asyncio
import ssl
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from carillon.client import wire
from carillon.client.answers import Accepted, ItemAnswer, Notification, Page
from carillon.client.exchange import HttpExchange, Patience
from carillon.client.wire import LARGEST_BATCH, ApiRequest, Item
from carillon.domain.admin import WaitingCount
from carillon.domain.explain import Explanation

Answered = TypeVar("Answered")
POLL_SECONDS = 0.2


class Client:
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
        headers = {"User-Agent": "carillon-client"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._exchange = HttpExchange(url, headers=headers, patience=patience or Patience(), context=context)

    def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """Send one notification; `about` holds other fields of Item: channel, recipient, user_id, data and so on."""
        return self.send_item(Item(template_key=template_key, **about))

    def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        return self.run(wire.send(item, _key(item)))

    def send_many(self, items: Sequence[Item]) -> list[ItemAnswer]:
        """Send any number of items; one answer for each, in order."""
        return [answer for asked in _batches(items) for answer in _numbered(self.run(asked[1]), asked[0])]

    def get(self, notification_id: str, *, attempts: bool = False) -> Notification | None:
        """The notification as it stands now, with its attempts on request; None when there is none."""
        return self.run(wire.get(notification_id, attempts=attempts))

    def search(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[Notification]:
        """Search by the filters of `GET /api/v1/notifications`: channel, status, user_id, template_key and so on.

        `cursor`, the `next_cursor` of a page, goes on after it, however many there are.
        """
        return self.run(wire.search(filters, page, page_size, cursor))

    def cancel(self, notification_id: str) -> int:
        """Cancel the routes that no worker has claimed; returns their number."""
        return self.run(wire.cancel(notification_id))

    def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Cancel what waits: by `notification_id`, `idempotency_key`, `collapse_key`, or the filters of a search.

        Everything that is given must match. `dry_run` counts first.
        """
        return self.run(wire.waiting("cancel", selected, dry_run=dry_run))

    def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Give what waits another time: `scheduled_for`, `expires_at` or `ttl`; selected as in `cancel_waiting`."""
        return self.run(wire.waiting("change", selected, dry_run=dry_run))

    def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None:  # noqa: ANN401 - fields
        """Change a person's preferences: `categories`, `channels`, `contacts`, `time_zone`, `quiet_hours` and so on."""
        self.run(wire.prefer(user_id, tenant_id, wishes))

    def preference_link(self, user_id: str, tenant_id: str | None = None) -> str:
        """The address of the person's own page, which needs no login: give it to that person only."""
        return self.run(wire.preference_link(user_id, tenant_id))

    def report(
        self, notification_id: str, kind: str, *, channel: str | None = None, route_id: str | None = None
    ) -> str:
        """Report that a person got, read or acknowledged a message; returns `noted`, `repeated` or `waiting`."""
        return self.run(wire.report(notification_id, kind, channel, route_id))

    def explain(self, template_key: str, /, **about: Any) -> Explanation:  # noqa: ANN401 - fields of Item
        """What would happen to the notification, gate by gate; nothing is sent."""
        return self.run(wire.explain(Item(template_key=template_key, **about)))

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
        """Run any request of carillon.client.wire; raises Rejected or Unreachable."""
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


class AsyncClient:
    """The client for asyncio; at most `threads` calls run at once, each in a thread of the client."""

    def __init__(self, url: str = "http://127.0.0.1:8080", *, threads: int = 16, **options: Any) -> None:  # noqa: ANN401 - Client's
        self._client = Client(url, **options)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="carillon-client")

    async def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """Send one notification; `about` holds the other fields of Item."""
        return await self.send_item(Item(template_key=template_key, **about))

    async def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        return await self._run(wire.send(item, _key(item)))

    async def send_many(self, items: Sequence[Item]) -> list[ItemAnswer]:
        """Send any number of items; one answer for each, in order."""
        return [answer for first, asked in _batches(items) for answer in _numbered(await self._run(asked), first)]

    async def get(self, notification_id: str, *, attempts: bool = False) -> Notification | None:
        """The notification as it stands now, with its attempts on request; None when there is none."""
        return await self._run(wire.get(notification_id, attempts=attempts))

    async def search(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[Notification]:
        """Search by the filters of Client.search."""
        return await self._run(wire.search(filters, page, page_size, cursor))

    async def cancel(self, notification_id: str) -> int:
        """Cancel the routes that no worker has claimed; returns their number."""
        return await self._run(wire.cancel(notification_id))

    async def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Cancel what waits: by `notification_id`, `idempotency_key`, `collapse_key`, or the filters of a search.

        Everything that is given must match. `dry_run` counts first.
        """
        return await self._run(wire.waiting("cancel", selected, dry_run=dry_run))

    async def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Give what waits another time: `scheduled_for`, `expires_at` or `ttl`; selected as in `cancel_waiting`."""
        return await self._run(wire.waiting("change", selected, dry_run=dry_run))

    async def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None:  # noqa: ANN401 - fields
        """Change a person's preferences: `categories`, `channels`, `contacts`, `time_zone`, `quiet_hours` and so on."""
        await self._run(wire.prefer(user_id, tenant_id, wishes))

    async def preference_link(self, user_id: str, tenant_id: str | None = None) -> str:
        """The address of the person's own page, which needs no login: give it to that person only."""
        return await self._run(wire.preference_link(user_id, tenant_id))

    async def report(
        self, notification_id: str, kind: str, *, channel: str | None = None, route_id: str | None = None
    ) -> str:
        """Report that a person got, read or acknowledged a message; returns `noted`, `repeated` or `waiting`."""
        return await self._run(wire.report(notification_id, kind, channel, route_id))

    async def explain(self, template_key: str, /, **about: Any) -> Explanation:  # noqa: ANN401 - fields of Item
        """What would happen to the notification, gate by gate; nothing is sent."""
        return await self._run(wire.explain(Item(template_key=template_key, **about)))

    async def wait(self, notification_id: str, timeout_seconds: float = 30.0) -> Notification:
        """Wait until the notification is finished; raises TimeoutError after `timeout_seconds`."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                found = await self.get(notification_id)
                if found is not None and found.finished:
                    return found
                await asyncio.sleep(POLL_SECONDS)

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

    async def _run(self, asked: ApiRequest[Answered]) -> Answered:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._client.run, asked)


def _key(item: Item) -> str:
    return item.idempotency_key or str(uuid.uuid4())


def _batches(items: Sequence[Item]) -> list[tuple[int, ApiRequest[list[ItemAnswer]]]]:
    starts = range(0, len(items), LARGEST_BATCH)
    return [(start, wire.send_many(items[start : start + LARGEST_BATCH], str(uuid.uuid4()))) for start in starts]


def _numbered(answers: list[ItemAnswer], first: int) -> list[ItemAnswer]:
    return [msgspec.structs.replace(answer, index=index) for index, answer in zip(count(first), answers, strict=False)]
