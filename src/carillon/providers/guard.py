"""The guard of the egress rules: it resolves a name once, checks every address, and checks again at the socket."""

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
"""How long the checked addresses of a name are kept, so that not every call asks the resolver."""
_OWN_NAMES_SECONDS = 60.0
_REMEMBERED = 4096
_IPV6 = 6


class BlockedAddress(CarillonError, OSError):
    """The egress rules refuse a connection."""

    def __init__(self) -> None:
        super().__init__(BLOCKED_TEXT)


async def system_resolve(host: str, port: int) -> list[IPAddress]:
    """Ask the resolver of this machine; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in found]


class Allowed(msgspec.Struct, frozen=True, gc=False):
    """A URL that may be called, and the addresses it may connect to."""

    url: str
    """In the spelling that was checked."""
    pins: str | None = None
    """`host:port:address,…`: the only addresses of its name; None where the URL names an address."""


class EgressGuard:
    """Checks a URL that the operator did not write before anything connects to it."""

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
        """The pins of a name and port, and until when they are valid."""
        self._resolving: dict[tuple[str, int], asyncio.Task[str]] = {}
        self._own_names = tuple(own for own in rules.own if not _is_address(own.host))
        self._own_everywhere = frozenset(own.port for own in rules.own if own.host in ("0.0.0.0", "::"))  # noqa: S104 — recognised, not bound
        self._own_found: frozenset[tuple[IPAddress, int | None]] = frozenset()
        self._own_fresh_until = float("-inf")
        self._checked = lru_cache(maxsize=_REMEMBERED)(partial(check_url, rules=rules))
        """The check of a URL never changes; the addresses of its name do."""

    def at_once(self, url: str) -> Allowed | Blocked | None:
        """The result of the check if it needs no DNS look-up; None otherwise."""
        now = self._now()
        if self._own_names and now >= self._own_fresh_until:
            return None
        target = self._checked(url)
        if isinstance(target, Blocked):
            return target
        if target.address is not None:
            # The rules were checked with the URL; our own machine is not in them, as it has many addresses.
            return Blocked() if self._is_own(target.address, target.port) else Allowed(target.url)
        until, pins = self._kept.get((target.host, target.port), (0.0, ""))
        return Allowed(target.url, pins) if now < until else None

    async def resolved(self, url: str) -> Allowed:
        """Check a URL and the addresses of its name; raises BlockedAddress, or OSError for an unknown name."""
        target = await self.check(url)
        if isinstance(target, Blocked):
            raise BlockedAddress
        if target.address is not None:
            return Allowed(target.url)
        key = (target.host, target.port)
        resolving = self._resolving.get(key)
        if resolving is None:
            resolving = self._resolving[key] = asyncio.create_task(self._pins(key))
            resolving.add_done_callback(partial(self._forget_task, key))
        # Concurrent callers share one look-up: a caller that is cancelled must not cancel it for the others.
        return Allowed(target.url, await asyncio.shield(resolving))

    async def _pins(self, key: tuple[str, int]) -> str:
        host, port = key
        found = await self.addresses(host, port)
        pins = f"{host}:{port}:{','.join(map(_literal, found))}"
        if len(self._kept) >= _REMEMBERED:
            self._kept.clear()
        self._kept[key] = (self._now() + self._keep_seconds, pins)
        return pins

    def _forget_task(self, key: tuple[str, int], resolving: "asyncio.Task[str]") -> None:
        del self._resolving[key]
        if not resolving.cancelled():
            # Retrieve the exception: every caller may have been cancelled.
            resolving.exception()

    async def check(self, url: str) -> Target | Blocked:
        """Check a URL before its name is resolved."""
        await self._refresh_own()
        target = self._checked(url)
        if isinstance(target, Target) and target.address is not None and not self.admits(target.address, target.port):
            return Blocked()
        return target

    async def addresses(self, host: str, port: int) -> list[IPAddress]:
        """Resolve a name once; one forbidden address blocks the name."""
        found = await self._resolve(host, port)
        if not found or not all(self.admits(address, port) for address in found):
            raise BlockedAddress
        return found

    def admits(self, address: IPAddress, port: int) -> bool:
        """Whether a socket may connect to this address and port."""
        return permitted(address, port, self._rules) and not self._is_own(address, port)

    def _is_own(self, address: IPAddress, port: int) -> bool:
        if self._own_found and ((address, port) in self._own_found or (address, None) in self._own_found):
            return True
        return bool(self._own_everywhere & {port, None}) and _is_this_machine(address)

    async def _refresh_own(self) -> None:
        # Our stores are configured by name: another name for the same address must not pass.
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
    # Only an address of this machine can be bound; so this needs no list of interfaces.
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
