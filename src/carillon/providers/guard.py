"""The egress rules at work: a name is looked up once, every address judged, and judged again at the socket."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from ipaddress import IPv4Address, ip_address

import msgspec

from carillon.domain.errors import CarillonError
from carillon.providers.egress import BLOCKED_TEXT, Blocked, IPAddress, Own, Rules, Target, check_url, permitted

Resolve = Callable[[str, int], Awaitable[list[IPAddress]]]
KEEP_SECONDS = 5.0
"""How long a name stands for the addresses that were judged: a resolver asked for every call would bear all of them."""
_OWN_NAMES_SECONDS = 60.0
_REMEMBERED = 4096
_IPV6 = 6


class BlockedAddress(CarillonError, OSError):
    """A connection was refused by our own rules."""

    def __init__(self) -> None:
        super().__init__(BLOCKED_TEXT)


async def system_resolve(host: str, port: int) -> list[IPAddress]:
    """Ask the machine's resolver; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in found]


class Way(msgspec.Struct, frozen=True, gc=False):
    """Where a call may go."""

    url: str
    """As it was judged."""
    pins: str | None = None
    """`host:port:address,…`: the only addresses its name stands for; None where it names an address itself."""


class Guard:
    """Stands between a stranger's URL and the network."""

    def __init__(
        self,
        rules: Rules,
        resolve: Resolve = system_resolve,
        keep_seconds: float = KEEP_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._resolve = resolve
        self._keep_seconds = keep_seconds
        self._now = now
        self._kept: dict[tuple[str, int], tuple[float, str]] = {}
        """The pins of a name and port, and until when they hold."""
        self._asking: dict[tuple[str, int], asyncio.Task[str]] = {}
        self._own_names = tuple(own for own in rules.own if not _is_address(own.host))
        self._own_everywhere = frozenset(own.port for own in rules.own if own.host in ("0.0.0.0", "::"))  # noqa: S104 — recognised, not bound
        self._own_found: frozenset[tuple[IPAddress, int | None]] = frozenset()
        self._own_fresh_until = float("-inf")
        self._judged = lru_cache(maxsize=_REMEMBERED)(partial(check_url, rules=rules))
        """What the rules say of a URL never changes; what its name stands for does."""

    def at_once(self, url: str) -> Way | Blocked | None:
        """The judgement, where nothing has to be looked up for it; None otherwise."""
        now = self._now()
        if self._own_names and now >= self._own_fresh_until:
            return None
        target = self._judged(url)
        if isinstance(target, Blocked):
            return target
        if target.address is not None:
            # The address was judged with its URL; what remains is our own machine, which has many addresses.
            return Blocked() if self._is_own(target.address, target.port) else Way(target.url)
        until, pins = self._kept.get((target.host, target.port), (0.0, ""))
        return Way(target.url, pins) if now < until else None

    async def way(self, url: str) -> Way:
        """Judge a URL and what its name stands for; raises BlockedAddress, and OSError where nobody knows the name."""
        target = await self.check(url)
        if isinstance(target, Blocked):
            raise BlockedAddress
        if target.address is not None:
            return Way(target.url)
        key = (target.host, target.port)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key))
            asking.add_done_callback(partial(self._asked, key))
        # Shared by everybody who asks meanwhile: one who gives up takes it from nobody.
        return Way(target.url, await asyncio.shield(asking))

    async def _ask(self, key: tuple[str, int]) -> str:
        host, port = key
        found = await self.addresses(host, port)
        pins = f"{host}:{port}:{','.join(map(_literal, found))}"
        if len(self._kept) >= _REMEMBERED:
            self._kept.clear()
        self._kept[key] = (self._now() + self._keep_seconds, pins)
        return pins

    def _asked(self, key: tuple[str, int], asking: "asyncio.Task[str]") -> None:
        del self._asking[key]
        if not asking.cancelled():
            # Nobody may be left to hear of it.
            asking.exception()

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
        now = self._now()
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


@lru_cache(maxsize=4096)
def _literal(address: IPAddress) -> str:
    return f"[{address}]" if address.version == _IPV6 else str(address)


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
