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
_SWEEP_SECONDS = 0.05
"""How late a slow body may be noticed."""
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
        raise ConfigurationError(f"http.trusted_proxies: {text!r} is neither an address nor a network") from None


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
    """Ends the bodies that take too long, and those of an address that has too many slow ones; 0 sets no limit.

    One timer looks at all bodies that are being read: a timer for each of them costs more than most bodies do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._slow: Counter[str] = Counter()
        self._reading: dict[WatchedBody, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._armed = False

    def watch(self, address: str, seconds: float) -> "WatchedBody":
        """Watch a body while it is read: TimeoutError after `seconds`, or once its address has too many slow ones."""
        return WatchedBody(self, address, seconds)

    def enter(self, body: "WatchedBody") -> asyncio.AbstractEventLoop:
        """Look at this body from now on."""
        self._reading[body] = None
        # Python 3.11 makes a system call to name the running loop: one a sweep, not one a body.
        if not self._armed or self._loop is None or self._loop.is_closed():
            self._loop = asyncio.get_running_loop()
            self._arm(self._loop)
        return self._loop

    def leave(self, body: "WatchedBody") -> None:
        """Look at this body no more."""
        del self._reading[body]

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

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = True
        loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = False
        now = loop.time()
        for body in self._reading:
            body.judge(now)
        if self._reading:
            self._arm(loop)


class WatchedBody:
    """One body that is being read: quick bodies are not counted, so that a burst of them is no offence."""

    __slots__ = ("_address", "_began", "_bodies", "_cancels", "_counted", "_expired", "_seconds", "_task", "refused")

    def __init__(self, bodies: SlowBodies, address: str, seconds: float) -> None:
        self._bodies = bodies
        self._address = address
        self._seconds = seconds
        self._counted = self._expired = False
        self.refused = False
        """True: the address has too many slow bodies."""

    def __enter__(self) -> Self:
        loop = self._bodies.enter(self)
        self._began = loop.time()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a body is read inside a task")
        self._task, self._cancels = task, task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bodies.leave(self)
        if self._counted:
            self._bodies.end(grouped(self._address))
        # As in asyncio.timeout: a task that somebody else cancels as well stays cancelled.
        if self._expired and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def judge(self, now: float) -> None:
        """Count the body once it is slow, and end it where its time is over or its address has too many."""
        took = now - self._began
        if self._expired or took < min(QUICK_SECONDS, self._seconds):
            return
        if took >= QUICK_SECONDS and not self._counted:
            self._counted = self._bodies.begin(grouped(self._address))
            self.refused = not self._counted
        if self.refused or took >= self._seconds:
            self._expired = True
            self._task.cancel()


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
