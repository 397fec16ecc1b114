"""The egress rules at work: one lookup per connection, every address judged, and judged again at the socket."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from ipaddress import IPv4Address, ip_address

from carillon.domain.errors import CarillonError
from carillon.providers.egress import BLOCKED_TEXT, Blocked, IPAddress, Own, Rules, Target, check_url, permitted

Resolve = Callable[[str, int], Awaitable[list[IPAddress]]]
_OWN_NAMES_SECONDS = 60.0
_REMEMBERED = 4096


class BlockedAddress(CarillonError, OSError):
    """A connection was refused by our own rules."""

    def __init__(self) -> None:
        super().__init__(BLOCKED_TEXT)


async def system_resolve(host: str, port: int) -> list[IPAddress]:
    """Ask the machine's resolver; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in found]


class Guard:
    """Stands between a stranger's URL and the network."""

    def __init__(self, rules: Rules, resolve: Resolve = system_resolve) -> None:
        self._rules = rules
        self._resolve = resolve
        self._own_names = tuple(own for own in rules.own if not _is_address(own.host))
        self._own_everywhere = frozenset(own.port for own in rules.own if own.host in ("0.0.0.0", "::"))  # noqa: S104 — recognised, not bound
        self._own_found: frozenset[tuple[IPAddress, int | None]] = frozenset()
        self._own_fresh_until = float("-inf")
        self._judged = lru_cache(maxsize=_REMEMBERED)(partial(check_url, rules=rules))
        """What the rules say of a URL never changes; what its name stands for is asked every time."""

    def literal(self, url: str) -> Target | Blocked | None:
        """The judgement at once, where the URL names an address and nothing has to be asked; None otherwise."""
        if self._own_names:
            return None
        target = self._judged(url)
        if isinstance(target, Blocked):
            return target
        if target.address is None:
            return None
        # The address was judged with its URL; what remains is our own machine, which may be called by many addresses.
        return Blocked() if self._is_own(target.address, target.port) else target

    async def check(self, url: str) -> Target | Blocked:
        """Judge a URL before anything is looked up or opened."""
        await self._refresh_own()
        target = self._judged(url)
        if isinstance(target, Target) and target.address is not None and not self.admits(target.address, target.port):
            return Blocked()
        return target

    async def addresses(self, host: str, port: int) -> list[IPAddress]:
        """Look a name up once; one forbidden address condemns the whole answer."""
        found = await self._resolve(host, port)
        if not found or not all(self.admits(address, port) for address in found):
            raise BlockedAddress
        return found

    def admits(self, address: IPAddress, port: int) -> bool:
        """May a socket be connected to exactly this?"""
        return permitted(address, port, self._rules) and not self._is_own(address, port)

    def _is_own(self, address: IPAddress, port: int) -> bool:
        if self._own_found and ((address, port) in self._own_found or (address, None) in self._own_found):
            return True
        return bool(self._own_everywhere & {port, None}) and _is_this_machine(address)

    async def _refresh_own(self) -> None:
        # Our stores are configured by name: a stranger's name for the same address must not pass.
        now = asyncio.get_running_loop().time()
        if not self._own_names or now < self._own_fresh_until:
            return
        self._own_fresh_until = now + _OWN_NAMES_SECONDS
        found: set[tuple[IPAddress, int | None]] = set()
        for own in self._own_names:
            found |= {(address, own.port) for address in await self._own_addresses(own)}
        self._own_found = frozenset(found)

    async def _own_addresses(self, own: Own) -> list[IPAddress]:
        try:
            return await self._resolve(own.host, own.port or 0)
        except OSError:
            return []


def _family(address: IPAddress) -> socket.AddressFamily:
    return socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_this_machine(address: IPAddress) -> bool:
    # Only an address of this machine can be bound; that needs no list of interfaces.
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
