"""The egress rules for URLs that the operator did not write, and the guard that checks names and sockets by them."""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import idna
import msgspec

from carillon.domain.errors import CarillonError

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

# One text for every reason: a more precise one would tell a tenant about the internal network.
BLOCKED_TEXT = "this address may not be called"

# Not `ipaddress.is_global`: its definition of a public address changed between patch releases of Python.
DENIED_IPV4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform address
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "255.255.255.255/32",
    )
)
# Outside it are loopback, link-local, private and multicast, and embedded IPv4: mapped, compatible, NAT64.
PUBLIC_IPV6 = IPv6Network("2000::/3")
DENIED_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, and Teredo's embedded IPv4
        "2001:db8::/32",
        "2002::/16",  # 6to4: embedded IPv4
        "3fff::/20",
    )
)
DENIED_NAMES = ("localhost", "local", "internal", "home.arpa")
STANDARD_PORTS = frozenset({80, 443, 8443})

_MAX_URL = 2048
_MAX_HOST = 253
_FIRST_FREE_PORT = 1024
_LAST_PORT = 65535
_URL = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#\\]+)(?P<rest>[^#\\]*)(?:#[^\\]*)?", re.IGNORECASE)
_REST = re.compile(r"(?:[/?][\x21-\x7e]*)?")
_BRACKETED = re.compile(r"\[(?P<host>[0-9A-Fa-f:.]+)\](?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile(r"(?P<host>[^:\[\]@%]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
# Spellings that some resolvers read as an IPv4 address: 2130706433, 0x7f.1, 0177.0.0.1, 127.1
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
KEEP_SECONDS = 5.0
"""How long the checked addresses of a name are kept, so that not every call asks the resolver."""
_OWN_NAMES_SECONDS = 60.0
_REMEMBERED = 4096
_IPV6 = 6


class OwnAddress(msgspec.Struct, frozen=True):
    """An address of our own listeners or stores that must never be called; without a port, every port of it."""

    host: str
    port: int | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator allows, and our own addresses, which stay blocked."""

    allow_http: bool = False
    allow_networks: tuple[IPNetwork, ...] = ()
    allow_hosts: frozenset[str] = frozenset()
    """Names that the rules for names do not apply to; their addresses are still checked."""
    allow_ports: tuple[tuple[int, int], ...] = ()
    """Port ranges from 1024 up that may be called in addition to 80, 443 and 8443."""
    own: tuple[OwnAddress, ...] = ()


class Target(msgspec.Struct, frozen=True):
    """A URL that passed the check, in its normal spelling."""

    url: str
    host: str
    port: int
    address: IPAddress | None
    """The address, if the URL names one instead of a host name."""


class Blocked(msgspec.Struct, frozen=True):
    """A URL that must not be called; the reason is hidden on purpose."""

    error: str = BLOCKED_TEXT


def check_url(url: str, rules: Rules) -> Target | Blocked:
    """Check everything about a URL that needs no DNS look-up."""
    whole = _URL.fullmatch(url) if len(url) <= _MAX_URL else None
    if whole is None or not _REST.fullmatch(whole["rest"]):
        return Blocked()
    scheme = whole["scheme"].lower()
    place = _BRACKETED.fullmatch(whole["authority"]) or _PLAIN.fullmatch(whole["authority"])
    if place is None or (scheme == "http" and not rules.allow_http):
        return Blocked()
    standard = 443 if scheme == "https" else 80
    port = int(place["port"]) if place["port"] else standard
    host = _host(place["host"], rules)
    if host is None or not _port_allowed(port, rules):
        return Blocked()
    address = None if isinstance(host, str) else host
    if address is not None and not permitted(address, port, rules):
        return Blocked()
    name = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
    if any(own.host == str(host) and own.port in (None, port) for own in rules.own):
        return Blocked()
    rest = whole["rest"] if whole["rest"].startswith("/") else f"/{whole['rest']}"
    shown = name if port == standard else f"{name}:{port}"
    return Target(f"{scheme}://{shown}{rest}", str(host), port, address)


def check_address(address: IPAddress) -> bool:
    """Whether this address is public, by the lists above."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in DENIED_IPV4)
    return address in PUBLIC_IPV6 and not any(address in network for network in DENIED_IPV6)


def permitted(address: IPAddress, port: int, rules: Rules) -> bool:
    """Whether this address is public or allowed by the operator, and not one of our own."""
    if any(own.port in (None, port) and own.host == str(address) for own in rules.own):
        return False
    if any(address.version == network.version and address in network for network in rules.allow_networks):
        return True
    return check_address(address)


def parse_own(places: Iterable[str]) -> tuple[OwnAddress, ...]:
    """Read `host`, `host:port`, `v6` or `[v6]:port`; commas separate several in one text, as in a DSN."""
    return tuple(_own(place.strip().lower()) for text in places for place in text.split(","))


def parse_networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    return tuple(ip_network(text) for text in texts)


def parse_ports(texts: Iterable[str | int]) -> tuple[tuple[int, int], ...]:
    """Read `9000` or `9000-9100`; ports below 1024 cannot be allowed."""
    ranges = []
    for text in texts:
        first, _, last = str(text).partition("-")
        low, high = int(first), int(last or first)
        if not _FIRST_FREE_PORT <= low <= high <= _LAST_PORT:
            raise ValueError(f"port range {text!r} is not within {_FIRST_FREE_PORT}-{_LAST_PORT}")
        ranges.append((low, high))
    return tuple(ranges)


def _own(place: str) -> OwnAddress:
    bracketed = re.fullmatch(r"\[(?P<host>[^\]]+)\](?::(?P<port>\d+))?", place)
    if bracketed:
        return OwnAddress(str(ip_address(bracketed["host"])), int(bracketed["port"]) if bracketed["port"] else None)
    if place.count(":") > 1:
        return OwnAddress(str(ip_address(place)))
    host, _, port = place.partition(":")
    return OwnAddress(host, int(port) if port else None)


def _port_allowed(port: int, rules: Rules) -> bool:
    return port in STANDARD_PORTS or any(low <= port <= high for low, high in rules.allow_ports)


def _host(text: str, rules: Rules) -> IPAddress | str | None:
    if ":" in text:
        return _ipv6(text)
    name = _ascii_name(text)
    if name is None or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return None if name is None else _ipv4(name)
    return name if name in rules.allow_hosts or _is_public_name(name) else None


def _is_public_name(name: str) -> bool:
    labels = name.split(".")
    if len(name) > _MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    return len(labels) > 1 and not any(name == end or name.endswith(f".{end}") for end in DENIED_NAMES)


def _ipv6(text: str) -> IPv6Address | None:
    try:
        return IPv6Address(text)
    except ValueError:
        return None


def _ipv4(text: str) -> IPv4Address | None:
    # Only four plain decimal numbers: any other spelling is an attack or a mistake.
    if not re.fullmatch(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})", text):
        return None
    try:
        return IPv4Address(text)
    except ValueError:
        return None


def _ascii_name(text: str) -> str | None:
    name = text.lower()
    if name.isascii() and "xn--" not in name:
        return name
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError):
        return None


Resolve = Callable[[str, int], Awaitable[list[IPAddress]]]


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

    async def _own_addresses(self, own: OwnAddress) -> list[IPAddress]:
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
