"""The limits for one client address: who is behind a proxy, how many slow bodies, how many idle connections."""

import asyncio
import heapq
import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Self

from carillon.domain.errors import ConfigurationError

QUICK_SECONDS = 1.0
"""A body that takes longer is slow."""
_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def grouped(address: str) -> str:
    """What limits count as one address: IPv4 as it is, of IPv6 the network that one customer has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
    return address


class Proxies:
    """The operator's own proxies: what they forward counts for the address that they name."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [_network(text) for text in networks]
        self._among = lru_cache(maxsize=4096)(self._look)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return bool(self._networks) and self._among(address)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The address of the caller: of a proxy's X-Forwarded-For the last entry that is no proxy.

        Entries further left are written by the caller, so they prove nothing.
        """
        if peer not in self:
            return peer
        entries = headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
        for entry in reversed(entries):
            named = _address(entry.strip())
            if named is None:
                return peer
            if named not in self:
                return named
            peer = named
        return peer

    def _look(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(grouped(address) if address.startswith("::ffff:") else address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigurationError(f"http.trusted_proxies: {text!r} is no address and no network") from None


def _address(text: str) -> str | None:
    """The address of one entry of X-Forwarded-For, which may have a port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


class SlowBodies:
    """Counts the bodies of each address that are slow, and ends those beyond the limit; 0 sets no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slow: Counter[str] = Counter()

    def watch(self, address: str, deadline: asyncio.Timeout) -> "WatchedBody":
        """Watch a body while it is read; beyond the limit its deadline is now."""
        return WatchedBody(self, grouped(address), deadline)

    def begin(self, address: str) -> bool:
        """Count a body that has become slow; false if the address has too many."""
        if 0 < self._most <= self._slow[address]:
            return False
        self._slow[address] += 1
        return True

    def end(self, address: str) -> None:
        """Forget a slow body that is over."""
        self._slow[address] -= 1
        if not self._slow[address]:
            del self._slow[address]


UNLIMITED = SlowBodies(0)


class WatchedBody:
    """One body that is being read: quick bodies are not counted, so that a burst of them is no offence."""

    def __init__(self, bodies: SlowBodies, address: str, deadline: asyncio.Timeout) -> None:
        self._bodies = bodies
        self._address = address
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._counted = False
        self.refused = False
        """True: the address has too many slow bodies."""

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(QUICK_SECONDS, self._became_slow)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._counted:
            self._bodies.end(self._address)

    def _became_slow(self) -> None:
        self._counted = self._bodies.begin(self._address)
        if not self._counted and not self._deadline.expired():
            self.refused = True
            self._deadline.reschedule(self._loop.time())


class IdlePeer(NamedTuple):
    """One connection without a request under way."""

    address: str
    """As `grouped` says it."""
    silent_ms: int
    descriptor: int
    exempt: bool = False
    """True for a proxy: no limit holds for its address alone."""


def surplus(idle: Sequence[IdlePeer], most: int, excess: int) -> list[IdlePeer]:
    """The connections to close, the longest silent first.

    `most` of one address may stay, 0 sets no limit; `excess` more connections must go for the sake of newcomers, from
    the addresses that have most of them.
    """
    by_address: dict[str, list[IdlePeer]] = {}
    for peer in sorted(idle, key=lambda peer: peer.silent_ms):
        by_address.setdefault(peer.address, []).append(peer)
    gone: list[IdlePeer] = []
    for peers in by_address.values():
        while 0 < most < len(peers) and not peers[0].exempt:
            gone.append(peers.pop())
    heaviest = [(-len(peers), address) for address, peers in by_address.items()]
    heapq.heapify(heaviest)
    while heaviest and len(gone) < excess:
        _, address = heapq.heappop(heaviest)
        gone.append(by_address[address].pop())
        if by_address[address]:
            heapq.heappush(heaviest, (-len(by_address[address]), address))
    return gone
