"""What every provider may use: clock, dice, HTTP client and connections; and credentials that no log shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from carillon.domain.claims import Claim
from carillon.domain.ports import Clock, Dice

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from carillon.providers.http import HttpClient


class Secret:
    """Holds a credential; only `reveal` returns it, where it is used."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str | tuple[Any, ...]:
        # A pickle would put the credential into caches and crash reports.
        raise TypeError("a Secret is not pickled")


def decode_secret(wanted: type, value: object) -> object:
    """Let msgspec read a plain string where settings want a Secret."""
    if wanted is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str) and value:
            return Secret(value)
        raise ValueError("Expected a non-empty `str`")
    raise NotImplementedError


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
