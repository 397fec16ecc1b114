"""Claims, dispatches and tools as a worker would hand them to a provider."""

import asyncio
import time
from typing import Any

import msgspec

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.notifications import Message
from carillon.providers import Tools
from carillon.providers.http import HttpClient

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOOPBACK = {"allow_http": True, "allow_networks": ["127.0.0.0/8", "::1/128"], "allow_ports": ["1024-65535"]}
"""What lets a webhook go to an endpoint of this machine."""
MESSAGE = Message(text="Your table is ready.", subject="Table 7", html="<p>Your table is <b>ready</b>.</p>")


class LoopClock:
    """Real time, with a wall clock that can be set."""

    def __init__(self, wall: float | None = None) -> None:
        self.fixed_wall = wall

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time() if self.fixed_wall is None else self.fixed_wall

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def tools(http: HttpClient, *, wall: float | None = None, own_addresses: tuple[str, ...] = ()) -> Tools:
    return Tools(clock=LoopClock(wall), dice=lambda: 0.5, http=http, own_addresses=own_addresses)


def claim(*, payload: object = None, metadata: object = None, **fields: Any) -> Claim:
    given: dict[str, Any] = {
        "notification_id": "0191f0a0-0000-7000-8000-000000000001",
        "route_id": "webhook:user-7",
        "token": 1,
        "channel": "webhook",
        "recipient_ref": "user-7",
        "lane": 0,
        "provider": "under-test",
        "policy": "*/*",
        "attempt": 1,
        "attempts_before": 0,
        "max_attempts": 6,
        "age_seconds": 0.0,
        "notification_type": "table.ready",
        "producer": "restaurant",
        "payload_json": msgspec.json.encode(payload or {"table": 7}).decode(),
        "metadata_json": None if metadata is None else msgspec.json.encode(metadata).decode(),
        "accepted_at_ms": 1_700_000_000_123,
    }
    return Claim(**given | fields)


def dispatch(*, message: Message | None = MESSAGE, timeout_seconds: float = 5.0, **fields: Any) -> Dispatch:
    return Dispatch(claim(**fields), message, timeout_seconds)


def mail(address: str | None = "ada@example.com", **fields: Any) -> Dispatch:
    return dispatch(**{"channel": "email", "route_id": f"email:{address}", "address": address, **fields})
