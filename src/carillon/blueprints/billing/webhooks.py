"""Signed calls that tell the subscription service what came of a payment."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from carillon.domain.canonical import canonical
from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer
from carillon.domain.queue_events import WebhookCalled
from carillon.ending import ended

PATH = "/v1/webhooks/payment"
_MOST_AT_ONCE = 64
_HEADER = re.compile(r"[\x21-\x7e]{1,200}")
_CREATED, _OK = 201, range(200, 300)


class Response(msgspec.Struct, frozen=True):
    """What a neighbour answered: a status, or None and why there was none."""

    status: int | None
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.status in _OK

    @property
    def created(self) -> bool:
        return self.status == _CREATED

    @property
    def error(self) -> str:
        return self.said if self.status is None else f"HTTP {self.status} {self.said}".strip()


Post = Callable[[str, Mapping[str, str], bytes, float], Awaitable[Response]]
"""URL, headers, body, seconds."""
Sign = Callable[[int, bytes], str]
"""The signature over a timestamp and exactly these bytes."""
Where = Callable[[], str]


class Webhooks:
    """One call each time it is asked: whoever asks decides about asking again."""

    def __init__(
        self, post: Post, sign: Sign, where: Where, *, clock: Clock, observer: Observer, user_agent: str
    ) -> None:
        self._post = post
        self._sign = sign
        self._where = where
        self._clock = clock
        self._observe = observer
        self._user_agent = user_agent
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, payload: Mapping[str, Any], seconds: float, *, immediate: bool = False) -> Response:
        # Written once: what is signed are the bytes that are sent, not another text of the same content.
        body = canonical(payload).encode()
        timestamp = int(self._clock.wall())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": self._user_agent,
            "X-Webhook-Timestamp": str(timestamp),
            "X-Webhook-Signature": self._sign(timestamp, body),
        }
        event_id = payload.get("event_id")
        if isinstance(event_id, str) and _HEADER.fullmatch(event_id):
            headers["X-Webhook-Event-ID"] = event_id
        began = self._clock.monotonic()
        answer = await self._post(f"{self._where()}{PATH}", headers, body, seconds)
        self._observe(
            WebhookCalled(
                event_id=event_id if isinstance(event_id, str) else None,
                immediate=immediate,
                duration_ms=(self._clock.monotonic() - began) * 1000,
                status=answer.status,
                error=None if answer.ok else answer.error,
            )
        )
        return answer

    def send_soon(self, payload: Mapping[str, Any], seconds: float) -> None:
        """Once, beside everything else; the queued message makes sure, and tells it alone while too many are at it."""
        if len(self._under_way) >= _MOST_AT_ONCE:
            return
        task = asyncio.create_task(self._try(payload, seconds))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def drain(self, seconds: float) -> None:
        """Let those under way finish, for so long; who was not reached hears it by the queued message."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        await ended(*self._under_way)

    async def _try(self, payload: Mapping[str, Any], seconds: float) -> None:
        try:
            answer = await self.send(payload, seconds, immediate=True)
        except Exception as error:  # noqa: BLE001 - nobody waits for this call
            answer = Response(None, f"{type(error).__name__}: {error}")
        if not answer.ok:
            self._observe(Trouble(where="immediate_webhook", error=answer.error))
