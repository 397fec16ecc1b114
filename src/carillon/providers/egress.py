"""The egress rules for URLs that the operator did not write: which names, ports and addresses may be called."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import idna
import msgspec

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


class Own(msgspec.Struct, frozen=True):
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
    own: tuple[Own, ...] = ()


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


def parse_own(places: Iterable[str]) -> tuple[Own, ...]:
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


def _own(place: str) -> Own:
    bracketed = re.fullmatch(r"\[(?P<host>[^\]]+)\](?::(?P<port>\d+))?", place)
    if bracketed:
        return Own(str(ip_address(bracketed["host"])), int(bracketed["port"]) if bracketed["port"] else None)
    if place.count(":") > 1:
        return Own(str(ip_address(place)))
    host, _, port = place.partition(":")
    return Own(host, int(port) if port else None)


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
