"""The clock, dice, HTTP client and connections that every provider may use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carillon.domain.claims import Claim
from carillon.domain.ports import Clock, Dice

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from carillon.providers.http import HttpClient


@dataclass(frozen=True)
class Tools:
    """What every provider may use; the process that builds the tools closes them."""

    clock: Clock
    dice: Dice
    http: "HttpClient"
    own_addresses: tuple[str, ...] = ()
    """`host`, `host:port` or `[v6]:port` of our listeners and stores: a URL from a tenant must not reach them."""
    redis: "Redis | None" = None
    encoders: Mapping[str, Callable[[Claim], Mapping[str, str | bytes]]] = field(default_factory=dict)
    """A blueprint's encoders for Redis streams: from a claim to the fields of its entry; an encoder may raise."""
    live: object | None = None
    """What `carillon.live` needs to reach readers; None in a process that serves no streams."""
